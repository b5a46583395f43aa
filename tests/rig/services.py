"""Services of the rig: what kube-proxy and the cluster's DNS do elsewhere, in one small process.

The addresses of Services are those of a network beside the machine's, which pods and programs of the machine alike
can reach; connections to them are passed on to the pods behind them. Nothing of the machine's firewall is touched.
`python -m tests.rig.services` reads its settings as JSON from its one argument.
"""

import asyncio
import ipaddress
import json
import random
import socket
import ssl
import sys
import urllib.request
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from tests.rig.dns import Names
from tests.rig.side_network import SideNetwork

_EVERY = 0.3
_CHUNK = 65536

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Settings:
    api: str
    """The API server's URL; `authority`, `certificate` and `key` are files to reach it with."""
    authority: str
    certificate: str
    key: str
    node_address: str
    addresses: str
    """Of Services."""
    dns_address: str
    link: str

    def command(self) -> list[str]:
        return [sys.executable, "-m", "tests.rig.services", json.dumps(asdict(self))]


class Services:
    """What is served now, by the address where it is."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._side = SideNetwork(settings.link, settings.addresses, settings.node_address)
        self._open: dict[Address, asyncio.Server] = {}
        self._behind: dict[Address, list[Address]] = {}
        self._names: dict[tuple[str, str], str] = {}
        host, port = settings.api.removeprefix("https://").split(":")
        self._api = (host, int(port))

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        names = Names(lambda namespace, name: self._names.get((namespace, name)))
        asked = self._side.socket(socket.SOCK_DGRAM, (self._settings.dns_address, 53))
        await loop.create_datagram_endpoint(lambda: names, sock=asked)
        while True:
            try:
                services, slices = await asyncio.to_thread(self._look)
            except OSError as error:  # the API server is being restarted
                print(f"no look at the cluster: {error}", file=sys.stderr)
            else:
                await self._serve(services, slices)
            await asyncio.sleep(_EVERY)

    def _look(self) -> tuple[list[Any], list[Any]]:
        paths = ("api/v1/services", "apis/discovery.k8s.io/v1/endpointslices")
        services, slices = (self._get(path)["items"] for path in paths)
        return services, slices

    def _get(self, path: str) -> Any:
        trust = ssl.create_default_context(cafile=self._settings.authority)
        trust.load_cert_chain(self._settings.certificate, self._settings.key)
        with urllib.request.urlopen(f"{self._settings.api}/{path}", context=trust, timeout=10) as answer:
            return json.load(answer)

    async def _serve(self, services: list[Any], slices: list[Any]) -> None:
        self._names = {
            (each["metadata"]["namespace"], each["metadata"]["name"]): each["spec"]["clusterIP"]
            for each in services
            if each["spec"].get("clusterIP", "None") != "None"
        }
        self._behind = self._wanted(services, slices)
        for address in self._open.keys() - self._behind.keys():
            self._open.pop(address).close()
        for address in self._behind.keys() - self._open.keys():
            self._open[address] = await self._listen(address)
            print("serving", *address, flush=True)

    async def _listen(self, address: Address) -> asyncio.Server:
        passing = self._passing_to(address)
        if ipaddress.ip_address(address[0]) not in ipaddress.ip_network(self._settings.addresses):
            return await asyncio.start_server(passing, *address)
        return await asyncio.start_server(passing, sock=self._side.socket(socket.SOCK_STREAM, address))

    def _wanted(self, services: list[Any], slices: list[Any]) -> dict[Address, list[Address]]:
        node = self._settings.node_address
        wanted = {(node, self._api[1]): [self._api]}
        for service in services:
            meta, spec = service["metadata"], service["spec"]
            is_api = (meta["namespace"], meta["name"]) == ("default", "kubernetes")
            for port in spec.get("ports", []):
                behind = [self._api] if is_api else _endpoints(meta, port, slices)
                if spec.get("clusterIP", "None") != "None":
                    wanted[spec["clusterIP"], port["port"]] = behind
                if "nodePort" in port:
                    wanted |= {(host, port["nodePort"]): behind for host in (node, "127.0.0.1")}
        return wanted

    def _passing_to(self, address: Address) -> Any:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            behind = self._behind.get(address) or []
            try:
                if not behind:
                    return
                others = await asyncio.open_connection(*random.choice(behind))
                try:
                    await asyncio.gather(_copy(reader, others[1]), _copy(others[0], writer))
                finally:
                    others[1].close()
            except OSError:
                return  # one of the two is gone, and the other is told by closing
            finally:
                writer.close()

        return accepted


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    with suppress(OSError):
        writer.write_eof()


def _endpoints(meta: dict[str, Any], port: dict[str, Any], slices: list[Any]) -> list[Address]:
    """Ready pods behind one port of a Service."""
    return [
        (address, held["port"])
        for each in slices
        if each["metadata"]["namespace"] == meta["namespace"]
        and each["metadata"]["labels"].get("kubernetes.io/service-name") == meta["name"]
        for held in each["ports"] or []
        if (held.get("name") or "") == (port.get("name") or "")
        for endpoint in each["endpoints"] or []
        if endpoint.get("conditions", {}).get("ready", True)
        for address in endpoint["addresses"]
    ]


if __name__ == "__main__":
    asyncio.run(Services(Settings(**json.loads(sys.argv[1]))).run())
