"""What the server fills into pods, what it refuses about them, and which updates it allows."""

from typing import Any

import pytest

from tests.integration.embedded.client import PODS, Api, container, pod

GPU = "example.com/gpu"


def with_resources(**resources: Any) -> dict[str, Any]:
    return pod(containers=[container(resources=resources)])


async def test_a_new_pod_gets_defaults(api: Api) -> None:
    created = (await api.post(PODS, with_resources(limits={GPU: 1, "cpu": "2"}))).expect(201)
    spec = created["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    assert spec["containers"][0]["resources"]["requests"] == {GPU: "1", "cpu": "2"}
    assert created["status"] == {"phase": "Pending", "qosClass": "Burstable"}


async def test_a_status_cannot_be_created(api: Api) -> None:
    created = (await api.post(PODS, {**pod(), "status": {"phase": "Running"}})).expect(201)
    assert created["status"]["phase"] == "Pending"


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ({}, "BestEffort"),
        ({"limits": {GPU: 1}}, "BestEffort"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"requests": {"cpu": "1"}, "limits": {"cpu": "1000m"}}, "Burstable"),
        ({"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "1Gi"}}, "Burstable"),
    ],
)
async def test_quality_of_service(api: Api, resources: dict[str, Any], quality: str) -> None:
    created = (await api.post(PODS, with_resources(**resources))).expect(201)
    assert created["status"]["qosClass"] == quality


FIRST = "spec.containers[0]"
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("no containers", pod(containers=[]), "spec.containers: Required value"),
    ("no spec", {"metadata": {"name": "web"}}, "spec.containers: Required value"),
    ("no container name", pod(containers=[container("")]), f"{FIRST}.name: Required value"),
    ("bad container name", pod(containers=[container("A b")]), f"{FIRST}.name: Invalid value"),
    ("no image", pod(containers=[{"name": "main"}]), f"{FIRST}.image: Required value"),
    ("same name", pod(containers=[container(), container()]), 'spec.containers[1].name: Duplicate value: "main"'),
    (
        "same name as an init container",
        pod(initContainers=[container()]),
        'spec.initContainers[0].name: Duplicate value: "main"',
    ),
    ("bad restart policy", pod(restartPolicy="Maybe"), 'spec.restartPolicy: Unsupported value: "Maybe"'),
    ("negative quantity", with_resources(limits={GPU: -1}), "must be greater than or equal to 0"),
    ("fraction of a device", with_resources(limits={GPU: "500m"}), f"{FIRST}.resources.limits[{GPU}]"),
    ("half a device", with_resources(limits={GPU: 0.5}), "must be an integer"),
    ("unknown plain resource", with_resources(limits={"gpus": 1}), "must be a standard resource"),
    ("device without limit", with_resources(requests={GPU: 1}), "Limit must be set for non overcommitable resources"),
    (
        "device request below limit",
        with_resources(limits={GPU: 2}, requests={GPU: 1}),
        f"must be equal to {GPU} limit of 2",
    ),
    (
        "request above limit",
        with_resources(limits={"cpu": "1"}, requests={"cpu": "2"}),
        "must be less than or equal to cpu limit of 1",
    ),
    ("name with capitals", pod("Web"), "metadata.name: Invalid value"),
    ("name too long", pod("a" * 254), "metadata.name: Invalid value"),
    ("no name", {**pod(), "metadata": {}}, "metadata.name: Required value"),
    ("bad label", pod(labels={"a b": "c"}), "metadata.labels: Invalid value"),
    ("bad label value", pod(labels={"a": "c d"}), "metadata.labels: Invalid value"),
    (
        "annotations too large",
        {**pod(), "metadata": {"name": "web", "annotations": {"a": "x" * 300_000}}},
        "metadata.annotations: Too long",
    ),
]


@pytest.mark.parametrize(("body", "problem"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
async def test_what_is_wrong_is_named_with_its_field(api: Api, body: dict[str, Any], problem: str) -> None:
    answer = await api.post(PODS, body)
    assert problem in answer.refused(422, "Invalid")
    causes = answer.body["details"]["causes"]
    assert any(problem.split(": ")[0] in f"{cause['field']} {cause['message']}" for cause in causes)


@pytest.mark.parametrize("amount", ["5x", "", "1 Gi"])
async def test_what_is_no_quantity_cannot_be_read(api: Api, amount: str) -> None:
    answer = await api.post(PODS, with_resources(limits={"cpu": amount}))
    assert "quantities must match the regular expression" in answer.refused(400, "BadRequest")


@pytest.mark.parametrize("amount", ["9" * 60, "1e999"])
async def test_absurd_amounts_are_taken(api: Api, amount: str) -> None:
    created = (await api.post(PODS, with_resources(limits={"memory": amount}))).expect(201)
    assert created["spec"]["containers"][0]["resources"]["limits"] == {"memory": amount}


async def test_a_negative_grace_is_a_second(api: Api) -> None:
    created = (await api.post(PODS, pod(terminationGracePeriodSeconds=-1))).expect(201)
    assert created["spec"]["terminationGracePeriodSeconds"] == 1


ALLOWED: list[tuple[str, dict[str, Any]]] = [
    ("image", {"spec": {"containers": [{"name": "main", "image": "other"}]}}),
    ("deadline", {"spec": {"activeDeadlineSeconds": 5}}),
    ("another toleration", {"spec": {"tolerations": [{"key": "old"}, {"key": "new"}]}}),
    ("opened gate", {"spec": {"schedulingGates": [{"name": "one", "$patch": "delete"}]}}),
    ("labels", {"metadata": {"labels": {"a": "b"}}}),
]
FORBIDDEN: list[tuple[str, dict[str, Any], str]] = [
    ("node", {"spec": {"nodeName": "node-1"}}, "spec: Forbidden: pod updates may not change fields"),
    ("scheduler", {"spec": {"schedulerName": "other"}}, "spec: Forbidden"),
    (
        "resources",
        {"spec": {"containers": [{"name": "main", "resources": {"limits": {GPU: 1}}}]}},
        "spec: Forbidden",
    ),
    ("another container", {"spec": {"containers": [container("second")]}}, "spec.containers: Forbidden"),
    ("fewer tolerations", {"spec": {"tolerations": []}}, "spec.tolerations: Forbidden"),
    ("another gate", {"spec": {"schedulingGates": [{"name": "two"}]}}, "spec.schedulingGates[0].name: Forbidden"),
    ("uid", {"metadata": {"uid": "other"}}, "metadata.uid: Invalid value"),
]
GATED = pod(tolerations=[{"key": "old"}], schedulingGates=[{"name": "one"}])


@pytest.mark.parametrize("patch", [case[1] for case in ALLOWED], ids=[case[0] for case in ALLOWED])
async def test_updates_that_pods_allow(api: Api, patch: dict[str, Any]) -> None:
    created = (await api.post(PODS, GATED)).expect(201)
    changed = (await api.patch(f"{PODS}/web", patch, "strategic-merge-patch+json")).expect(200)
    assert changed["metadata"]["resourceVersion"] != created["metadata"]["resourceVersion"]


@pytest.mark.parametrize(("patch", "problem"), [c[1:] for c in FORBIDDEN], ids=[c[0] for c in FORBIDDEN])
async def test_updates_that_pods_forbid(api: Api, patch: dict[str, Any], problem: str) -> None:
    created = (await api.post(PODS, GATED)).expect(201)
    refused = await api.patch(f"{PODS}/web", patch, "strategic-merge-patch+json")
    assert problem in refused.refused(422, "Invalid")
    assert (await api.get(f"{PODS}/web")).expect(200) == created


async def test_a_replacement_without_the_defaults_gets_them_again(api: Api) -> None:
    created = (await api.post(PODS, pod())).expect(201)
    assert (await api.put(f"{PODS}/web", pod())).expect(200) == created
