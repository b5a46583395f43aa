"""Which pods a disruption budget protects, and how many that are to end are too many: kube-scheduler's rule."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from aliquot.control.inputs.disruption_budgets import count_violations
from aliquot.kube import PodDisruptionBudget
from aliquot.kube.selectors import LabelSelector
from aliquot.model import Pod

WEB = {"matchLabels": {"app": "web"}}


def budget(name: str, selector: object, allowed: int = 0, namespace: str = "default", **status: Any) -> object:
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": allowed, **status},
    }


def pod(name: str, namespace: str = "default", **labels: str) -> Pod:
    return msgspec.convert({"metadata": {"name": name, "namespace": namespace, "labels": labels}}, Pod)


def violations(pods: Sequence[Pod], budgets: Sequence[object]) -> int:
    known = msgspec.convert(budgets, list[PodDisruptionBudget])
    return count_violations(pods, lambda namespace: [b for b in known if b.metadata.namespace == namespace])


def web(count: int) -> list[Pod]:
    return [pod(f"web-{number}", app="web") for number in range(count)]


@pytest.mark.parametrize(
    ("pods", "budgets", "expected"),
    [
        pytest.param(web(2), [], 0, id="no budget"),
        pytest.param(web(1), [budget("b", WEB)], 1, id="none may end"),
        pytest.param(web(3), [budget("b", WEB, 2)], 1, id="two of three may end"),
        pytest.param(web(2), [budget("b", WEB, 2)], 0, id="all may end"),
        pytest.param(web(1), [budget("b", WEB, -1)], 1, id="already below"),
        pytest.param([pod("p", app="db")], [budget("b", WEB)], 0, id="of another app"),
        pytest.param([pod("p", "team", app="web")], [budget("b", WEB)], 0, id="of another namespace"),
        pytest.param(
            [pod("p", "team", app="web"), *web(1)],
            [budget("b", WEB, 1), budget("b", WEB, 1, "team")],
            0,
            id="two namespaces have each their budget of one name",
        ),
        pytest.param(web(1), [budget("b", None)], 0, id="without a selector"),
        pytest.param(web(1), [budget("b", {})], 0, id="an empty selector protects nothing"),
        pytest.param(
            [pod("p")],
            [budget("b", {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]})],
            0,
            id="a pod without labels is never protected",
        ),
        pytest.param(
            web(2),
            [budget("b", WEB, disruptedPods={"web-0": "2026-05-04T12:00:00Z"})],
            1,
            id="one whose end was granted is no violation",
        ),
        pytest.param(
            web(2),
            [budget("b", WEB, 1, disruptedPods={"web-0": "2026-05-04T12:00:00Z"})],
            0,
            id="one whose end was granted uses nothing up",
        ),
        pytest.param(web(1), [budget("a", WEB, 1), budget("b", WEB)], 1, id="the second budget has nothing left"),
        pytest.param(web(1), [budget("a", WEB), budget("b", WEB)], 1, id="a pod of two budgets is one violation"),
        pytest.param(
            [pod("first", app="web", tier="front"), pod("second", tier="front")],
            [budget("a", WEB), budget("b", {"matchLabels": {"tier": "front"}}, 1)],
            1,
            id="who violates one budget uses nothing of the next",
        ),
        pytest.param(
            [pod("first", app="web", tier="front"), pod("second", tier="front")],
            [budget("a", WEB, 1), budget("b", {"matchLabels": {"tier": "front"}}, 1)],
            1,
            id="who violates none uses one of each",
        ),
    ],
)
def test_violations_are_counted_as_kube_scheduler_counts_them(
    pods: Sequence[Pod], budgets: Sequence[object], expected: int
) -> None:
    assert violations(pods, budgets) == expected


def test_a_budget_that_nobody_has_counted_yet_allows_nothing() -> None:
    assert violations(web(1), [{"metadata": {"name": "b", "namespace": "default"}, "spec": {"selector": WEB}}]) == 1


def expression(key: str, operator: str, *values: str) -> dict[str, object]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("expressions", "selected"),
    [
        pytest.param([expression("app", "In", "db", "web")], True, id="in"),
        pytest.param([expression("app", "In", "db")], False, id="not in"),
        pytest.param([expression("tier", "In", "front")], False, id="in, without the label"),
        pytest.param([expression("app", "NotIn", "db")], True, id="notin"),
        pytest.param([expression("app", "NotIn", "web")], False, id="notin, but it is"),
        pytest.param([expression("tier", "NotIn", "front")], True, id="notin, without the label"),
        pytest.param([expression("app", "Exists")], True, id="exists"),
        pytest.param([expression("tier", "Exists")], False, id="exists not"),
        pytest.param([expression("tier", "DoesNotExist")], True, id="does not exist"),
        pytest.param([expression("app", "DoesNotExist")], False, id="does not exist, but it does"),
        pytest.param([expression("app", "Exists"), expression("tier", "Exists")], False, id="all must hold"),
        pytest.param([expression("app", "Gt", "1")], False, id="an operator that there is not"),
        pytest.param([expression("app", "In")], False, id="in nothing"),
        pytest.param([expression("app", "NotIn")], False, id="notin nothing is no selector"),
        pytest.param([expression("app", "Exists", "web")], False, id="exists with values is no selector"),
        pytest.param([expression("tier", "DoesNotExist", "a")], False, id="does not exist with values is no selector"),
    ],
)
def test_expressions_select_as_in_kubernetes(expressions: Sequence[object], selected: bool) -> None:
    selector = msgspec.convert({"matchExpressions": expressions}, LabelSelector)
    assert selector.selects({"app": "web"}) is selected


def test_labels_and_expressions_must_both_hold() -> None:
    selector = msgspec.convert({**WEB, "matchExpressions": [expression("tier", "Exists")]}, LabelSelector)
    assert not selector.selects({"app": "web"})
    assert not selector.selects({"tier": "front"})
    assert selector.selects({"app": "web", "tier": "front"})
