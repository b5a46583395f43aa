"""Costs are kept from decision to decision; they are always what they would be if they were worked out anew."""

from dataclasses import replace

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from aliquot.engine import Fleet, PolicySettings, judge
from aliquot.engine.workload import PodShape, Workload
from aliquot.model import Charge, Gpu, Host, Memory, NodeGpus, Part, Request
from tests.factories import make_gpu
from tests.states import pod

_SHAPES = (
    PodShape(1, 1000, 20, cpu=4000, memory=9000),
    PodShape(1, 300, 30, cpu=1000),
    PodShape(2, 1000, 2, cpu=9000),
    PodShape(4, 1000, 1, ("Tesla T4",), cpu=8000),
)
_HOSTS = st.builds(Host, st.integers(0, 16_000), st.integers(0, 64_000))
_REQUESTS = st.builds(
    lambda part, host: replace(pod(part), host=host),
    st.sampled_from(
        (Part(whole=True), Part(2, whole=True), Part(memory=Memory(300)), Part(memory=Memory(500), cores=40))
    ),
    st.sampled_from((Host(), Host(1000, 500), Host(4000, 8000))),
)


class KeptCosts(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.fleet = Fleet()
        self.used: dict[str, dict[str, Charge]] = {}
        self.cards: dict[str, NodeGpus] = {}
        self.settings = PolicySettings(workload=Workload(_SHAPES))
        self.asked: list[Request] = []

    @rule(
        number=st.integers(0, 5),
        count=st.sampled_from((1, 2, 4, 4, 10)),
        model=st.sampled_from(("Tesla T4", "A100")),
        host=_HOSTS,
    )
    def node_comes(self, number: int, count: int, model: str, host: Host) -> None:
        name = f"n{number}"
        gpus: tuple[Gpu, ...] = tuple(make_gpu(row, name, mib=1000, model=model) for row in range(count))
        self.cards[name], self.used[name] = NodeGpus(name, gpus, 1), {}
        self.fleet.put(self.cards[name], {})
        self.fleet.set_host(name, host)

    @rule(data=st.data())
    def node_goes(self, data: st.DataObject) -> None:
        if self.cards:
            name = data.draw(st.sampled_from(sorted(self.cards)))
            del self.cards[name], self.used[name]
            self.fleet.remove(name)

    @rule(data=st.data(), host=_HOSTS)
    def host_changes(self, data: st.DataObject, host: Host) -> None:
        if self.cards:
            self.fleet.set_host(data.draw(st.sampled_from(sorted(self.cards))), host, Host(16_000, 64_000))

    @rule(data=st.data(), mib=st.integers(0, 1000))
    def use_changes(self, data: st.DataObject, mib: int) -> None:
        if self.cards:
            name = data.draw(st.sampled_from(sorted(self.cards)))
            gpu = data.draw(st.sampled_from(self.cards[name].gpus))
            self.used[name] = {**self.used[name], gpu.uuid: Charge(mib // 10, mib)}
            self.fleet.put(self.cards[name], self.used[name])

    @rule(request=_REQUESTS)
    def asks(self, request: Request) -> None:
        self.asked = [*self.asked, request][-4:]

    @invariant()
    def kept_costs_are_right(self) -> None:
        if not self.cards:
            return
        for request in self.asked:
            kept = judge(self.fleet, request, "lookahead", "lookahead", self.settings)
            anew = judge(self.fleet, request, "lookahead", "lookahead", PolicySettings(workload=Workload(_SHAPES)))
            columns = np.arange(self.fleet.width)
            np.testing.assert_array_equal(kept.scores_at(columns), anew.scores_at(columns))
            assert kept.best() == anew.best()
            node = kept.best()
            assert node is None or kept.placement(node) == anew.placement(node)
            assert kept.why() == anew.why()


TestKeptCosts = KeptCosts.TestCase
TestKeptCosts.settings = settings(max_examples=15, stateful_step_count=20)
