"""Values of the wrong type: YAML makes booleans of `y` and `no`, and numbers of much else. They are refused."""

from typing import Any

import pytest

from tests.integration.embedded.client import CONFIG_MAPS, PODS, Api, config_map, container, pod
from tests.integration.embedded.test_deployments import DEPLOYMENTS, deployment
from tests.integration.embedded.test_jobs import JOBS, job

WRONG: dict[str, dict[str, Any]] = {
    "nodeSelector": {"nodeSelector": {"x": True}},
    "a number for a text": {"nodeSelector": {"x": 1}},
    "a list for a map": {"nodeSelector": ["x"]},
    "tolerations": {"tolerations": [{"key": "a", "value": False}]},
    "a text for a bool": {"hostNetwork": "no"},
    "a text for a number": {"priority": "high"},
    "affinity": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}},
    "env": {"containers": [container(env=[{"name": "DEBUG", "value": True}])]},
}


def with_pod_spec(body: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    template = body["spec"]["template"]
    changed = {**template, "spec": {**template["spec"], **spec}}
    return {**body, "spec": {**body["spec"], "template": changed}}


@pytest.mark.parametrize("spec", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("directive", ["Strict", "Ignore"])
async def test_a_pod_or_a_template_of_one_is_refused(api: Api, spec: dict[str, Any], directive: str) -> None:
    one = pod()
    bodies = {
        PODS: {**one, "spec": {**one["spec"], **spec}},
        DEPLOYMENTS: with_pod_spec(deployment(), spec),
        JOBS: with_pod_spec(job(), spec),
    }
    for path, body in bodies.items():
        message = (await api.post(path, body, fieldValidation=directive)).refused(400, "BadRequest")
        assert " cannot be handled as a " in message
        assert "json: cannot unmarshal " in message


async def test_what_may_have_several_types_may(api: Api) -> None:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}}
    body = with_pod_spec(deployment(strategy=rolling), {"containers": [container(resources={"limits": {"cpu": 1}})]})
    (await api.post(DEPLOYMENTS, body)).expect(201)


async def test_a_patch_is_refused_too(api: Api) -> None:
    (await api.post(CONFIG_MAPS, config_map())).expect(201)
    (await api.patch(f"{CONFIG_MAPS}/settings", {"metadata": {"labels": {"x": True}}})).unreadable()
    (await api.post(DEPLOYMENTS, deployment())).expect(201)
    patch = {"spec": {"template": {"spec": {"nodeSelector": {"x": True}}}}}
    (await api.patch(f"{DEPLOYMENTS}/web", patch)).unreadable()
