"""A million wrong bodies at every route of every endpoint."""

import os
from pathlib import Path
from random import Random

from aliquot.kube import Client
from tests.fakes import ScriptedApi
from tests.fuzz.target import Target

BODIES = int(os.environ.get("ALIQUOT_SOAK_BODIES", "1000000"))
SEED = os.environ.get("ALIQUOT_SOAK_SEED", "") or os.urandom(4).hex()
TENTHS = 10
MAX_GROWTH = 1.1


async def test_each_is_answered_in_words_and_none_is_remembered(scripted: ScriptedApi, client: Client) -> None:
    print(f"ALIQUOT_SOAK_SEED={SEED}")
    random = Random(SEED)
    sizes: list[int] = []
    async with Target.up(scripted, client) as target:
        routes = [route for route in target.routes if route[1] == "POST"]
        for route in routes:
            await target.learn(route)
        for tenth in range(1, TENTHS + 1):
            for _ in range(BODIES // TENTHS // len(routes)):
                for route in routes:
                    await target.check(route, target.body(route, random))
            scripted.seen.clear()  # what the stand-in for an API server remembers is not ours
            sizes.append(resident())
            print(f"{tenth}/{TENTHS}: {sizes[-1] / 2**20:.0f} MiB", flush=True)
    assert sizes[-1] <= MAX_GROWTH * sizes[0], sizes


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
