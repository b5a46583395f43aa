"""PriorityClasses give pods their priority, ResourceQuotas bound what a namespace's pods ask for."""

from typing import Any

import pytest

from aliquot.embedded import EmbeddedCluster
from tests.fakes import until
from tests.integration.embedded.client import PODS, Api, container, pod
from tests.integration.embedded.kubelet import Kubelet

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
GPU = "nvidia.com/gpu"

pytestmark = pytest.mark.embedded_only("a real quota is enforced by controllers that do not run beside the real server")


def priority_class(name: str, value: int, **fields: Any) -> dict[str, Any]:
    own = {"metadata": {"name": name}, "value": value, **fields}
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **own}


def quota(hard: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "team"}, "spec": {"hard": hard, **spec}}


def asking(name: str, **limits: str) -> dict[str, Any]:
    named = {GPU if resource == "gpu" else resource: amount for resource, amount in limits.items()}
    return pod(name, containers=[container(resources={"limits": named})])


# -- priorities


async def test_a_pod_has_the_priority_of_its_class(api: Api) -> None:
    (await api.post(CLASSES, priority_class("high", 1000, preemptionPolicy="Never"))).expect(201)
    made = (await api.post(PODS, pod("a", priorityClassName="high"))).expect(201)
    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (1000, "Never")
    critical = (await api.post(PODS, pod("b", priorityClassName="system-node-critical"))).expect(201)
    assert critical["spec"]["priority"] == 2_000_001_000


async def test_a_class_that_is_not_there_is_named(api: Api) -> None:
    answer = await api.post(PODS, pod("a", priorityClassName="hihg"))
    assert answer.refused(403, "Forbidden") == 'pods "a" is forbidden: no PriorityClass with name hihg was found'


async def test_a_pod_without_a_class_has_everybody_s(api: Api) -> None:
    assert (await api.post(PODS, pod("a"))).expect(201)["spec"]["priority"] == 0
    (await api.post(CLASSES, priority_class("usual", 7, globalDefault=True))).expect(201)
    made = (await api.post(PODS, pod("b"))).expect(201)["spec"]
    assert (made["priority"], made["priorityClassName"]) == (7, "usual")


async def test_the_value_of_a_class_does_not_change(api: Api) -> None:
    (await api.post(CLASSES, priority_class("high", 1000))).expect(201)
    answer = await api.patch(f"{CLASSES}/high", {"value": 7})
    assert "value: Forbidden: may not be changed in an update." in answer.refused(422, "Invalid")


# -- quotas


@pytest.mark.parametrize(
    ("hard", "pods", "refused"),
    [
        pytest.param({"pods": "1"}, [{}], "requested: pods=1, used: pods=1, limited: pods=1", id="pods"),
        pytest.param(
            {"requests.nvidia.com/gpu": "3"},
            [{"gpu": "2"}, {"gpu": "2"}],
            "requested: requests.nvidia.com/gpu=2, used: requests.nvidia.com/gpu=2, limited: requests.nvidia.com/gpu=3",
            id="an extended resource",
        ),
        pytest.param(
            {"limits.cpu": "2"},
            [{"cpu": "1500m"}, {"cpu": "600m"}],
            "requested: limits.cpu=600m, used: limits.cpu=1500m, limited: limits.cpu=2",
            id="CPU",
        ),
        pytest.param(
            {"memory": "3Gi"},
            [{"memory": "2Gi"}, {"memory": "1025Mi"}],
            "requested: memory=1025Mi, used: memory=2Gi, limited: memory=3Gi",
            id="memory",
        ),
    ],
)
async def test_a_pod_beyond_the_quota_is_refused(
    api: Api, hard: dict[str, str], pods: list[dict[str, str]], refused: str
) -> None:
    (await api.post(QUOTAS, quota(hard))).expect(201)
    (await api.post(PODS, asking("first", **pods[0]))).expect(201)
    answer = await api.post(PODS, asking("second", **pods[-1]))
    assert answer.refused(403, "Forbidden") == f'pods "second" is forbidden: exceeded quota: team, {refused}'


async def test_containers_must_say_what_is_limited(api: Api) -> None:
    (await api.post(QUOTAS, quota({"limits.cpu": "2", "requests.memory": "1Gi"}))).expect(201)
    answer = await api.post(PODS, pod("silent"))
    assert answer.refused(403, "Forbidden") == (
        'pods "silent" is forbidden: failed quota: team: must specify limits.cpu for: main; requests.memory for: main'
    )


async def test_a_quota_tells_what_is_used_of_it(api: Api, cluster: EmbeddedCluster) -> None:
    (await api.post(QUOTAS, quota({"pods": "3"}))).expect(201)
    (await api.post(PODS, pod("a"))).expect(201)
    (await api.post(PODS, pod("b"))).expect(201)

    async def used() -> Any:
        return (await api.get(f"{QUOTAS}/team")).expect(200).get("status", {}).get("used")

    while await used() != {"pods": "2"}:
        pass
    kubelet = Kubelet(cluster)
    kubelet.tell(kubelet.pods()[0], "Succeeded")
    while await used() != {"pods": "1"}:
        pass


async def test_a_replica_set_tells_that_the_quota_is_used_up(api: Api, cluster: EmbeddedCluster) -> None:
    (await api.post(QUOTAS, quota({"pods": "1"}))).expect(201)
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container()]}}
    own = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    sets = "/apis/apps/v1/namespaces/default/replicasets"
    made = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"}, "spec": own}
    (await api.post(sets, made)).expect(201)

    def failure() -> str:
        held = cluster.store.get("replicasets.apps", ("default", "web"))
        conditions = held.obj.get("status", {}).get("conditions", []) if held else []
        return next((c["message"] for c in conditions if c["type"] == "ReplicaFailure"), "")

    await until(failure)
    assert "exceeded quota: team, requested: pods=1, used: pods=1, limited: pods=1" in failure()


async def test_scopes_are_refused_and_not_ignored(api: Api) -> None:
    scoped = quota({"pods": "1"}, scopes=["BestEffort"])
    assert "does not support quota scopes" in (await api.post(QUOTAS, scoped)).refused(422, "Invalid")
