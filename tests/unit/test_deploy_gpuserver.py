"""deploy/nvidia-gpu-scheduler/gpuserver.yaml says what gpuserver, gpuserver-ds and the query API need."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import aliquot
from aliquot.app.programs.device_plugins import gpuserver_ds
from aliquot.app.programs.gpuserver import PROGRAM
from aliquot.config.agent_tree import AGENT
from aliquot.config.live_config import LiveConfig
from aliquot.config.server_tree import ServerConfig
from aliquot.config.sources import NoSource
from aliquot.control.leadership.rights import create_secrets, keep_api_service, keep_secret
from aliquot.endpoints.query.resources import RESOURCES
from aliquot.kube.rights import Right
from image.flavours import FLAVOURS

PATH = Path(__file__).parents[2] / "deploy" / "nvidia-gpu-scheduler" / "gpuserver.yaml"
OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all(PATH.read_text()))
POD = {"MetadataName": "nvidia-gpu-scheduler-0", "MetadataNamespace": "kube-system"}


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in OBJECTS if one["kind"] == kind}


def container(kind: str) -> dict[str, Any]:
    (found,) = of_kind(kind)["nvidia-gpu-scheduler"]["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


@pytest.fixture
async def config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ServerConfig:
    """What gpuserver makes of its pod's variables."""
    monkeypatch.setenv("HOME", str(tmp_path))
    told = {one["name"]: one.get("value", POD.get(one["name"], "")) for one in container("StatefulSet")["env"]}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    live = await LiveConfig.start(NoSource(), PROGRAM.keys(PROGRAM.translate(PROGRAM.line.parse([]))))
    return live.tree


def test_images_are_those_of_make_image() -> None:
    named = {f"{flavour.repository}:{aliquot.__version__}" for flavour in FLAVOURS}
    assert {container("StatefulSet")["image"], container("DaemonSet")["image"]} <= named


async def test_the_service_leads_to_the_port_and_has_the_name_in_the_certificate(config: ServerConfig) -> None:
    service = of_kind("Service")["nvidia-gpu-scheduler"]
    assert (service["metadata"]["name"], service["metadata"]["namespace"]) == (
        config.query_api.service,
        config.query_api.namespace,
    )
    (port,) = service["spec"]["ports"]
    (listened,) = container("StatefulSet")["ports"]
    assert (port["targetPort"], listened["containerPort"]) == (listened["name"], config.endpoints.nvidia.port)
    labels = of_kind("StatefulSet")["nvidia-gpu-scheduler"]["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == labels
    assert service["spec"]["sessionAffinity"] == "ClientIP", "a watch reaches the replica that answered the list"
    for probe in ("readinessProbe", "livenessProbe"):
        assert container("StatefulSet")[probe]["httpGet"]["scheme"] == "HTTPS"


async def test_every_api_service_is_kept_up_to_date_and_points_to_the_service(config: ServerConfig) -> None:
    found = of_kind("APIService")
    assert set(found) == set(config.query_api.api_services)
    for name, one in found.items():
        assert name == f"{one['spec']['version']}.{one['spec']['group']}"
        assert one["spec"]["service"] == {
            "name": config.query_api.service,
            "namespace": config.query_api.namespace,
            "port": 443,
        }
        assert "insecureSkipTLSVerify" not in one["spec"]
    assert {f"{one.version}.{one.group}" for one in RESOURCES} == set(found)


def rules_of(account: str) -> list[dict[str, Any]]:
    roles = {**of_kind("ClusterRole"), **of_kind("Role")}
    bindings = [*of_kind("ClusterRoleBinding").values(), *of_kind("RoleBinding").values()]
    names = {
        binding["roleRef"]["name"]
        for binding in bindings
        if any(subject["name"] == account for subject in binding["subjects"])
    }
    return [rule for name in names & roles.keys() for rule in roles[name]["rules"]]


def allows(rule: dict[str, Any], right: Right) -> bool:
    action = right.action
    return (
        action.group in rule["apiGroups"]
        and action.resource in rule["resources"]
        and {action.verb, *right.verbs} <= set(rule["verbs"])
        and (action.verb == "create" or rule["resourceNames"] == [action.name] or action.name in rule["resourceNames"])
    )


async def test_the_server_has_every_right_that_it_would_ask_for(config: ServerConfig) -> None:
    query = config.query_api
    rights = [
        create_secrets(query.namespace),
        keep_secret(query.namespace, query.service),
        *map(keep_api_service, query.api_services),
    ]
    for right in rights:
        assert any(allows(rule, right) for rule in rules_of("nvidia-gpu-scheduler")), str(right)
    bound = {
        one["roleRef"]["name"] for one in (*of_kind("ClusterRoleBinding").values(), *of_kind("RoleBinding").values())
    }
    assert {"system:auth-delegator", "extension-apiserver-authentication-reader", "aliquot-server"} <= bound


def test_only_pods_of_one_s_own_namespace_come_with_the_right_to_view() -> None:
    roles = of_kind("ClusterRole").values()
    (aggregated,) = (role for role in roles if role["metadata"].get("labels"))
    (rule,) = aggregated["rules"]
    namespaced = {(one.group, one.plural) for one in RESOURCES if one.namespaced}
    assert {(group, name) for group in rule["apiGroups"] for name in rule["resources"]} == namespaced
    seen = {
        (group, name)
        for rule in of_kind("ClusterRole")["nvidia-gpu-scheduler-viewer"]["rules"]
        for group in rule["apiGroups"]
        for name in rule["resources"]
    }
    assert seen == {(one.group, one.plural) for one in RESOURCES if not one.namespaced}


def test_kube_scheduler_may_ask_for_the_verbs_alone() -> None:
    (rule,) = rules_of("system:kube-scheduler")
    assert (rule["resources"], rule["verbs"]) == (["schedule"], ["create"])
    assert set(rule["resourceNames"]) == {"filter", "prioritize", "preempt"}


def test_the_agent_s_variables_are_keys_and_paths_that_it_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    mounts = {mount["mountPath"] for mount in container("DaemonSet")["volumeMounts"]}
    for one in container("DaemonSet")["env"]:
        monkeypatch.setenv(one["name"], one.get("value", "n1"))
    program = gpuserver_ds.PROGRAM
    config = AGENT.read("", "", program.keys(program.translate(program.line.parse([])))).tree
    assert config.node_name == "n1"
    assert {
        config.host_root,
        config.cdi_folder,
        str(Path(config.pod_resources).parent),
        config.device_plugins,
    } <= mounts
