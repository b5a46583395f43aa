from pathlib import Path

import pytest

from tests.rig import debian


@pytest.fixture(scope="session")
def programs(request: pytest.FixtureRequest) -> dict[str, Path]:
    """Prometheus and promtool of Debian's package. `make e2e` downloads it."""
    if request.config.getoption("--prometheus"):
        return debian.prometheus(print)
    found = debian.prometheus_at_hand()
    if found is None:
        pytest.skip("there is no Prometheus in the cache of the rig: `make e2e` unpacks Debian's package there")
    return found
