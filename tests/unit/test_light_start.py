"""The agent's process does not load what it never uses."""

import subprocess
import sys

import pytest

from aliquot.app.light_start import unchanged_code

_LOADS = """
import sys
try:
    {run}
finally:
    print(*(name for name in sys.modules if sys.modules[name] is not None), file=sys.stderr)
"""
_AGENT = "from aliquot.cli import main; main(['agent', '--help'], standalone_mode=False)"
_PROGRAMS = [
    f"import aliquot.app.programs.device_plugins.{module}"
    for module in ("gpushare_device_plugin", "elastic_gpu_agent", "gpu_manager", "gpuserver_ds")
]


@pytest.fixture(scope="module", params=[_AGENT, *_PROGRAMS])
def loaded(request: pytest.FixtureRequest) -> set[str]:
    code = _LOADS.format(run=request.param)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "name", ["aiohttp", "cryptography", "importlib.metadata", "numpy", "prometheus_client", "rich", "uvicorn", "uvloop"]
)
def test_the_agent_does_not_load_a_library_that_it_does_not_use(loaded: set[str], name: str) -> None:
    assert {"grpc", "httptools", "pynvml", "structlog"} <= loaded, "what it does use is there"
    assert name not in loaded


_DROPS = """
import ssl
from pathlib import Path
from aliquot.app import light_start

def resident():
    text = Path("/proc/self/smaps_rollup").read_text()
    return int(text.partition("Rss:")[2].split()[0])

import aliquot.app.agent
before = resident()
light_start.drop_code_of_the_start()
print(before - resident())
ssl.create_default_context()
"""


def test_code_of_the_start_is_dropped_and_everything_still_works() -> None:
    done = subprocess.run([sys.executable, "-c", _DROPS], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 2000, "KiB"


_SMAPS = """
00400000-00500000 r-xp 00001000 08:01 17                  /usr/bin/python3.11
Rss:                1024 kB
Anonymous:             0 kB
00500000-00600000 r--p 00101000 08:01 17                  /usr/bin/python3.11
Anonymous:             0 kB
7f0000000000-7f0000002000 r-xp 00000000 08:01 18          /usr/lib/libpatched.so
Anonymous:             4 kB
7f0000003000-7f0000004000 r-xp 00000000 00:00 0
Anonymous:             0 kB
7ffc00000000-7ffc00002000 r-xp 00000000 00:00 0           [vdso]
Anonymous:             0 kB
"""


def test_only_code_that_is_as_in_its_file_is_dropped() -> None:
    assert list(unchanged_code(_SMAPS.strip())) == [(0x400000, 0x500000)]
