"""APIServices, which the embedded API server does not serve: get and merge patch."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

_PATH = "/apis/apiregistration.k8s.io/v1/apiservices/{name}"


class ApiServices:
    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.patches = 0
        self.is_forbidden = False
        self.url = ""

    def add(self, name: str, service: str, **spec: Any) -> None:
        namespace, _, own = service.partition("/")
        whole = {"service": {"name": own, "namespace": namespace, "port": 443}, **spec}
        self.objects[name] = {"metadata": {"name": name, "resourceVersion": "1"}, "spec": whole}

    def spec(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.objects[name]["spec"]
        return found

    def trusted(self, name: str) -> str:
        return base64.b64decode(self.spec(name).get("caBundle", "")).decode()

    @asynccontextmanager
    async def served(self) -> AsyncIterator["ApiServices"]:
        application = web.Application()
        application.router.add_get(_PATH, self._get)
        application.router.add_patch(_PATH, self._patch)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _get(self, request: web.Request) -> web.Response:
        if self.is_forbidden:
            return _failure(403, "Forbidden")
        found = self.objects.get(request.match_info["name"])
        return web.json_response(found) if found is not None else _failure(404, "NotFound")

    async def _patch(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/merge-patch+json"
        found, change = self.objects[request.match_info["name"]], await request.json()
        spec = {**found["spec"], **change["spec"]}
        found["spec"] = {key: value for key, value in spec.items() if value is not None}
        if found["spec"].get("caBundle") and found["spec"].get("insecureSkipTLSVerify"):
            return _failure(422, "Invalid")
        self.patches += 1
        return web.json_response(found)


def _failure(code: int, reason: str) -> web.Response:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code}
    return web.json_response({**status, "message": reason}, status=code)
