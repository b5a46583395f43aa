"""Pods of every dialect as real containers: each sees exactly its cards, with all that the toolkit's spec has of them,
and its annotations say so. Those of hami, which shares a resource with nvidia, are in test_hami_node.py."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.e2e import driver_view, pods
from tests.rig import Rig
from tests.rig.aliquot import GPUSHARE, Aliquot
from tests.rig.cuda import Driver
from tests.rig.nvml import Gpu

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("all_dialects")]

ALL_BUT_HAMI = ("gpushare", "tencent", "elastic", "keti", "nvidia", "aliquot")


@dataclass(frozen=True)
class Scenario:
    """A pod, and what is expected of it besides its cards. `{index}`, `{minor}` and `{uuid}` in a text stand for those
    of its cards, joined by commas."""

    name: str
    limits: Mapping[str, str]
    cards: int = 1
    wishes: Mapping[str, str] = field(default_factory=dict)
    """Annotations of the user."""
    environment: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict)
    """Annotations when it runs."""
    beside: str = ""
    """The life of another container that asks for the same: `init`, `sidecar` or `main`."""

    def pod(self) -> dict[str, Any]:
        made = pods.pod(self.name, limits=self.limits)
        made["metadata"]["annotations"] = dict(self.wishes)
        (main,) = made["spec"]["containers"]
        other = {**main, "name": "other"}
        match self.beside:
            case "init":
                made["spec"]["initContainers"] = [{**other, "command": ["sh", "-c", driver_view.LOOK]}]
            case "sidecar":
                made["spec"]["initContainers"] = [{**other, "restartPolicy": "Always"}]
            case "main":
                made["spec"]["containers"].append(other)
        return driver_view.with_cuda(made)


def of_gpushare(units: str, **keys: str) -> dict[str, str]:
    return {f"ALIYUN_COM_GPU_MEM_{key}": value for key, value in {"POD": units, **keys}.items()}


def of_elastic(prefix: str, limits: Mapping[str, str], key: str, assumed: str, **more: Any) -> Scenario:
    asked = {f"{prefix}/{name}": amount for name, amount in limits.items()}
    return Scenario(prefix.replace(".", "-"), asked, keys={f"{key}main": "{index}", assumed: "true"}, **more)


PARTS = [
    Scenario(
        "gpushare-memory",
        {"aliyun.com/gpu-mem": "2"},
        environment=of_gpushare("2", IDX="{index}", CONTAINER="2", DEV="15"),
        keys=of_gpushare("2", IDX="{index}", ASSIGNED="true"),
    ),
    Scenario(
        "tencent",
        {"tencent.com/vcuda-core": "10", "tencent.com/vcuda-memory": "4"},
        keys={"tencent.com/predicate-gpu-idx-0": "{minor}", "tencent.com/gpu-assigned": "true"},
    ),
    of_elastic("elastic-gpu", {"gpu-percent": "5"}, "elastic-gpu/container-", "elastic-gpu/assume"),
    of_elastic(
        "elasticgpu.io", {"gpu-core": "5", "gpu-memory": "512"}, "elasticgpu.io/container-", "elasticgpu.io/assumed"
    ),
    of_elastic(
        "elasticgpu.com", {"gpu-core": "5", "gpu-memory": "512"}, "elasticgpu.io/container-", "elasticgpu.io/assumed"
    ),
    of_elastic("nano-gpu", {"gpu-percent": "5"}, "nano-gpu/container-", "nano-gpu/assume"),
    of_elastic("nano-gpu.io", {"gpu-core": "5", "gpu-memory": "1"}, "nano-gpu.io/gpu-", "nano-gpu.io/gpu"),
    Scenario(
        "native",
        {"aliquot.io/gpu": "1"},
        wishes={"aliquot.io/cores": "10", "aliquot.io/memory": "1Gi"},
        environment={"ALIQUOT_CORES": "10", "ALIQUOT_MEMORY_MIB": "1024"},
    ),
    Scenario(
        "native-on-two-cards",
        {"aliquot.io/gpu": "2"},
        cards=2,
        wishes={"aliquot.io/cores": "10", "aliquot.io/memory": "1Gi"},
        environment={"ALIQUOT_CORES": "10,10", "ALIQUOT_MEMORY_MIB": "1024,1024"},
    ),
    Scenario("init-elastic", {"elasticgpu.io/gpu-core": "5", "elasticgpu.io/gpu-memory": "256"}, beside="init"),
    Scenario("sidecar-elastic", {"elasticgpu.io/gpu-core": "5", "elasticgpu.io/gpu-memory": "256"}, beside="sidecar"),
]
WHOLE = [
    Scenario("nvidia", {"nvidia.com/gpu": "1"}),
    Scenario("keti", {"keti.com/mpsgpu": "1"}, keys={"UUID": "{uuid}"}),
]
TWO_WHOLE = [Scenario("nvidia-two", {"nvidia.com/gpu": "2"}, cards=2)]
ONE_CARD_EACH = [Scenario("nvidia-each", {"nvidia.com/gpu": "1"}, beside="main")]
WHOLE_BY_OTHERS = [
    Scenario(
        "gpushare-count",
        {"aliyun.com/gpu-count": "1"},
        environment=of_gpushare("15", IDX="{index}", CONTAINER="15", DEV="15"),
    ),
    Scenario("elastic-whole", {"elastic-gpu/gpu-percent": "100"}),
]


@pytest.fixture(scope="module")
def all_dialects(rig: Rig, started: Aliquot, driver: Driver) -> Iterator[Aliquot]:
    """The node serves them, and has the toolkit's spec of its cards."""
    pods.delete_all(rig)
    spec = driver.write_spec()
    started.serve(ALL_BUT_HAMI, "native")
    yield started
    pods.delete_all(rig)
    spec.unlink()
    started.serve(GPUSHARE, "gpushare")


@pytest.fixture(autouse=True)
def no_pods(rig: Rig, all_dialects: Aliquot) -> Iterator[None]:  # noqa: ARG001
    yield
    pods.delete_all(rig)


@pytest.mark.parametrize(
    "scenarios",
    [PARTS, WHOLE, TWO_WHOLE, ONE_CARD_EACH, WHOLE_BY_OTHERS],
    ids=["parts", "whole", "two whole", "one card each", "whole by others"],
)
def test_each_pod_sees_exactly_its_cards(rig: Rig, driver: Driver, scenarios: Sequence[Scenario]) -> None:
    _check(rig, driver, scenarios)


MODEL = "nvidia.com/gpu.model"
OTHER_MODEL = "NVIDIA A10"


@pytest.fixture
def two_models(rig: Rig, all_dialects: Aliquot) -> Iterator[dict[str, Gpu]]:
    """The node's cards by the name of their model, as pods write it."""
    before = rig.nvml.gpus
    rig.nvml.change(1, model=OTHER_MODEL)
    all_dialects.agent.stop()
    all_dialects.start_agent()
    yield dict(zip(("T4", "A10"), rig.nvml.gpus, strict=True))
    pods.delete_all(rig)
    all_dialects.agent.stop()
    rig.nvml.replace_gpus(before)
    all_dialects.start_agent()


def test_a_pod_of_any_dialect_that_asks_for_a_model_gets_a_card_of_it(rig: Rig, two_models: dict[str, Gpu]) -> None:
    on_one_card = [scenario for scenario in PARTS if scenario.cards == 1]
    for asking in (on_one_card, on_one_card), (WHOLE[:1], WHOLE[1:]), (WHOLE[1:], WHOLE[:1]):
        wanted = {
            f"{scenario.name}-{model.lower()}": (scenario, model)
            for model, scenarios in zip(two_models, asking, strict=True)
            for scenario in scenarios
        }
        pods.create(rig, [_of_model(name, *each) for name, each in wanted.items()])
        pods.wait_running(rig, wanted)
        for name, (_, model) in wanted.items():
            card = two_models[model]
            assert _cards(rig, pods.get(rig, name), "main") == [card], name
            assert pods.look_inside(rig, name).environment["NVIDIA_VISIBLE_DEVICES"] == card.uuid, name
        pods.delete_all(rig)


def _of_model(name: str, scenario: Scenario, model: str) -> dict[str, Any]:
    pod = scenario.pod()
    pod["metadata"]["name"] = name
    pod["metadata"]["annotations"][MODEL] = model
    return pod


def test_fifty_equal_pods_at_once_each_see_the_card_of_their_own_annotation(rig: Rig) -> None:
    """4 % each: 25 of them fill a card."""
    equal = [pods.pod(f"equal-{number}", limits={"elastic-gpu/gpu-percent": "4"}) for number in range(50)]
    for pod in equal:
        pod["metadata"]["labels"] = {"app": "equal"}
        pod["spec"]["containers"][0]["command"] = ["sh", "-c", f"{pods.LOOK}; trap exit TERM; sleep 3600 & wait"]
    pods.create(rig, equal)
    pods.wait_running(rig, [pod["metadata"]["name"] for pod in equal], seconds=180)
    seen = {name: pods.read_look(told) for name, told in pods.told_by_logs(rig, "app=equal").items()}
    listed = json.loads(rig.kubectl("get", "pods", "--selector=app=equal", "--output=json"))["items"]
    placed = {pod["metadata"]["name"]: _cards(rig, pod, "main") for pod in listed}
    for name, (card,) in placed.items():
        assert seen[name].environment["NVIDIA_VISIBLE_DEVICES"] == card.uuid
        assert _gpus_in(seen[name].devices) == {f"/dev/nvidia{card.minor}": (195, card.minor)}
        assert _annotations(listed, name)["elastic-gpu/container-main"] == str(_index(rig, card))
    assert set(Counter(card.uuid for (card,) in placed.values()).values()) == {25}


def _check(rig: Rig, driver: Driver, scenarios: Sequence[Scenario]) -> None:
    """Run all pods at once, and look into each of their containers."""
    pods.create(rig, [scenario.pod() for scenario in scenarios])
    pods.wait_running(rig, [scenario.name for scenario in scenarios])
    for scenario in scenarios:
        running = pods.get(rig, scenario.name)
        for container in ("main", *(["other"] if scenario.beside else [])):
            cards = _cards(rig, running, container)
            assert len(cards) == scenario.cards, scenario.name
            if (container, scenario.beside) == ("other", "init"):
                seen = driver_view.read(rig.kubectl("logs", scenario.name, "--container=other"), driver)
            else:
                seen = driver_view.look(rig, driver, scenario.name, container)
            assert seen.driver == driver_view.of_toolkit(driver, cards), (scenario.name, container)
            variables = {"NVIDIA_VISIBLE_DEVICES": "{uuid}", **scenario.environment}
            told = {name: seen.environment.get(name) for name in variables}
            assert told == _filled(rig, variables, cards), (scenario.name, container)
        keys = _filled(rig, scenario.keys, _cards(rig, running, "main"))
        annotations = running["metadata"]["annotations"]
        assert {key: annotations.get(key) for key in keys} == keys, scenario.name


def _filled(rig: Rig, texts: Mapping[str, str], cards: Sequence[Gpu]) -> dict[str, str]:
    places = {
        "{index}": ",".join(str(_index(rig, card)) for card in cards),
        "{minor}": ",".join(str(card.minor) for card in cards),
        "{uuid}": ",".join(card.uuid for card in cards),
    }
    filled = dict(texts)
    for place, value in places.items():
        filled = {name: text.replace(place, value) for name, text in filled.items()}
    return filled


def _cards(rig: Rig, pod: Mapping[str, Any], container: str) -> list[Gpu]:
    """The cards of the pod's placement."""
    placement = json.loads(pod["metadata"]["annotations"]["aliquot.io/placement"])
    by_uuid = {gpu.uuid: gpu for gpu in rig.nvml.gpus}
    return [by_uuid[part["uuid"]] for part in placement["containers"][container]]


def _index(rig: Rig, card: Gpu) -> int:
    return rig.nvml.gpus.index(card)


def _gpus_in(devices: Mapping[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    return {path: numbers for path, numbers in devices.items() if path not in driver_view.CONTROL}


def _annotations(listed: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, str]:
    (found,) = (pod["metadata"]["annotations"] for pod in listed if pod["metadata"]["name"] == name)
    annotations: Mapping[str, str] = found
    return annotations
