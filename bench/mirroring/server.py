"""A plain HTTP server that tells one cluster: lists in pages, and a watch of pods with so many changes.

`/EVENTS/PAUSE_US/api/v1/...`: the first two parts of the path say how many changes a watch of pods tells, and how many
microseconds pass between two of them. With `--waits`, one more pod waits for cards. Everything else is answered 403, as
to somebody who may only read pods and nodes.
"""

import argparse
import asyncio
from collections.abc import Iterator, Sequence
from urllib.parse import parse_qs, urlsplit

from bench.mirroring import objects

_PAGE_LIMIT = "limit"
_UNBOUND = "spec.nodeName="


class Cluster:
    def __init__(self, nodes: int, pods: int, *, waits: bool = False) -> None:
        self._nodes, self._pods = nodes, pods
        self._version = nodes + pods
        self._changes: dict[int, Sequence[bytes]] = {}
        bound = [objects.pod(number, nodes, 1 + nodes + number) for number in range(pods)]
        self._unbound = [objects.waiting_pod()] if waits else []
        self.lists: dict[str, tuple[str, Sequence[bytes]]] = {
            "nodes": ("NodeList", [objects.node(number, 1 + number) for number in range(nodes)]),
            "pods": ("PodList", bound + self._unbound),
        }

    def page(self, plural: str, start: int, limit: int, *, unbound: bool = False) -> bytes:
        kind, items = self.lists[plural]
        items = self._unbound if unbound else items
        end = start + limit if limit else len(items)
        more = f',"continue":"{end}","remainingItemCount":{len(items) - end}' if end < len(items) else ""
        head = f'{{"kind":"{kind}","apiVersion":"v1","metadata":{{"resourceVersion":"{self._version}"{more}}},"items":['
        return head.encode() + b",".join(items[start:end]) + b"]}\n"

    def changes(self, count: int) -> Sequence[bytes]:
        """Changes of pods all over the cluster, made before they are told, so that nobody waits for them."""
        if count not in self._changes:
            self._changes[count] = list(self._made(count))
        return self._changes[count]

    def _made(self, count: int) -> Iterator[bytes]:
        for turn in range(count):
            number = turn * 7919 % self._pods
            changed = objects.pod(number, self._nodes, self._version + 1 + turn, told=1 + turn)
            yield b'{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1",' + changed[1:] + b"}\n"


class Server:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await reader.readuntil(b"\r\n\r\n"):
                await self._answer(request.split(b" ", 2)[1].decode(), reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def _answer(self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        url = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        _, events, pause, *path = url.path.split("/")
        if path[:2] != ["api", "v1"] or path[2] not in self._cluster.lists or len(path) > 3:
            _send(writer, b"403 Forbidden", b'{"kind":"Status","code":403,"reason":"Forbidden","message":"read only"}')
        elif query.get("watch", "").lower() == "true":
            await self._watch(writer, int(events) if path[2] == "pods" else 0, int(pause) / 1e6)
            await reader.read()  # until the listener goes
        else:
            start, limit = int(query.get("continue", 0)), int(query.get(_PAGE_LIMIT, 0))
            page = self._cluster.page(path[2], start, limit, unbound=query.get("fieldSelector") == _UNBOUND)
            _send(writer, b"200 OK", page)
        await writer.drain()

    async def _watch(self, writer: asyncio.StreamWriter, events: int, pause: float) -> None:
        changes = self._cluster.changes(events)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        for line in changes:
            writer.write(b"%x\r\n%b\r\n" % (len(line), line))
            await writer.drain()
            if pause:
                await asyncio.sleep(pause)


def _send(writer: asyncio.StreamWriter, status: bytes, body: bytes) -> None:
    head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
    writer.write(head + body)


async def _main() -> None:
    """Prints the port when everything is ready."""
    parser = argparse.ArgumentParser()
    parser.add_argument("nodes", type=int)
    parser.add_argument("pods", type=int)
    parser.add_argument("--waits", action="store_true")
    arguments = parser.parse_args()
    server = Server(Cluster(arguments.nodes, arguments.pods, waits=arguments.waits))
    listening = await asyncio.start_server(server.talk, "127.0.0.1", 0, limit=2**20)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await listening.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main())
