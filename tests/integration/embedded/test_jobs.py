"""Jobs become pods, until enough of them have succeeded."""

from collections.abc import AsyncIterator
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from aliquot.embedded import EmbeddedCluster
from tests.fakes import FakeClock, until
from tests.integration.embedded.client import PODS, Api, container, names
from tests.integration.embedded.conftest import NOW
from tests.integration.embedded.kubelet import Kubelet

pytestmark = pytest.mark.embedded_only("kube-controller-manager does it in a real cluster")

JOBS = "/apis/batch/v1/namespaces/default/jobs"


@pytest.fixture
async def cluster(clock: FakeClock) -> AsyncIterator[EmbeddedCluster]:
    def now() -> Any:
        return NOW + timedelta(seconds=clock.monotonic())

    async with EmbeddedCluster(clock=now, random=Random(1), timer=clock) as running:
        yield running


@pytest.fixture
def kubelet(cluster: EmbeddedCluster) -> Kubelet:
    return Kubelet(cluster)


def job(name: str = "sum", restart: str = "Never", **spec: Any) -> dict[str, Any]:
    template = {"spec": {"restartPolicy": restart, "containers": [container()]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template, **spec}}


async def ended(api: Api, kubelet: Kubelet, phase: str = "Succeeded") -> dict[str, Any]:
    """The Job when it is over, while each of its pods ends as said."""
    while True:
        found: dict[str, Any] = (await api.get(f"{JOBS}/sum")).expect(200)
        if {condition["type"] for condition in found["status"].get("conditions", [])} & {"Complete", "Failed"}:
            return found
        for pod in kubelet.pods("Pending"):
            kubelet.tell(pod, phase)


def true_conditions(found: dict[str, Any]) -> dict[str, str]:
    return {condition["type"]: condition["reason"] for condition in found["status"]["conditions"]}


@pytest.mark.parametrize(
    ("spec", "pods"),
    [
        pytest.param({}, 1, id="one"),
        pytest.param({"completions": 5, "parallelism": 2}, 5, id="some-at-a-time"),
        pytest.param({"completions": 3, "parallelism": 8}, 3, id="no-more-than-needed"),
        pytest.param({"parallelism": 3}, 3, id="until-one-of-the-workers-says-so"),
    ],
)
async def test_a_job_is_complete_when_enough_pods_have_succeeded(
    api: Api, kubelet: Kubelet, spec: dict[str, Any], pods: int
) -> None:
    (await api.post(JOBS, job(**spec))).expect(201)
    found = await ended(api, kubelet)
    assert true_conditions(found) == {"SuccessCriteriaMet": "CompletionsReached", "Complete": "CompletionsReached"}
    assert (found["status"]["succeeded"], found["status"].get("active", 0)) == (pods, 0)
    assert len(kubelet.pods()) == pods
    await until(lambda: not any("finalizers" in pod["metadata"] for pod in kubelet.pods()), "pods are let go")


async def test_a_job_runs_no_more_pods_than_it_may(api: Api, kubelet: Kubelet) -> None:
    (await api.post(JOBS, job(completions=6, parallelism=2))).expect(201)
    await until(lambda: len(kubelet.living()) == 2, "the first pods")
    kubelet.tell(kubelet.living()[0], "Succeeded")
    await until(lambda: len(kubelet.pods()) == 3, "the next pod")
    assert len(kubelet.living()) == 2


async def test_failed_pods_are_replaced_until_there_are_too_many(api: Api, kubelet: Kubelet) -> None:
    (await api.post(JOBS, job(backoffLimit=2))).expect(201)
    found = await ended(api, kubelet, "Failed")
    assert true_conditions(found) == {"FailureTarget": "BackoffLimitExceeded", "Failed": "BackoffLimitExceeded"}
    assert found["status"]["failed"] == 3
    assert len(kubelet.pods()) == 3


async def test_a_pod_that_is_deleted_counts_as_failed(api: Api, kubelet: Kubelet) -> None:
    (await api.post(JOBS, job())).expect(201)
    await until(lambda: len(kubelet.pods()) == 1, "the pod")
    (name,) = names((await api.get(PODS)).expect(200))
    (await api.delete(f"{PODS}/{name}")).expect(200)
    await until(lambda: [pod["metadata"]["name"] for pod in kubelet.pods()] not in ([], [name]), "the next pod")
    found = await ended(api, kubelet)
    assert (found["status"]["failed"], found["status"]["succeeded"]) == (1, 1)


async def test_a_job_past_its_deadline_has_failed(api: Api, kubelet: Kubelet, clock: FakeClock) -> None:
    (await api.post(JOBS, job(activeDeadlineSeconds=60))).expect(201)
    await until(lambda: kubelet.pods() and clock.sleeping, "the pod, and the deadline")
    await clock.move(61)
    await until(lambda: kubelet.pods() == [], "the pod is removed")
    found = await ended(api, kubelet)
    assert true_conditions(found)["Failed"] == "DeadlineExceeded"


async def test_a_job_with_a_time_to_live_goes_with_its_pods(api: Api, kubelet: Kubelet, clock: FakeClock) -> None:
    (await api.post(JOBS, job(ttlSecondsAfterFinished=100))).expect(201)
    await ended(api, kubelet)
    await until(lambda: clock.sleeping, "the time is kept")
    await clock.move(101)
    await until(lambda: kubelet.pods() == [], "the pods go")
    (await api.get(f"{JOBS}/sum")).refused(404, "NotFound")


async def test_a_suspended_job_has_no_pods(api: Api, kubelet: Kubelet) -> None:
    (await api.post(JOBS, job(parallelism=2, completions=2))).expect(201)
    await until(lambda: len(kubelet.pods()) == 2, "the pods")
    (await api.patch(f"{JOBS}/sum", {"spec": {"suspend": True}})).expect(200)
    await until(lambda: kubelet.pods() == [], "the pods go")
    (await api.patch(f"{JOBS}/sum", {"spec": {"suspend": False}})).expect(200)
    found = await ended(api, kubelet)
    assert found["status"]["succeeded"] == 2


async def test_pods_go_with_their_job(api: Api, kubelet: Kubelet) -> None:
    (await api.post(JOBS, job(parallelism=3))).expect(201)
    await until(lambda: len(kubelet.pods()) == 3, "the pods")
    (await api.delete(f"{JOBS}/sum", {"propagationPolicy": "Background"})).expect(200)
    await until(lambda: kubelet.pods() == [], "the pods go")


async def test_orphaned_pods_can_be_deleted(api: Api, kubelet: Kubelet) -> None:
    (await api.post(JOBS, job())).expect(201)
    await until(lambda: kubelet.pods(), "the pod")
    (await api.delete(f"{JOBS}/sum", {"propagationPolicy": "Orphan"})).expect(200)
    await until(lambda: not any("finalizers" in pod["metadata"] for pod in kubelet.pods()), "the pod is let go")
    assert len(kubelet.pods()) == 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(job(restart="Always"), 'restartPolicy: Required value: valid values: "OnFailure"', id="restarts"),
        pytest.param(job(parallelism=-1), "spec.parallelism: Invalid value: -1", id="negative"),
        pytest.param(job(template=None), "spec.template: Required value", id="no-template"),
    ],
)
async def test_what_no_job_can_be(api: Api, body: dict[str, Any], message: str) -> None:
    assert message in (await api.post(JOBS, body)).refused(422, "Invalid")


@pytest.mark.embedded_only("a real server runs them")
async def test_indexed_jobs_are_refused(api: Api) -> None:
    refused = (await api.post(JOBS, job(completions=3, completionMode="Indexed"))).refused(422, "Invalid")
    assert "spec.completionMode: Forbidden: the embedded cluster does not support indexed Jobs" in refused


async def test_the_template_is_immutable(api: Api) -> None:
    (await api.post(JOBS, job())).expect(201)
    patch = {"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}}
    assert "spec.template: Invalid value" in (await api.patch(f"{JOBS}/sum", patch)).refused(422, "Invalid")
