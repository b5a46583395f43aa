"""Pods without GPU: every node has room for them as far as cards go, and policies may have an opinion."""

import pytest

from aliquot.engine import Fleet, PolicySettings, judge
from aliquot.engine.policies import NODE_POLICIES
from aliquot.engine.workload import PodShape, Workload
from aliquot.model import Host, NodeGpus, Placement, Request
from tests.factories import make_cards


def fleet() -> Fleet:
    made = Fleet()
    for name, cpu in (("a", 4000), ("b", 64_000), ("c", 8000)):
        made.put(make_cards(name) if name != "c" else NodeGpus(name, (), 1), {})
        made.set_host(name, Host(cpu, 64_000), Host(64_000, 64_000))
    made.remove("b")
    made.put(make_cards("b"), {})
    made.set_host("b", Host(64_000, 64_000), Host(64_000, 64_000))
    return made


REQUEST = Request("u", "n/web", "", (), host=Host(3500, 100))


@pytest.mark.parametrize("policy", sorted(NODE_POLICIES))
def test_every_policy_takes_them_and_gives_them_no_card(policy: str) -> None:
    judgement = judge(fleet(), REQUEST, "binpack", policy)
    assert set(judgement.scores(["a", "b", "c", "unknown"])) == {"a", "b", "c"}
    best = judgement.best()
    assert best is not None
    assert judgement.placement(best) == Placement(best, "", {})
    assert judgement.refusals(["a", "b", "c"]) == {}


def test_a_policy_without_opinion_takes_the_first_node() -> None:
    assert judge(fleet(), REQUEST, "binpack", "binpack").best() == "a"


@pytest.mark.parametrize("policy", ["fgd", "lookahead"])
def test_others_keep_the_cpu_that_idle_cards_need(policy: str) -> None:
    settings = PolicySettings(workload=Workload((PodShape(1, 1000, 1, cpu=2000),)))
    assert judge(fleet(), REQUEST, "fgd", policy, settings).best() != "a"


def test_best_fit_takes_the_node_with_the_least_left() -> None:
    assert judge(fleet(), REQUEST, "bestfit", "bestfit").best() == "c", "8 cores less, and no card"
