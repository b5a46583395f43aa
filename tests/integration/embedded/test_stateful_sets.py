"""StatefulSets become pods with numbers, one after another."""

from typing import Any

import pytest

from aliquot.embedded import EmbeddedCluster
from tests.fakes import until
from tests.integration.embedded.client import Api, container, names
from tests.integration.embedded.kubelet import Kubelet

pytestmark = pytest.mark.embedded_only("kube-controller-manager does it in a real cluster")

SETS = "/apis/apps/v1/namespaces/default/statefulsets"


@pytest.fixture
def kubelet(cluster: EmbeddedCluster) -> Kubelet:
    return Kubelet(cluster)


def stateful_set(replicas: int = 3, image: str = "app:1", **spec: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [container(image=image)]}}
    own = {"replicas": replicas, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"}, "spec": {**own, **spec}}


def numbered(kubelet: Kubelet) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in kubelet.pods())


async def settled(api: Api, kubelet: Kubelet) -> dict[str, Any]:
    """The set when it has what it wants, while pods run as they come and end as they are deleted."""
    while True:
        found = (await api.get(f"{SETS}/db")).expect(200)
        status, wanted = found["status"], found["spec"]["replicas"]
        counts = [status.get(key) for key in ("replicas", "readyReplicas", "updatedReplicas", "currentReplicas")]
        if status.get("observedGeneration") == found["metadata"]["generation"] and counts == [wanted] * 4:
            return dict(found)
        kubelet.run_all()
        kubelet.finish_deleted()


async def test_pods_have_numbers_and_come_one_after_another(api: Api, kubelet: Kubelet) -> None:
    (await api.post(SETS, stateful_set())).expect(201)
    await until(lambda: numbered(kubelet) == ["db-0"])
    kubelet.run_all()
    await until(lambda: numbered(kubelet) == ["db-0", "db-1"])
    found = await settled(api, kubelet)
    first = next(pod for pod in kubelet.pods() if pod["metadata"]["name"] == "db-0")
    assert (first["spec"]["hostname"], first["spec"]["subdomain"]) == ("db-0", "db")
    assert first["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "0"
    assert first["metadata"]["ownerReferences"][0]["uid"] == found["metadata"]["uid"]
    assert found["status"]["currentRevision"] == found["status"]["updateRevision"]


async def test_in_parallel_they_come_all_at_once(api: Api, kubelet: Kubelet) -> None:
    (await api.post(SETS, stateful_set(podManagementPolicy="Parallel"))).expect(201)
    await until(lambda: numbered(kubelet) == ["db-0", "db-1", "db-2"])


async def test_fewer_replicas_end_the_highest_numbers(api: Api, kubelet: Kubelet) -> None:
    (await api.post(SETS, stateful_set())).expect(201)
    await settled(api, kubelet)
    (await api.patch(f"{SETS}/db/scale", {"spec": {"replicas": 1}})).expect(200)
    await settled(api, kubelet)
    assert numbered(kubelet) == ["db-0"]


async def test_a_pod_that_ends_or_goes_comes_again_under_its_name(api: Api, kubelet: Kubelet) -> None:
    (await api.post(SETS, stateful_set(2))).expect(201)
    await settled(api, kubelet)
    before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in kubelet.pods()}
    kubelet.tell(kubelet.pods()[0], "Failed")
    await until(lambda: before.items().isdisjoint({("db-0", _uid(kubelet, "db-0"))}))
    await settled(api, kubelet)
    assert numbered(kubelet) == ["db-0", "db-1"]


def _uid(kubelet: Kubelet, name: str) -> str:
    return next((pod["metadata"]["uid"] for pod in kubelet.pods() if pod["metadata"]["name"] == name), "")


async def test_a_new_template_replaces_pods_from_the_last_one_on(api: Api, kubelet: Kubelet) -> None:
    (await api.post(SETS, stateful_set(2))).expect(201)
    old = (await settled(api, kubelet))["status"]["currentRevision"]
    changed = stateful_set(2, image="app:2")["spec"]["template"]
    (await api.patch(f"{SETS}/db", {"spec": {"template": changed}})).expect(200)
    found = await settled(api, kubelet)
    assert found["status"]["currentRevision"] == found["status"]["updateRevision"] != old
    assert {pod["spec"]["containers"][0]["image"] for pod in kubelet.pods()} == {"app:2"}


async def test_the_table_shows_how_many_are_ready(api: Api, kubelet: Kubelet) -> None:
    (await api.post(SETS, stateful_set(1))).expect(201)
    await settled(api, kubelet)
    shown = (await api.get(SETS, accept="application/json;as=Table;v=v1;g=meta.k8s.io")).expect(200)
    assert [row["cells"][:2] for row in shown["rows"]] == [["db", "1/1"]]
    assert names((await api.get(SETS)).expect(200)) == ["db"]
