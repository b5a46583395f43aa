"""The agent's process does not load what it never uses."""

import subprocess
import sys

import pytest

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
    for module in ("gpushare_device_plugin", "elastic_gpu_agent", "gpu_manager")
]


@pytest.fixture(scope="module", params=[_AGENT, *_PROGRAMS])
def loaded(request: pytest.FixtureRequest) -> set[str]:
    code = _LOADS.format(run=request.param)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "name", ["aiohttp", "importlib.metadata", "numpy", "prometheus_client", "rich", "uvicorn", "uvloop"]
)
def test_the_agent_does_not_load_a_library_that_it_does_not_use(loaded: set[str], name: str) -> None:
    assert {"grpc", "httptools", "pynvml", "structlog"} <= loaded, "what it does use is there"
    assert name not in loaded
