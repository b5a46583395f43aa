"""Warnings about environment variables with our prefix that no program reads: typing mistakes."""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from aliquot import faults
from aliquot.config.agent_tree import AgentConfig
from aliquot.config.keys import ENVIRONMENT, settings_of
from aliquot.config.server_tree import ServerConfig

_KNOWN = {
    *(setting.variable for root in (ServerConfig, AgentConfig) for setting in settings_of(root)),
    *(f"{ENVIRONMENT}{word}" for word in ("CONFIG", "CONFIG_MAP", "CHECK_CONFIG")),
    faults.VARIABLE,
}
"""Server and agent may get their variables from the same ConfigMap."""
_OF_A_SERVICE = re.compile(
    r"\w+_(SERVICE_(HOST|PORT\w*)|PORT_\d+_(TCP|UDP|SCTP)\w*)=.*|\w+_PORT=(tcp|udp|sctp)://.*", re.DOTALL
)
"""Kubernetes sets variables for every Service of the namespace. Those of a Service named aliquot have our prefix."""


def unknown_variables(environment: Mapping[str, str]) -> Iterator[str]:
    """A warning for each variable with our prefix that no program reads."""
    for name, value in sorted(environment.items()):
        if not name.startswith(ENVIRONMENT) or name in _KNOWN or _OF_A_SERVICE.fullmatch(f"{name}={value}"):
            continue
        near = get_close_matches(name, sorted(_KNOWN), n=1, cutoff=0.85)
        yield f"${name}: unknown variable{f'; did you mean ${near[0]}?' if near else ''}"
