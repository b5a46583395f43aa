"""docs/endpoints.md names every route and every compat word, and no others."""

import re
from functools import reduce
from pathlib import Path

from aliquot.app.server.endpoints import endpoints
from aliquot.compat import QUIRKS
from aliquot.config.server_tree import ServerConfig
from aliquot.endpoints import asgi, health, metrics
from tests.integration.room import Room

PAGE = (Path(__file__).parents[3] / "docs" / "endpoints.md").read_text()


async def test_the_page_names_every_route_and_no_others(room: Room) -> None:
    opened = endpoints(ServerConfig(), room.plane, None)
    tables = [*(table for table, _ in opened.values()), health.routes(room.plane), metrics.routes(room.plane)]
    routes = {route for table in tables for route in table} - {asgi.OTHERWISE}
    named = set(re.findall(r"`(GET|HEAD|POST) (/[^`]*)`", PAGE)) - {("GET", "/debug/pprof/")}
    words = {"/*/*": "/<namespace>/<pod>", "/*": "/<node>"}
    assert named == {
        (method, reduce(lambda text, word: text.replace(*word), words.items(), path)) for method, path in routes
    }


async def test_the_page_names_every_endpoint_with_its_port(room: Room) -> None:
    ports = {name: port for name, (_, port) in endpoints(ServerConfig(), room.plane, None).items()}
    rows = dict(re.findall(r"^\| `(\w+)` \| [^|]+ \| (\d+)", PAGE, re.MULTILINE))
    assert {name: int(port) for name, port in rows.items()} == ports


def test_the_page_names_every_compat_word() -> None:
    words = PAGE[PAGE.index("| word |") :].partition("\n\n")[0]
    assert re.findall(r"^\| `([a-z-]+)` \|", words, re.MULTILINE) == list(QUIRKS)
