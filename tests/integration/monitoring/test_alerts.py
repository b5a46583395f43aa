"""Every alert has a section in the runbook, fires when it should, and not otherwise: promtool says so."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from aliquot.reports.causes import Cause
from tests.integration.monitoring.prometheus import promtool

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "deploy" / "monitoring"
CASES = Path(__file__).parent / "alert_cases.yaml"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
]
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()


def test_promtool_accepts_the_rules(programs: dict[str, Path]) -> None:
    promtool(programs, "check", "rules", MONITORING / "alerts.yaml")


def test_alerts_fire_in_their_cases(programs: dict[str, Path]) -> None:
    promtool(programs, "test", "rules", CASES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not(rule: dict[str, Any]) -> None:
    cases = [case for group in yaml.safe_load(CASES.read_text())["tests"] for case in group["alert_rule_test"]]
    fires = [bool(case.get("exp_alerts")) for case in cases if case["alertname"] == rule["alert"]]
    assert {*fires} == {True, False}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_alert_links_a_section_of_the_runbook(rule: dict[str, Any]) -> None:
    assert rule["annotations"]["runbook"] == f"docs/runbook.md#{rule['alert'].lower()}"
    (section,) = re.findall(rf"^## {rule['alert']}\n(.*?)(?=^## |\Z)", RUNBOOK, re.MULTILINE | re.DOTALL)
    for part in ("**Symptom.**", "**Check.**", "**Remedy.**"):
        assert part in section


def test_the_runbook_has_no_section_without_an_alert() -> None:
    sections = re.findall(r"^## (Aliquot\w+)$", RUNBOOK, re.MULTILINE)
    assert sections == [rule["alert"] for rule in RULES]


def test_the_operator_s_rules_are_the_same() -> None:
    (operators,) = yaml.safe_load_all((MONITORING / "prometheusrule.yaml").read_text())
    assert (operators["apiVersion"], operators["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert operators["spec"] == yaml.safe_load((MONITORING / "alerts.yaml").read_text())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_every_alert_asks_for_metrics_that_there_are(rule: dict[str, Any]) -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    names = set(re.findall(r"aliquot_\w+", rule["expr"]))
    assert names
    assert names <= set(re.findall(r"^\| `(aliquot_\w+)` \|", page, re.MULTILINE))


def test_alerts_name_reasons_that_a_pod_may_wait_for() -> None:
    named = {
        name
        for rule in RULES
        for found in re.findall(r'reason[!=]~?"(.*?)"', rule["expr"])
        for name in found.split("|")
    }
    assert named
    assert named <= {cause.value for cause in Cause}
