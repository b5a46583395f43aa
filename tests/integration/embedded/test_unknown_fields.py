"""Fields that nobody knows: refused, warned of, or dropped without a word; never kept."""

from typing import Any

import aiohttp
import pytest

from aliquot.embedded import EmbeddedCluster
from tests.integration.embedded.client import CONFIG_MAPS, NODES, PODS, Api, config_map, container, pod
from tests.integration.embedded.test_deployments import DEPLOYMENTS, deployment
from tests.integration.embedded.test_jobs import JOBS, job

ODD_POD = {**pod(), "spec": {"containers": [container(imagee="x")], "foo": 1}}


def with_spec(body: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {**body, "spec": {**body["spec"], **fields}}


async def test_a_strict_create_is_refused_in_the_real_servers_words(api: Api) -> None:
    message = (await api.post(PODS, ODD_POD, fieldValidation="Strict")).refused(400, "BadRequest")
    assert message == (
        'Pod in version "v1" cannot be handled as a Pod: strict decoding error: '
        'unknown field "spec.containers[0].imagee", unknown field "spec.foo"'
    )


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        pytest.param(DEPLOYMENTS, with_spec(deployment(), replica=1), "spec.replica", id="deployment"),
        pytest.param(JOBS, with_spec(job(), completion=1), "spec.completion", id="job"),
        pytest.param(CONFIG_MAPS, {**config_map(), "dat": {}}, "dat", id="config-map"),
        pytest.param(NODES, {"metadata": {"name": "n"}, "spec": {"taint": []}}, "spec.taint", id="node"),
        pytest.param(PODS, {**pod(), "metadata": {"name": "a", "label": {}}}, "metadata.label", id="metadata"),
    ],
)
async def test_every_kind_has_its_fields(api: Api, path: str, body: dict[str, Any], field: str) -> None:
    message = (await api.post(path, body, fieldValidation="Strict")).refused(400, "BadRequest")
    assert f'unknown field "{field}"' in message


@pytest.mark.parametrize("query", [pytest.param("?fieldValidation=Warn", id="warn"), pytest.param("", id="default")])
async def test_a_lenient_create_warns_and_drops(cluster: EmbeddedCluster, query: str) -> None:
    url = f"{cluster.url}{PODS}{query}"
    async with aiohttp.ClientSession() as session, session.post(url, json=ODD_POD) as response:
        assert response.status == 201
        warnings = response.headers.getall("Warning")
        stored = await response.json()
    assert warnings == ['299 - "unknown field \\"spec.containers[0].imagee\\""', '299 - "unknown field \\"spec.foo\\""']
    assert "foo" not in stored["spec"]
    assert "imagee" not in stored["spec"]["containers"][0]


async def test_a_create_that_is_refused_later_has_warned_before(cluster: EmbeddedCluster) -> None:
    url = f"{cluster.url}/api/v1/namespaces/nowhere/pods"
    async with aiohttp.ClientSession() as session, session.post(url, json=ODD_POD) as response:
        assert response.status == 404
        assert len(response.headers.getall("Warning", [])) == 2


async def test_an_ignoring_create_drops_without_a_word(cluster: EmbeddedCluster) -> None:
    url = f"{cluster.url}{PODS}?fieldValidation=Ignore"
    async with aiohttp.ClientSession() as session, session.post(url, json=ODD_POD) as response:
        assert (response.status, response.headers.getall("Warning", [])) == (201, [])
        assert "foo" not in (await response.json())["spec"]


async def test_an_update_is_checked_too(api: Api) -> None:
    created = (await api.post(PODS, pod())).expect(201)
    odd = {**created, "metadata": {**created["metadata"], "foo": "x"}}
    message = (await api.put(f"{PODS}/web", odd, fieldValidation="Strict")).refused(400, "BadRequest")
    assert 'unknown field "metadata.foo"' in message


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        pytest.param("merge-patch+json", {"metadata": {"foo": 1}}, id="merge"),
        pytest.param("strategic-merge-patch+json", {"metadata": {"foo": 1}}, id="strategic"),
        pytest.param("json-patch+json", [{"op": "add", "path": "/metadata/foo", "value": 1}], id="json"),
    ],
)
async def test_a_strict_patch_is_refused(api: Api, kind: str, patch: Any) -> None:
    (await api.post(PODS, pod())).expect(201)
    message = (await api.patch(f"{PODS}/web", patch, kind, fieldValidation="Strict")).refused(422, "Invalid")
    assert message.endswith('strict decoding error: unknown field "metadata.foo"')
    (await api.patch(f"{PODS}/web", patch, kind)).expect(200)


async def test_an_unknown_directive_is_refused(api: Api) -> None:
    message = (await api.post(PODS, pod(), fieldValidation="Maybe")).refused(422, "Invalid")
    assert 'fieldValidation: Unsupported value: "Maybe"' in message


@pytest.mark.embedded_only("a real server looks for the classes that it names")
async def test_a_pod_with_everything_is_taken(api: Api) -> None:
    probe = {"httpGet": {"path": "/", "port": "http", "httpHeaders": [{"name": "a", "value": "b"}]}, "periodSeconds": 3}
    main = container(
        env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k", "optional": True}}}],
        envFrom=[{"secretRef": {"name": "s"}, "prefix": "P_"}],
        ports=[{"containerPort": 80, "name": "http", "protocol": "TCP"}],
        livenessProbe=probe,
        readinessProbe={"exec": {"command": ["true"]}},
        startupProbe={"grpc": {"port": 1}},
        lifecycle={"preStop": {"sleep": {"seconds": 1}}},
        resources={"limits": {"cpu": 1, "aliyun.com/gpu-mem": "3"}},
        securityContext={"capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}},
        volumeMounts=[{"name": "v", "mountPath": "/v", "readOnly": True}],
        workingDir="/",
    )
    volumes = [
        {"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
        {"name": "w", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 600}}]}},
        {"name": "x", "hostPath": {"path": "/x", "type": "Directory"}},
        {"name": "y", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}},
    ]
    term = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}
    node_term = {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["yes"]}]}
    everything = pod(
        containers=[main],
        initContainers=[container("side", restartPolicy="Always")],
        volumes=volumes,
        affinity={
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [node_term]}},
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]
            },
        },
        tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 3}],
        topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        securityContext={"runAsUser": 1000, "fsGroup": 1, "sysctls": [{"name": "a", "value": "b"}]},
        dnsConfig={"options": [{"name": "ndots", "value": "2"}]},
        hostAliases=[{"ip": "10.0.0.1", "hostnames": ["a"]}],
        imagePullSecrets=[{"name": "pull"}],
        readinessGates=[{"conditionType": "example.com/ready"}],
        schedulingGates=[{"name": "example.com/wait"}],
        overhead={"cpu": "1m"},
        runtimeClassName="nvidia",
        priorityClassName="system-cluster-critical",
        nodeSelector={"gpu": "yes"},
        resourceClaims=[{"name": "c", "resourceClaimTemplateName": "t"}],
    )
    (await api.post(PODS, everything, fieldValidation="Strict")).expect(201)
