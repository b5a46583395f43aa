"""Every key has a flag, a variable, and a line in the documents; every metric, too."""

import re
from pathlib import Path
from typing import Any

import pytest

from aliquot import metrics
from aliquot.agent.metrics import METRICS
from aliquot.config.agent_tree import AGENT
from aliquot.config.declaration import Declaration
from aliquot.config.keys import Setting
from aliquot.config.server import SERVER
from tests.unit.config import tables

DOCS = Path(__file__).parents[3] / "docs"
GUIDE = (DOCS / "configuration.md").read_text()
SERVERS_METRICS, _, AGENTS_METRICS = (DOCS / "metrics.md").read_text().partition("## The agent's metrics")


def test_the_guide_lists_every_key_as_it_is_declared() -> None:
    assert tables.key_table(SERVER.settings.values()) in GUIDE, "run `python -m tests.unit.config.tables`"


def test_the_guide_lists_every_flag_of_the_agent_as_it_is_declared() -> None:
    assert tables.flag_table(AGENT.settings.values()) in GUIDE, "run `python -m tests.unit.config.tables`"


def test_the_guide_lists_every_metric_as_it_is_declared() -> None:
    rows = re.findall(r"^\| `(aliquot_\w+)` \| .* \| (.+) \|$", SERVERS_METRICS, re.MULTILINE)
    told = {match[0]: match[1] for match in rows}
    families = {family.name: family for family in metrics.REGISTRY.collect() if family.name.startswith("aliquot_")}
    declared = {_shown(name, family.type): family.documentation for name, family in families.items()}
    tables = {table.name: table.help for table in metrics.TABLES}
    assert told == declared | tables


def test_the_guide_names_the_labels_of_large_gauges() -> None:
    for table in metrics.TABLES:
        labels = ", ".join(f"`{label}`" for label in table.labels)
        assert f"| `{table.name}` | gauge | {labels} |" in SERVERS_METRICS


def test_the_page_lists_every_metric_of_the_agent_as_it_is_declared() -> None:
    told = {
        match[0]: match[1:]
        for match in re.findall(r"^\| `(aliquot_\w+)` \| (\w+) \| .* \| (.+) \|$", AGENTS_METRICS, re.MULTILINE)
    }
    assert told == {metric.name: (metric.kind, metric.help) for metric in METRICS}


def _shown(name: str, kind: str) -> str:
    return name + {"counter": "_total", "info": "_info"}.get(kind, "")


@pytest.mark.parametrize("declaration", [SERVER, AGENT], ids=["server", "agent"])
@pytest.mark.parametrize("what", ["flag", "variable"])
def test_no_two_keys_share_a_flag_or_a_variable(declaration: Declaration[Any], what: str) -> None:
    names = [getattr(setting, what) for setting in declaration.settings.values()]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    "setting", [*SERVER.settings.values(), *AGENT.settings.values()], ids=lambda setting: setting.path
)
def test_every_key_says_what_it_is_for_and_what_it_may_be(setting: Setting) -> None:
    assert setting.key.help.endswith(".")
    assert setting.allowed
    assert setting.section.__doc__
    assert re.fullmatch(r"--[a-z-]+", setting.flag)
    assert re.fullmatch(r"ALIQUOT_[A-Z_]+", setting.variable)


def test_the_flags_of_the_first_version_stay() -> None:
    flags = {setting.path: setting.flag for setting in SERVER.settings.values()}
    assert flags["kubernetes.kubeconfig"] == "--kubeconfig"
    assert flags["kubernetes.context"] == "--context"
    assert flags["listen.address"] == "--address"
    assert flags["endpoints.gpushare.port"] == "--gpushare-port"
    assert flags["prefixes"] == "--prefix"
    assert flags["log.level"] == "--log-level"
