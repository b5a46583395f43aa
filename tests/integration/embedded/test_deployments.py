"""Deployments and ReplicaSets become pods."""

from typing import Any

import pytest

from aliquot.embedded import EmbeddedCluster
from tests.fakes import until
from tests.integration.embedded.client import Api, container, names
from tests.integration.embedded.kubelet import Kubelet

pytestmark = pytest.mark.embedded_only("kube-controller-manager does it in a real cluster")

APPS = "/apis/apps/v1/namespaces/default"
DEPLOYMENTS, REPLICA_SETS = f"{APPS}/deployments", f"{APPS}/replicasets"


@pytest.fixture
def kubelet(cluster: EmbeddedCluster) -> Kubelet:
    return Kubelet(cluster)


def deployment(name: str = "web", replicas: int = 3, image: str = "app:1", **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container(image=image)]}}
    own = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {**own, **spec}}


def images(kubelet: Kubelet) -> list[str]:
    return sorted(pod["spec"]["containers"][0]["image"] for pod in kubelet.living())


async def rolled_out(api: Api, kubelet: Kubelet, name: str = "web") -> dict[str, Any]:
    """What `kubectl rollout status` waits for, while pods run as they come and end as they are deleted."""
    found: dict[str, Any] = {}
    while True:
        found = (await api.get(f"{DEPLOYMENTS}/{name}")).expect(200)
        status, wanted = found["status"], found["spec"]["replicas"]
        counts = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "availableReplicas")]
        if status.get("observedGeneration") == found["metadata"]["generation"] and counts == [wanted] * 3:
            return found
        kubelet.run_all()
        kubelet.finish_deleted()


async def test_a_deployment_makes_a_replica_set_and_pods(api: Api, kubelet: Kubelet) -> None:
    (await api.post(DEPLOYMENTS, deployment())).expect(201)
    found = await rolled_out(api, kubelet)
    (made,) = (await api.get(REPLICA_SETS)).expect(200)["items"]
    mark = made["metadata"]["labels"]["pod-template-hash"]
    assert made["metadata"]["name"] == f"web-{mark}"
    assert made["metadata"]["ownerReferences"][0]["uid"] == found["metadata"]["uid"]
    assert made["spec"]["selector"]["matchLabels"] == {"app": "web", "pod-template-hash": mark}
    for pod in kubelet.pods():
        assert pod["metadata"]["name"].startswith(f"web-{mark}-")
        assert pod["metadata"]["labels"] == {"app": "web", "pod-template-hash": mark}
        assert pod["metadata"]["ownerReferences"][0]["name"] == made["metadata"]["name"]
    reasons = {condition["type"]: condition["reason"] for condition in found["status"]["conditions"]}
    assert reasons == {"Available": "MinimumReplicasAvailable", "Progressing": "NewReplicaSetAvailable"}


@pytest.mark.parametrize("size", [pytest.param(5, id="up"), pytest.param(1, id="down"), pytest.param(0, id="to-none")])
async def test_scaling_makes_and_removes_pods(api: Api, kubelet: Kubelet, size: int) -> None:
    (await api.post(DEPLOYMENTS, deployment())).expect(201)
    await rolled_out(api, kubelet)
    scale = (await api.get(f"{DEPLOYMENTS}/web/scale")).expect(200)
    assert (scale["kind"], scale["apiVersion"], scale["spec"]) == ("Scale", "autoscaling/v1", {"replicas": 3})
    assert scale["status"] == {"replicas": 3, "selector": "app=web"}
    changed = (await api.put(f"{DEPLOYMENTS}/web/scale", {**scale, "spec": {"replicas": size}})).expect(200)
    assert changed["spec"] == {"replicas": size}
    await rolled_out(api, kubelet)
    assert len(kubelet.living()) == size


async def test_a_scale_that_is_out_of_date_is_refused(api: Api) -> None:
    (await api.post(DEPLOYMENTS, deployment())).expect(201)
    stale = {"metadata": {"name": "web", "resourceVersion": "1"}, "spec": {"replicas": 9}}
    (await api.put(f"{DEPLOYMENTS}/web/scale", stale)).refused(409, "Conflict")
    (await api.patch(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": -1}})).refused(422, "Invalid")
    (await api.patch(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": "many"}})).refused(400, "BadRequest")
    (await api.patch(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 2}})).expect(200)


async def test_a_failed_pod_is_replaced(api: Api, kubelet: Kubelet) -> None:
    (await api.post(DEPLOYMENTS, deployment(replicas=2))).expect(201)
    await rolled_out(api, kubelet)
    kubelet.tell(kubelet.pods("Running")[0], "Failed")
    await until(lambda: len(kubelet.living()) == 2, "the pod is replaced")
    assert len(kubelet.pods("Failed")) == 1


async def test_a_new_template_rolls_out_without_a_gap(api: Api, kubelet: Kubelet) -> None:
    (await api.post(DEPLOYMENTS, deployment(replicas=4))).expect(201)
    await rolled_out(api, kubelet)
    (await api.put(f"{DEPLOYMENTS}/web", deployment(replicas=4, image="app:2"))).expect(200)
    fewest, most = 4, 0
    while images(kubelet) != ["app:2"] * 4:
        shown = (await api.get(f"{DEPLOYMENTS}/web")).expect(200)["status"]
        fewest = min(
            fewest, len([pod for pod in kubelet.pods("Running") if "deletionTimestamp" not in pod["metadata"]])
        )
        most = max(most, shown["replicas"])
        for pod in kubelet.pods("Pending")[:1]:
            kubelet.tell(pod, "Running")
        kubelet.finish_deleted()
    assert (fewest, most) == (3, 5)
    sets = (await api.get(REPLICA_SETS)).expect(200)["items"]
    revisions = {held["metadata"]["annotations"]["deployment.kubernetes.io/revision"]: held for held in sets}
    assert [revisions[number]["spec"]["replicas"] for number in ("1", "2")] == [0, 4]


async def test_a_template_that_comes_back_takes_its_replica_set_again(api: Api, kubelet: Kubelet) -> None:
    for image in ("app:1", "app:2", "app:1"):
        body = deployment(image=image)
        answer = await api.put(f"{DEPLOYMENTS}/web", body)
        if answer.code == 404:
            (await api.post(DEPLOYMENTS, body)).expect(201)
        found = await rolled_out(api, kubelet)
    assert found["metadata"]["annotations"] == {"deployment.kubernetes.io/revision": "3"}
    sets = (await api.get(REPLICA_SETS)).expect(200)["items"]
    assert sorted(held["spec"]["replicas"] for held in sets) == [0, 3]


async def test_recreate_ends_the_old_pods_first(api: Api, kubelet: Kubelet) -> None:
    recreate: dict[str, Any] = {"strategy": {"type": "Recreate"}}
    (await api.post(DEPLOYMENTS, deployment(replicas=2, **recreate))).expect(201)
    await rolled_out(api, kubelet)
    for pod in kubelet.pods():
        kubelet.bind(pod)
    (await api.put(f"{DEPLOYMENTS}/web", deployment(replicas=2, image="app:2", **recreate))).expect(200)
    await until(lambda: all("deletionTimestamp" in pod["metadata"] for pod in kubelet.pods()), "the old pods go")
    assert images(kubelet) == ["app:1"] * 2
    await rolled_out(api, kubelet)
    assert images(kubelet) == ["app:2"] * 2


async def test_a_paused_deployment_waits(api: Api, kubelet: Kubelet) -> None:
    (await api.post(DEPLOYMENTS, deployment(paused=True))).expect(201)
    await rolled_out_reason(api, "DeploymentPaused")
    assert kubelet.pods() == []
    (await api.patch(f"{DEPLOYMENTS}/web", {"spec": {"paused": None}})).expect(200)
    await rolled_out(api, kubelet)


async def rolled_out_reason(api: Api, reason: str) -> None:
    while True:
        status = (await api.get(f"{DEPLOYMENTS}/web")).expect(200)["status"]
        if reason in {condition["reason"] for condition in status.get("conditions", [])}:
            return


async def test_old_replica_sets_are_forgotten(api: Api, kubelet: Kubelet) -> None:
    (await api.post(DEPLOYMENTS, deployment(revisionHistoryLimit=1))).expect(201)
    for number in range(2, 5):
        await rolled_out(api, kubelet)
        body = deployment(image=f"app:{number}", revisionHistoryLimit=1)
        (await api.put(f"{DEPLOYMENTS}/web", body)).expect(200)
    await rolled_out(api, kubelet)
    assert len((await api.get(REPLICA_SETS)).expect(200)["items"]) == 2


@pytest.mark.parametrize(
    ("policy", "sets", "pods"),
    [
        pytest.param("Background", 0, 0, id="background"),
        pytest.param("Foreground", 0, 0, id="foreground"),
        pytest.param("Orphan", 1, 3, id="orphan"),
    ],
)
async def test_dependents_go_with_their_owner_unless_they_are_orphaned(
    api: Api, kubelet: Kubelet, policy: str, sets: int, pods: int
) -> None:
    (await api.post(DEPLOYMENTS, deployment())).expect(201)
    await rolled_out(api, kubelet)
    (await api.delete(f"{DEPLOYMENTS}/web", {"propagationPolicy": policy})).expect(200)
    assert names((await api.get(DEPLOYMENTS)).expect(200)) == []
    left = (await api.get(REPLICA_SETS)).expect(200)["items"]
    assert (len(left), len(kubelet.pods())) == (sets, pods)
    assert not any("ownerReferences" in held["metadata"] for held in left)


async def test_in_the_foreground_an_owner_waits_for_the_last_pod(api: Api, kubelet: Kubelet) -> None:
    (await api.post(DEPLOYMENTS, deployment())).expect(201)
    await rolled_out(api, kubelet)
    for pod in kubelet.pods():
        kubelet.bind(pod)
    (await api.delete(f"{DEPLOYMENTS}/web", {"propagationPolicy": "Foreground"})).expect(200)
    waiting = (await api.get(f"{DEPLOYMENTS}/web")).expect(200)["metadata"]
    assert waiting["finalizers"] == ["foregroundDeletion"]
    kubelet.finish_deleted()
    (await api.get(f"{DEPLOYMENTS}/web")).refused(404, "NotFound")
    assert kubelet.pods() == []


async def test_an_unknown_way_to_delete_is_refused(api: Api) -> None:
    (await api.post(DEPLOYMENTS, deployment())).expect(201)
    answer = await api.delete(f"{DEPLOYMENTS}/web", {"propagationPolicy": "Sideways"})
    assert 'propagationPolicy: Unsupported value: "Sideways"' in answer.refused(422, "Invalid")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"selector": {"matchLabels": {"app": "no"}}}, "`selector` does not match", id="selector-misses"),
        pytest.param({"selector": {}}, "spec.selector: Required value", id="no-selector"),
        pytest.param({"template": None}, "spec.template: Required value", id="no-template"),
        pytest.param({"replicas": -1}, "spec.replicas: Invalid value: -1", id="negative"),
        pytest.param({"strategy": {"type": "Sudden"}}, "spec.strategy.type: Unsupported value", id="unknown-strategy"),
        pytest.param(
            {"template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main"}]}}},
            "spec.template.spec.containers[0].image: Required value",
            id="bad-pod",
        ),
    ],
)
async def test_what_no_deployment_can_be(api: Api, change: dict[str, Any], message: str) -> None:
    assert message in (await api.post(DEPLOYMENTS, deployment(**change))).refused(422, "Invalid")


async def test_the_selector_is_immutable(api: Api) -> None:
    (await api.post(DEPLOYMENTS, deployment())).expect(201)
    changed = deployment()
    changed["spec"]["selector"] = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}
    message = (await api.put(f"{DEPLOYMENTS}/web", changed)).refused(422, "Invalid")
    assert "spec.selector: Invalid value" in message
    assert "field is immutable" in message


async def test_without_controllers_nothing_comes_of_a_deployment(api: Api) -> None:
    async with EmbeddedCluster(controllers=False) as idle:
        other = Api(api.session, idle.url)
        (await other.post(DEPLOYMENTS, deployment())).expect(201)
        assert names((await other.get(REPLICA_SETS)).expect(200)) == []
