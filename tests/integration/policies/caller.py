"""Requests in somebody's name, to whichever API server."""

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec

from aliquot.model.admission import NODE_OF_TOKEN

MERGE = "application/merge-patch+json"
JSON = "application/json"


@dataclass(frozen=True)
class Answer:
    code: int
    body: Any
    warnings: list[str] = field(default_factory=list)

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))

    def expect(self, code: int) -> Any:
        assert self.code == code, self.body
        return self.body


class Caller:
    """Sends as the administrator, or for the administrator as somebody else, who may do everything too: what is refused
    is refused by a policy."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        user: str = "",
        media: str = JSON,
        dry_run: bool = False,
        node: str = "",
    ) -> Answer:
        """`node` is the one that the user's token would be bound to."""
        headers = {"Content-Type": media, "Accept": JSON}
        if user:
            headers |= {"Impersonate-User": user, "Impersonate-Group": "system:masters"}
        if node:
            headers |= {f"Impersonate-Extra-{quote(NODE_OF_TOKEN, safe='')}": node}
        data = None if body is None else msgspec.json.encode(body)
        query = {"dryRun": "All"} if dry_run else {}
        request = self._session.request(method, self._url + path, data=data, headers=headers, params=query)
        async with request as response:
            content = msgspec.json.decode(await response.read())
            return Answer(response.status, content, response.headers.getall("Warning", []))
