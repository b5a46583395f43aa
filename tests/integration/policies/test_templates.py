"""What controllers make is asked of the policies, too: a template is no way past them."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from aliquot.apiserver.objects import Object
from aliquot.control.admission import NAMESPACE
from aliquot.embedded import EmbeddedCluster
from aliquot.embedded.api import resources
from aliquot.embedded.api.patches import merge
from aliquot.model.admission import FORGERY
from tests.fakes import FakeClock, until
from tests.integration.policies.cases import INDEX

FORGED = {INDEX: "0"}


@pytest.fixture
async def cluster(clock: FakeClock) -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(timer=clock) as running:
        running.registry.create(resources.NAMESPACES, "", {"metadata": {"name": NAMESPACE}})
        yield running


def owner(resource: resources.WritableResource, annotations: dict[str, str]) -> dict[str, Any]:
    limits = {"aliyun.com/gpu-mem": "1"}
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "none:1", "resources": {"limits": limits}}]}
    template: dict[str, Any] = {"metadata": {"labels": {"app": "forger"}, "annotations": annotations}, "spec": spec}
    if resource is resources.JOBS:
        spec["restartPolicy"] = "Never"
        return {"metadata": {"name": "forger"}, "spec": {"template": template}}
    selector = {"matchLabels": {"app": "forger"}}
    return {"metadata": {"name": "forger"}, "spec": {"replicas": 2, "selector": selector, "template": template}}


def pods(cluster: EmbeddedCluster) -> list[Object]:
    return [held.obj for held in cluster.store.snapshot("pods")]


def events(cluster: EmbeddedCluster) -> list[Object]:
    return [held.obj for held in cluster.store.snapshot("events")]


OWNERS = [
    pytest.param(resources.REPLICA_SETS, "replicaset-controller", id="replica set"),
    pytest.param(resources.JOBS, "job-controller", id="job"),
]


@pytest.mark.parametrize(("resource", "account"), OWNERS)
async def test_a_forged_key_in_a_template_is_told_by_an_event(
    guarded: EmbeddedCluster, resource: resources.WritableResource, account: str
) -> None:
    made = guarded.registry.create(resource, "default", owner(resource, FORGED)).obj
    await until(lambda: events(guarded))
    (event,) = events(guarded)
    assert (event["type"], event["reason"]) == ("Warning", "FailedCreate")
    assert event["involvedObject"]["uid"] == made["metadata"]["uid"]
    assert event["message"].startswith('Error creating: pods "forger-')
    assert f"ValidatingAdmissionPolicy '{FORGERY}' with binding '{FORGERY}' denied request" in event["message"]
    assert f"system:serviceaccount:kube-system:{account} may not write {INDEX}" in event["message"]
    assert pods(guarded) == []


@pytest.mark.parametrize("resource", [owner_kind.values[0] for owner_kind in OWNERS])
async def test_it_is_tried_again_ever_less_often(
    guarded: EmbeddedCluster, clock: FakeClock, resource: resources.WritableResource
) -> None:
    guarded.registry.create(resource, "default", owner(resource, FORGED))
    start = clock.monotonic()
    await until(lambda: events(guarded) and events(guarded)[0]["count"] >= 8, "eight refusals", passing=clock)
    assert clock.monotonic() - start > 100
    assert len(events(guarded)) == 1


async def test_a_deployment_with_its_template_put_right_goes_on_at_once(guarded: EmbeddedCluster) -> None:
    guarded.registry.create(resources.DEPLOYMENTS, "default", owner(resources.DEPLOYMENTS, FORGED))
    await until(lambda: events(guarded))
    (refused,) = guarded.store.snapshot(resources.REPLICA_SETS.collection)
    (condition,) = refused.obj["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("ReplicaFailure", "FailedCreate")
    right = {"spec": {"template": {"metadata": {"annotations": {INDEX: None}}}}}
    guarded.registry.patch(resources.DEPLOYMENTS, "default", "forger", lambda obj: merge(obj, right))
    await until(lambda: pods(guarded), "the first pod of the rollout")


async def test_a_failure_that_is_over_is_no_longer_told(guarded: EmbeddedCluster, clock: FakeClock) -> None:
    guarded.registry.create(resources.REPLICA_SETS, "default", owner(resources.REPLICA_SETS, FORGED))
    await until(lambda: events(guarded))
    guarded.store.remove(resources.POLICY_BINDINGS.collection, ("", FORGERY))
    await until(lambda: len(pods(guarded)) == 2, passing=clock)
    (held,) = guarded.store.snapshot(resources.REPLICA_SETS.collection)
    assert "conditions" not in held.obj["status"]


async def test_without_policies_templates_say_what_they_like(cluster: EmbeddedCluster) -> None:
    cluster.registry.create(resources.REPLICA_SETS, "default", owner(resources.REPLICA_SETS, FORGED))
    await until(lambda: len(pods(cluster)) == 2)
    assert events(cluster) == []
