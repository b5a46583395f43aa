"""Environment variables that look like ours and are none: a mistake in typing."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from aliquot import faults
from aliquot.config.keys import ENVIRONMENT
from aliquot.config.tree import SETTINGS

_OF_THE_AGENT = (
    *("NODE_NAME", "DIALECT", "MEMORY_UNIT", "CDI_FOLDER", "DEV_FOLDER"),
    *("DEVICE_PLUGINS", "POD_RESOURCES", "RUNTIME_ENDPOINT"),
)
"""Both may get theirs from one ConfigMap."""
_KNOWN = {
    *(setting.variable for setting in SETTINGS.values()),
    *(f"{ENVIRONMENT}{word}" for word in ("CONFIG", "CONFIG_MAP", "CHECK_CONFIG")),
    *(f"{ENVIRONMENT}{word}" for word in _OF_THE_AGENT),
    faults.VARIABLE,
}
_OF_A_SERVICE = re.compile(
    r"\w+_(SERVICE_(HOST|PORT\w*)|PORT_\d+_(TCP|UDP|SCTP)\w*)=.*|\w+_PORT=(tcp|udp|sctp)://.*", re.DOTALL
)
"""Kubernetes tells every container of the Services in its namespace: of one called aliquot by names like ours."""


def strangers(environment: Mapping[str, str]) -> Iterator[str]:
    """What is to be said of each that nobody reads."""
    for name, value in sorted(environment.items()):
        if not name.startswith(ENVIRONMENT) or name in _KNOWN or _OF_A_SERVICE.fullmatch(f"{name}={value}"):
            continue
        near = get_close_matches(name, sorted(_KNOWN), n=1, cutoff=0.85)
        yield f"${name}: there is no such variable{f'; is ${near[0]} meant?' if near else ''}"
