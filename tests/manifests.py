"""Writes what follows from the dialects into deploy/, or, in a test, says whether it is up to date."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent

from click.testing import CliRunner

from aliquot.cli.policies import command
from aliquot.dialects import standard_dialects
from aliquot.dialects.node_reading import SERVES
from aliquot.model.records import OBSERVED

DEPLOY = Path(__file__).parent.parent / "deploy"
NATIVE = DEPLOY / "native"


def generated() -> Iterator[tuple[Path, str]]:
    """Each file, and the text that it should have."""
    yield DEPLOY / "policies.yaml", CliRunner().invoke(command).stdout
    agent = DEPLOY / "agent.yaml"
    yield agent, _with_list(agent, r"(?<=nodeSelectorTerms:\n)(?: +- matchExpressions.*\n)+", _node_labels())
    for path in [NATIVE / "kube-scheduler.yaml", *sorted(NATIVE.glob("older/kube-scheduler-*.yaml"))]:
        yield path, _with_list(path, r"(?<=  managedResources:\n)(?:  [- #].*\n)+", _as_yaml())
    volcano = NATIVE / "volcano-scheduler-configmap.yaml"
    names = "".join(f"          - {name}\n" for name in _managed())
    yield volcano, _with_list(volcano, r"(?<=extender\.managedResources:\n)(?: +- .*\n)+", names)
    policy, config_map = NATIVE / "older/scheduler-policy-config.json", NATIVE / "older/scheduler-policy-configmap.yaml"
    for path, spaces in (policy, 6), (config_map, 10):
        yield path, _with_list(path, r'(?<="managedResources": )\[.*?\n +\]', _as_json(spaces))
    rules = DEPLOY / "monitoring" / "prometheusrule.yaml"
    yield rules, rules.read_text().partition("spec:\n")[0] + "spec:\n" + _operators_groups()


def _operators_groups() -> str:
    """The groups of Prometheus' own rules."""
    _, _, groups = (DEPLOY / "monitoring" / "alerts.yaml").read_text().partition("groups:\n")
    return indent("groups:\n" + groups, "  ")


def _managed() -> dict[str, bool]:
    """Every resource, and whether kube-scheduler must ignore it because no node offers it. A scheduler that counts MIG
    instances by itself does not see those that pods of other dialects hold."""
    resources = (resource for dialect in standard_dialects().values() for resource in dialect.resources)
    return {resource.name: not resource.on_nodes for resource in resources}


def _node_labels() -> str:
    """A term for each label that gives a node an agent: ours, then those of the originals."""
    dialects = standard_dialects().values()
    ours = [(key, '"true"') for key in (*(f"{SERVES}{dialect.name}" for dialect in dialects), OBSERVED)]
    theirs = [(key, json.dumps(value)) for dialect in dialects for key, value in dialect.node_labels.items()]
    term = "            - matchExpressions: [{{key: {}, operator: In, values: [{}]}}]\n"
    return "".join(term.format(*label) for label in dict.fromkeys(ours + theirs))


def _as_yaml() -> str:
    managed = _managed().items()
    return "".join(f"  - name: {name}\n    ignoredByScheduler: {json.dumps(ignored)}\n" for name, ignored in managed)


def _as_json(indent: int) -> str:
    managed = [{"name": name, "ignoredByScheduler": ignored} for name, ignored in _managed().items()]
    return json.dumps(managed, indent=2).replace("\n", "\n" + " " * indent)


def _with_list(path: Path, pattern: str, text: str) -> str:
    found, count = re.subn(pattern, lambda _: text, path.read_text(), flags=re.DOTALL if "\\[" in pattern else 0)
    assert count == 1, f"{path} has {count} lists of managed resources"
    return found


if __name__ == "__main__":
    for written, content in generated():
        written.write_text(content)
        print(written.relative_to(Path.cwd()))
