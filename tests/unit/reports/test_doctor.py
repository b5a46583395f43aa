"""What `doctor` finds, and that each finding has a remedy."""

from typing import Any

import msgspec
import pytest

from aliquot.dialects import standard_dialects
from aliquot.dialects.node_reading import SERVES
from aliquot.kube.resources import (
    ConfigMap,
    Event,
    InvolvedObject,
    Lease,
    LeaseSpec,
    PolicyBinding,
    PolicyBindingSpec,
)
from aliquot.model.admission import CARDS_GUARDED, FENCING, FORGERY
from aliquot.model.kubernetes import Metadata
from aliquot.model.records import PLACEMENT, write_placement
from aliquot.reports.doctor import DoctorReport, Facts, examine
from aliquot.reports.objects import ClusterObjects, Missing
from aliquot.reports.scheduler_config import scheduler_configs
from aliquot.reports.view import view_of
from tests.factories import make_cards, make_node, make_placement, make_pod

NOW = 1_770_000_000.0
RENEWED = "2026-02-02T02:40:00Z"


def lease(name: str, holder: str = "server-1", renewed: str = RENEWED) -> Lease:
    spec = LeaseSpec(holder_identity=holder, lease_duration_seconds=15, renew_time=renewed)
    return Lease(metadata=Metadata(name=name), spec=spec)


def policy(name: str, *actions: str) -> PolicyBinding:
    return PolicyBinding(metadata=Metadata(name=name), spec=PolicyBindingSpec(list(actions)))


GOOD = Facts(
    server_lease=lease("aliquot-server"),
    schedulers=scheduler_configs(
        [
            ConfigMap(
                metadata=Metadata(name="scheduler", namespace="kube-system"),
                data={
                    "config.yaml": "{kind: KubeSchedulerConfiguration, extenders: [{urlPrefix: 'https://a/b', "
                    "filterVerb: filter, nodeCacheCapable: true, managedResources: [{name: aliyun.com/gpu-mem}]}]}"
                },
            )
        ],
        standard_dialects(),
    ),
    policies=[policy(FENCING, "Deny"), policy(FORGERY, "Deny")],
)


def doctor(facts: Facts = GOOD, **objects: Any) -> DoctorReport:
    fields = {"nodes": [make_node("gpu-1", make_cards("gpu-1"))], **objects}
    return examine(view_of(ClusterObjects(NOW, **fields)), facts)


def found(report: DoctorReport, check: str) -> tuple[str, str]:
    """Level and text of the first finding of a check; whatever is not in order has a remedy."""
    assert all(finding.remedy for finding in report.findings if finding.level != "ok")
    finding = next(finding for finding in report.findings if finding.check == check)
    return finding.level, finding.text


def changed(**fields: Any) -> Facts:
    return Facts(**{name: getattr(GOOD, name) for name in Facts.__dataclass_fields__} | fields)


def test_a_good_installation_has_no_finding() -> None:
    report = doctor()
    assert report.worst == "ok"
    assert len({finding.check for finding in report.findings}) == len(report.findings) == 11


def test_no_server() -> None:
    assert found(doctor(changed(server_lease=None)), "server")[0] == "error"


def test_a_silent_server() -> None:
    late = lease("aliquot-server", renewed="2026-02-02T02:35:00Z")
    assert found(doctor(changed(server_lease=late)), "server") == (
        "error",
        "the server server-1 has been silent for 300 s",
    )


def test_pods_that_nobody_placed() -> None:
    report = doctor(pods=[make_pod("lost", 3, node="gpu-1")])
    level, text = found(report, "scheduler")
    assert (level, text) == (
        "error",
        "bound without a placement: default/lost; their scheduler does not ask Aliquot",
    )


@pytest.mark.parametrize(
    ("config", "level", "words"),
    [
        ("kind: KubeSchedulerConfiguration", "warning", "no extender"),
        ("{kind: KubeSchedulerConfiguration, extenders: [{urlPrefix: http://x}]}", "warning", "no extender manages"),
        (
            "{kind: KubeSchedulerConfiguration, extenders: [{urlPrefix: u, filterVerb: f, nodeCacheCapable: true, "
            "ignorable: true, managedResources: [{name: aliquot.io/gpu}]}]}",
            "error",
            "ignorable",
        ),
        (
            "{kind: KubeSchedulerConfiguration, extenders: [{urlPrefix: u, filterVerb: f, "
            "managedResources: [{name: aliquot.io/gpu}]}]}",
            "warning",
            "whole Node objects",
        ),
        ("{kind: KubeSchedulerConfiguration, extenders: 7}", "warning", "no extender"),
    ],
)
def test_a_scheduler_that_is_configured_badly(config: str, level: str, words: str) -> None:
    maps = [ConfigMap(metadata=Metadata(name="s", namespace="kube-system"), data={"config.yaml": config})]
    report = doctor(changed(schedulers=scheduler_configs(maps, standard_dialects())))
    told = found(report, "scheduler")
    assert told[0] == level
    assert words in told[1]


def test_a_finding_about_an_extender_does_not_quote_its_password() -> None:
    config = "{kind: KubeSchedulerConfiguration, extenders: [{urlPrefix: 'https://me:hunter2@aliquot'}]}"
    maps = [ConfigMap(metadata=Metadata(name="s", namespace="kube-system"), data={"config.yaml": config})]
    (found,) = scheduler_configs(maps, standard_dialects())
    assert "https://(removed)@aliquot" in str(found.findings)
    assert "hunter2" not in str(found.findings)


def bound_by(instance: str, second: int) -> Event:
    return Event(
        metadata=Metadata(name=f"e{second}"),
        reason="Scheduled",
        reporting_component="default-scheduler",
        reporting_instance=instance,
        last_timestamp=f"2026-02-02T02:{second // 60:02}:{second % 60:02}Z",
    )


def test_two_schedulers_of_one_name() -> None:
    events = [bound_by("a", 3), bound_by("a", 1), bound_by("b", 2)]
    level, text = found(doctor(events=events), "two schedulers")
    assert (level, text) == ("error", "two schedulers are called default-scheduler and bind at the same time: a, b")


@pytest.mark.parametrize("seconds", [(60, 120), (1, 2), (60, 120, 180), (60, 120, 180, 240)])
def test_a_new_leader_is_no_second_scheduler_even_if_the_old_one_leads_again(seconds: tuple[int, ...]) -> None:
    events = [bound_by("ab"[turn % 2], at) for turn, at in enumerate(seconds)]
    assert found(doctor(events=events), "two schedulers")[0] == "ok"


def test_a_right_that_is_missing() -> None:
    report = doctor(changed(withheld=["may not patch pods: no requeue"]))
    assert found(report, "rights") == ("error", "the server's account may not patch pods: no requeue")


def test_a_silent_agent() -> None:
    report = doctor(leases=[lease("gpu-1", "gpu-1", "2026-02-02T02:30:00Z")])
    assert found(report, "agents") == ("error", "the agent is silent on gpu-1: new pods fail to start there")


def test_a_node_that_should_have_cards() -> None:
    node = make_node("gpu-2", metadata={"name": "gpu-2", "labels": {"dialect.aliquot.io/gpushare": "true"}})
    assert found(doctor(nodes=[node]), "agents") == ("error", "labelled for cards, but without cards: gpu-2")


def test_an_agent_that_does_not_run() -> None:
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    pod = make_pod(
        "agent-x",
        None,
        namespace="aliquot-system",
        metadata={"labels": {"app.kubernetes.io/name": "aliquot"}},
        status={"phase": "Running", "containerStatuses": [{"name": "agent", "state": waiting}]},
    )
    text = "pod aliquot-system/agent-x does not run: CrashLoopBackOff: back-off"
    assert found(doctor(pods=[pod]), "agents") == ("error", text)


def event(reason: str, message: str, kind: str, name: str) -> Event:
    about = InvolvedObject(kind, name, "default")
    return Event(metadata=Metadata(name="e"), involved_object=about, reason=reason, message=message)


def test_a_pod_that_kubelet_did_not_admit() -> None:
    told = event("UnexpectedAdmissionError", "Allocate failed due to CDI", "Pod", "p")
    level, text = found(doctor(events=[told]), "node preparation")
    assert (level, text) == ("error", "kubelet could not admit pod default/p: Allocate failed due to CDI")


def test_cards_that_are_open() -> None:
    node = make_node("gpu-1", make_cards("gpu-1"))
    conditions = [{"type": CARDS_GUARDED, "status": "False", "message": "the runtime obeys variables"}]
    shown = make_node(
        "gpu-1", make_cards("gpu-1"), status={"conditions": conditions, "allocatable": node.status.allocatable}
    )
    level, text = found(doctor(nodes=[shown]), "node preparation")
    assert level == "warning"
    assert text.endswith("the runtime obeys variables")


def test_two_plugins_for_one_resource() -> None:
    told = event("RivalDevicePlugin", "another device plugin has served x: remove that plugin", "Node", "gpu-1")
    report = doctor(events=[told])
    assert found(report, "two plugins") == ("error", "node gpu-1: another device plugin has served x")
    assert report.findings[0].remedy == "remove that plugin"


@pytest.mark.parametrize(
    ("offered", "serves", "level"),
    [
        pytest.param("4", ["gpushare"], "error", id="another plugin sells the same cards"),
        pytest.param("0", ["gpushare"], "ok", id="that plugin is gone"),
        pytest.param("4", ["gpushare", "nvidia"], "ok", id="our agent offers it"),
        pytest.param("4", [], "ok", id="a node that does not say what it serves"),
    ],
)
def test_a_second_plugin_that_offers_whole_cards(offered: str, serves: list[str], level: str) -> None:
    node = make_node("gpu-1", make_cards("gpu-1"), capacity={"nvidia.com/gpu": offered})
    labels = {f"{SERVES}{dialect}": "true" for dialect in serves}
    node = msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, labels=labels))
    told = found(doctor(nodes=[node]), "two plugins")
    assert told[0] == level
    if level == "error":
        assert told[1] == "node gpu-1 also offers nvidia.com/gpu: another plugin sells Aliquot's cards a second time"


def test_mixed_units() -> None:
    nodes = [make_node("a", make_cards("a")), make_node("b", make_cards("b", unit_mib=1))]
    level, text = found(doctor(nodes=nodes), "units")
    assert (level, text) == ("warning", "aliyun.com/gpu-mem counts in different units: 1 MiB on b; 1024 MiB on a")


def test_an_over_committed_card() -> None:
    record = write_placement(make_placement(make_cards("gpu-1"), 0, main=10 * 1024))
    metadata = {"annotations": {PLACEMENT: record}}
    pods = [make_pod(name, 10, uid=name, node="gpu-1", metadata=metadata) for name in ("one", "two")]
    level, text = found(doctor(pods=pods), "cards")
    assert (level, text) == ("error", "card 0 of node gpu-1 is over-committed: another scheduler sold it, too")


def test_unreadable_quotas() -> None:
    assert found(doctor(quotas="nonsense"), "quotas")[0] == "error"


def test_policies_that_are_missing_or_only_warn() -> None:
    assert [f.level for f in doctor(changed(policies=[])).findings if f.check == "policies"] == ["warning", "warning"]
    warns = changed(policies=[policy(FENCING, "Deny"), policy(FORGERY, "Warn", "Audit")])
    assert found(doctor(warns), "policies") == ("warning", f"{FORGERY} only warns (Warn, Audit)")


def test_what_cannot_be_read_is_unknown_and_never_in_order() -> None:
    missing = [Missing(kind, "", "") for kind in ("nodes", "pods", "leases", "configmaps", "events")]
    report = doctor(Facts.unknown(), nodes=[], missing=missing)
    assert {finding.level for finding in report.findings} == {"unknown"}
