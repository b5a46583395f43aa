"""docs/limits.md: every bound there is one of the code's, and no bound of the code is left out."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

import aliquot
from aliquot.app.server.transport import limits
from aliquot.config.server import SERVER
from aliquot.config.server_tree import ServerConfig
from aliquot.endpoints.limits import USUAL
from aliquot.model import bounds

SOURCE = Path(aliquot.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs" / "limits.md").read_text()
UNITS = {"": 1, "s": 1, "KiB": bounds.KIB, "MiB": bounds.MIB}
KEYS = {path for path in SERVER.settings if path.startswith("listen.limits.")} | {
    "commit.claimsPerNamespace",
    "search.seconds",
}

A_BOUND = re.compile(r"(^|_)(MAX|LONGEST|LARGEST|DEEPEST|MAX|MAXIMUM)(_|$)")
THE_DEMO = ("embedded.", "cli.demo.", "app.demo.machines.", "app.demo.screen.", "app.demo.workload.")
"""Nobody but its own user reaches it."""
NOT_REACHED = {
    "how far one decision looks, which search.seconds bounds for everybody": {
        "engine.all_nodes.originals._MAX_STEPS",
        "engine.all_nodes.node_search._MAX_REMEMBERED",
        "engine.card_sets.MAX_SETS",
        "engine.forecast.streams._LONGEST",
        "engine.one_node.connected._MAX_CARDS",
        "engine.one_node.connected._MAX_SETS",
        "engine.one_node.packing._MAX_CONTAINERS",
        "engine.one_node.packing._MAX_VECTORS",
        "engine.one_node.packing._MAX_WEIGHTS",
        "engine.one_node.packing._MAX_WORK",
        "engine.policies.elastic_trade.MAX_WAYS",
        "engine.policies.topology._MAX_SETS",
        "engine.preempting._MAX_HOLDERS",
        "engine.preempting._MAX_SETS_OF_CARDS",
        "engine.why.relax._MAX_HOPEFUL",
        "engine.why.relax._MAX_NODES",
        "control.state.search_budget._MAX_CHARGED",
        "reports.resource_names._MAX_TRIED",
        "reports.why_waiting._MAX_TRIED",
    },
    "how large numbers are in arithmetic of 64 bits; what is read is smaller": {
        "engine.all_nodes.room._MAX",
        "engine.all_nodes.room._MAX_FACTOR",
    },
    "how much of a text or a list is shown, not how much is read": {
        "agent.agent_events.LONGEST_MESSAGE",
        "app.programs.command_line._MAX_WIDTH",
        "app.replay._MAX_SUGGESTIONS",
        "config.declaration._MAX_SHOWN",
        "control.placing.pod_events.LONGEST_MESSAGE",
        "control.state.unreadable_nodes._MAX_NOTES",
        "endpoints.access_log._LONGEST",
        "endpoints.call_log._MAX_NAMES",
        "endpoints.forwarding._LONGEST",
        "engine.why.explain._MAX_NOTES",
        "engine.why.relax._MAX_SAID",
        "kube.exec_plugin._MAX_WORDS",
        "reports.explained._MAX_CHANGES",
        "reports.explained._MAX_NODES_SHOWN",
        "reports.why_waiting._MAX_NAMED",
    },
    "for how long, and how often, we ourselves wait and try": {
        "agent.allocating._LONGEST",
        "agent.heartbeat._LONGEST",
        "model.load._LONGEST_SILENCE",
        "control.state.search_budget._LONGEST_PAUSE",
        "control.waiting.schedule._LONGEST_GAP",
        "control.waiting.schedule._LONGEST_PAUSE",
        "kube.informer._LONGEST_PAUSE",
        "kube.informer._LONGEST_WISH",
        "kube.transport._MAX_TRIES",
    },
    "a rule of Kubernetes' or of TCP's for names, ports and messages": {
        "agent.device_list._MAX_LIST_BYTES",
        "app.programs.addresses._MAX_PORT",
        "apiserver.lists._LARGEST",
        "dialects.card_labels._LONGEST_LABEL",
        "dialects.elastic._LONGEST_KEY",
        "dialects.hami_records._LONGEST_LABEL",
        "dialects.protocol._LONGEST_PREFIX",
        "endpoints.query.paths._LONGEST_NAME",
    },
    "what a person asks of a simulation on a machine of their own": {
        "app.simulate.sources._LARGEST_LOAD",
        "reports.manifests.MAX_REPLICAS",
        "simulate.orders._LONGEST_RANGE",
        "simulate.orders._MAX_ARRIVALS",
        "simulate.orders._MAX_SEEDS",
    },
    "tells GiB from MiB": {
        "dialects.elastic._GIB_UNITS_AT_MAX",
        "dialects.gpushare._GIB_UNITS_AT_MAX",
    },
}


class Row(NamedTuple):
    bound: str
    declared: str


def rows() -> list[Row]:
    lines = [line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("| ")]
    found = [Row(bound.strip(), declared.strip(" `")) for what, bound, _, declared in lines if what.strip() != "what"]
    return [row for row in found if row.declared]


def stated(row: Row) -> float:
    match = re.fullmatch(r"([\d.]+) ?(\w*)", row.bound)
    assert match is not None, row
    return float(match[1]) * UNITS[match[2]]


def declared(row: Row) -> float:
    if row.declared in SERVER.settings:
        return float(SERVER.settings[row.declared].default * (bounds.MIB if row.declared.endswith("Mb") else 1))
    module, _, name = row.declared.rpartition(".")
    return float(getattr(import_module(f"aliquot.{module}"), name))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.declared)
def test_a_bound_is_what_the_code_says(row: Row) -> None:
    assert stated(row) == declared(row)


def test_every_bound_of_the_code_is_on_the_page() -> None:
    fixed = {f"model.bounds.{name}" for name in vars(bounds) if name.isupper()} - {
        "model.bounds.KIB",
        "model.bounds.MIB",
    }
    assert {row.declared for row in rows()} >= fixed | KEYS


def test_what_can_be_reached_is_bounded_in_one_place() -> None:
    """A bound that is declared elsewhere moves to model.bounds, and so onto the page, or has a reason to stay."""
    elsewhere = {
        name for name in constants() if A_BOUND.search(name.rpartition(".")[2]) and not name.startswith(THE_DEMO)
    }
    assert elsewhere == set().union(*NOT_REACHED.values())


def constants() -> Iterator[str]:
    """What modules declare for themselves, but for model.bounds."""
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        if module != "model.bounds":
            yield from (f"{module}.{name}" for name in declared_in(ast.parse(path.read_text())))


def declared_in(module: ast.Module) -> Iterator[str]:
    for statement in module.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names = (node for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
            yield from (node.id for node in names)


def test_a_port_has_the_same_limits_whoever_makes_it() -> None:
    assert limits(ServerConfig()) == USUAL
