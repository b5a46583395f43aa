"""The agent's metrics as Prometheus reads them."""

import re
from collections.abc import Mapping, Sequence

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from aliquot.agent.card_health import CardState
from aliquot.agent.devices import CardError, Usage
from aliquot.agent.metrics import METRICS, AgentMetrics, Exporter
from aliquot.agent.node_pods import NodePod
from aliquot.agent.nvidia.exporters import EXPORTERS
from aliquot.agent.usage import Collected, ContainerUse, Part
from aliquot.agent.usage.shares import Share
from aliquot.config.agent_tree import AGENT, AgentConfig
from tests.factories import make_gpu, pod_manifest

MIB = 2**20
ODD = 'a "card" \\ of\nours'
BUSY = Usage(
    cores=0.73,
    memory_bytes=8 * MIB,
    celsius=61,
    watts=250.125,
    joules=1500.5,
    core_hertz=1_410_000_000,
    memory_hertz=1_215_000_000,
    corrected_errors=3,
    uncorrected_errors=1,
    nvlinks=2,
    nvlink_sent_bytes=1024,
    nvlink_received_bytes=2048,
    nvlink_errors=5,
)
FIRST, SECOND = "GPU-n1-0", "GPU-n1-1"


def make_pod(name: str) -> NodePod:
    return msgspec.convert(pod_manifest(name), NodePod)


def use(name: str, uuid: str, share: Share, part: Part | None = None, joules: float | None = None) -> ContainerUse:
    return ContainerUse(make_pod(name), "main", uuid, share, part, joules)


def shown(uses: Sequence[ContainerUse] = (), exporters: Sequence[Exporter] = ()) -> AgentMetrics:
    metrics = AgentMetrics("n1", exporters)
    metrics.cards = [CardState(make_gpu(0, model=ODD), fault="lost"), CardState(make_gpu(1), "", "XID 74", BUSY)]
    metrics.follow(lambda: Collected(12.5, {SECOND: BUSY}, uses, knows_owners=True))
    return metrics


def samples_of(metrics: AgentMetrics) -> Mapping[str, list[tuple[dict[str, str], float]]]:
    families = list(text_string_to_metric_families(metrics.text()))
    return {family.name: [(s.labels, s.value) for s in family.samples] for family in families}


def test_prometheus_can_parse_the_text() -> None:
    metrics = shown()
    for code in (79, 79, 0, 1000, 2**40):
        metrics.count_xid(CardError(FIRST, code))
    families = list(text_string_to_metric_families(metrics.text()))
    assert {(family.name, family.type, family.documentation) for family in families} == {
        (metric.name.removesuffix("_total"), metric.kind, metric.help) for metric in METRICS
    }
    samples = samples_of(metrics)
    first, second = (
        {"uuid": FIRST, "index": "0", "model": ODD},
        {"uuid": SECOND, "index": "1", "model": "Tesla T4"},
    )
    assert samples["aliquot_card_healthy"] == [(first, 0), (second, 1)]
    assert samples["aliquot_card_cordoned"] == [(first, 0), (second, 1)]
    assert [value for _, value in samples["aliquot_card_memory_bytes"]] == [make_gpu(0).mib * MIB] * 2
    of_second = {
        "cores_busy_ratio": 0.73,
        "memory_used_bytes": 8 * MIB,
        "temperature_celsius": 61,
        "power_watts": 250.125,
        "energy_joules": 1500.5,
        "core_clock_hertz": 1.41e9,
        "memory_clock_hertz": 1.215e9,
        "nvlinks": 2,
        "nvlink_sent_bytes": 1024,
        "nvlink_received_bytes": 2048,
        "nvlink_errors": 5,
    }
    for name, value in of_second.items():
        assert samples[f"aliquot_card_{name}"] == [(second, value)], name
    ecc = samples["aliquot_card_ecc_errors"]
    assert ecc == [({**second, "kind": "corrected"}, 3), ({**second, "kind": "uncorrected"}, 1)]
    errors = {"79": 2, "other": 3}
    assert samples["aliquot_xid_errors"] == [({"uuid": FIRST, "xid": xid}, n) for xid, n in errors.items()]
    assert samples["aliquot_collection_timestamp_seconds"] == [({}, 12.5)]
    assert samples["aliquot_process_owners_known"] == [({}, 1)]


def test_containers_are_told_apart_and_an_estimate_says_so() -> None:
    uses = [
        use("a", SECOND, Share(2 * MIB, 0.25), joules=7.5),
        use("b", SECOND, Share(5 * MIB, 0.5, estimated=True)),
        use("c", SECOND, Share(0, None)),
    ]
    samples = samples_of(shown(uses))
    a, b, c = ({"namespace": "default", "pod": name, "container": "main", "uuid": SECOND} for name in "abc")
    assert samples["aliquot_container_memory_used_bytes"] == [(a, 2 * MIB), (b, 5 * MIB), (c, 0)]
    assert samples["aliquot_container_cores_busy_ratio"] == [
        ({**a, "method": "measured"}, 0.25),
        ({**b, "method": "estimated"}, 0.5),
    ]
    assert samples["aliquot_container_energy_joules"] == [(a, 7.5)]


def test_nothing_is_shown_of_an_agent_that_starts_again() -> None:
    metrics = shown([use("a", SECOND, Share(1, 0.5))])
    metrics.forget()
    assert not any(samples_of(metrics).values())


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_names_follow_the_conventions_of_prometheus(metric: object) -> None:
    """What promtool's linter asks for: base units, and `_total` for counters and for nothing else."""
    name, kind = getattr(metric, "name", ""), getattr(metric, "kind", "")
    assert re.fullmatch(r"aliquot_[a-z]+(_[a-z]+)*", name)
    assert name.endswith("_total") == (kind == "counter")
    wrong = r"_(percent|mib|gib|kilobytes|milliwatts|watthours|mhz|megahertz|milliseconds|fahrenheit|count|info)(_|$)"
    assert not re.search(wrong, name)


# -- the names of other exporters

PART = Part("uid", "main", SECOND, cores=50, mib=4)


def exported(name: str, uses: Sequence[ContainerUse]) -> Mapping[str, list[tuple[dict[str, str], float]]]:
    metrics = shown(uses, [EXPORTERS[name]])
    metrics.count_xid(CardError(SECOND, 74))
    return samples_of(metrics)


def test_gpu_manager() -> None:
    samples = exported("gpu-manager", [use("a", SECOND, Share(2 * MIB, 0.25), PART)])
    labels = {"pod_name": "a", "namespace": "default", "node": "n1", "container_name": "main"}
    for name, label, value in (("utilization", "gpu", 25), ("memory_total", "gpu_memory", 2)):
        found = samples[f"container_gpu_{name}"]
        assert found == [({**labels, label: "total"}, value), ({**labels, label: "gpu1"}, value)]
    assert samples["container_request_gpu_utilization"] == [({**labels, "req_of_gpu": "total"}, 0.5)]
    assert samples["container_request_gpu_memory"] == [({**labels, "req_of_gpu_memory": "total"}, 4)]


def test_elastic_gpu_exporter() -> None:
    samples = exported("elastic-gpu-exporter", [use("a", SECOND, Share(2 * MIB, 0.25), PART)])
    second = {"node": "n1", "card": "1"}
    assert samples["gpu_core_usage"] == [({"node": "n1", "card": "0"}, 0), (second, 25)]
    assert samples["gpu_core_utilization"] == [(second, 73)]
    assert samples["gpu_mem_usage"] == [(second, 8)]
    assert samples["gpu_mem_utilization"] == [(second, round(100 * 8 / 15360, 3))]
    pod = {"node": "n1", "namespace": "default", "pod": "a"}
    values = {"core_usage": 25, "core_utilization": 50, "mem_usage": 2, "mem_utilization": 50}
    for name, value in values.items():
        assert samples[f"pod_{name}"] == [(pod, value)]
        assert samples[f"container_{name}"] == [({**pod, "container": "main"}, value)]
    assert samples["pod_core_occupy_node"] == [(pod, 12.5)]
    assert samples["pod_mem_occupy_node"] == [(pod, round(100 * 2 / 30720, 3))]
    assert samples["pod_mem_request"] == [(pod, 4)]


def test_hami() -> None:
    samples = exported("hami", [use("a", SECOND, Share(2 * MIB, 0.25), PART)])
    card = {"device_index": "1", "device_type": "NVIDIA-Tesla T4", "device_uuid": SECOND}
    assert samples["hami_host_gpu_memory_used_bytes"] == [(card, 8 * MIB)]
    assert samples["hami_host_gpu_utilization_ratio"] == [(card, 73)]
    of_a = {"namespace": "default", "pod": "a", "container": "main", "vdevice_index": "0", "device_uuid": SECOND}
    assert samples["hami_vgpu_memory_used_bytes"] == [(of_a, 2 * MIB)]
    assert samples["hami_vgpu_memory_limit_bytes"] == [(of_a, 4 * MIB)]
    assert samples["hami_container_device_utilization_ratio"] == [(of_a, 25)]


def test_dcgm_names_the_pod_of_a_card_and_every_pod_of_a_shared_one() -> None:
    card = {"gpu": "1", "UUID": SECOND, "device": "nvidia4", "modelName": "Tesla T4", "Hostname": "n1"}
    a, b = ({**card, "container": "main", "namespace": "default", "pod": name} for name in "ab")
    alone = exported("dcgm", [use("a", SECOND, Share(2 * MIB, 0.25), PART)])
    assert alone["DCGM_FI_DEV_GPU_UTIL"] == [(a, 73)]
    assert alone["DCGM_FI_DEV_FB_USED"] == [(a, 8)]
    uses = [use("a", SECOND, Share(2 * MIB, 0.25)), use("b", SECOND, Share(3 * MIB, None))]
    shared = exported("dcgm", uses)
    assert shared["DCGM_FI_DEV_GPU_UTIL"] == [(card, 73), (a, 25)]
    assert shared["DCGM_FI_DEV_FB_USED"] == [(card, 8), (a, 2), (b, 3)]
    values = {
        "FB_FREE": 15352,
        "GPU_TEMP": 61,
        "POWER_USAGE": 250.125,
        "SM_CLOCK": 1410,
        "MEM_CLOCK": 1215,
    }
    for name, value in values.items():
        assert shared[f"DCGM_FI_DEV_{name}"] == [(card, value)], name
    lost = {"gpu": "0", "UUID": FIRST, "device": "nvidia3", "modelName": ODD, "Hostname": "n1"}
    assert shared["DCGM_FI_DEV_XID_ERRORS"] == [(lost, 0), (card, 74)]


def test_every_exporter_that_a_person_can_choose_is_there() -> None:
    text = shown([use("a", SECOND, Share(1, 0.5), PART)], list(EXPORTERS.values())).text()
    names = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
    assert len(names) == len(set(names)), "no two exporters have one name"


def test_the_configuration_names_every_exporter() -> None:
    (setting,) = (setting for setting in AGENT.settings.values() if setting.path == "exporters")
    assert all(name in setting.allowed for name in EXPORTERS)
    assert msgspec.convert({"nodeName": "n1", "exporters": list(EXPORTERS)}, AgentConfig).exporters == tuple(EXPORTERS)
