"""The shipped manifests and configurations, as far as reading them can tell; e2e/test_deploy.py gives them to a real
API server and a real kube-scheduler."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click.testing
import msgspec
import pytest
import trustme
import yaml

import aliquot
from aliquot.cli.agent import command as agent_command
from aliquot.cli.server import command
from aliquot.config.agent_tree import AGENT
from aliquot.config.flags import given
from aliquot.dialects import dialects_of_node, standard_dialects
from aliquot.model import Node
from aliquot.model.records import OBSERVED
from tests.manifests import generated
from tests.schemas import KubeSchedulerConfiguration, Policy, VolcanoConfiguration

DEPLOY = Path(__file__).parents[2] / "deploy"
SYSTEMS = ("elastic-gpu", "gpu-admission", "gpushare", "native", "nvidia-gpu-scheduler")
SERVERS = sorted(DEPLOY.glob("*/server.yaml"))
CONFIGURATIONS = sorted(DEPLOY.glob("**/kube-scheduler*v1beta*.yaml")) + sorted(
    DEPLOY.glob("[!s]*/kube-scheduler*.yaml")
)


def _name(path: Path) -> str:
    return str(path.relative_to(DEPLOY))


def _documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def _nested(kind: str) -> Iterator[tuple[str, str]]:
    """What ConfigMaps carry under a key that ends so, and where it stands."""
    for path in sorted(DEPLOY.glob("**/*.yaml")):
        if path.parent.name == "monitoring":  # files of Prometheus
            continue
        for document in _documents(path):
            if document["kind"] == "ConfigMap":
                for key, text in (document.get("data") or {}).items():
                    if key.endswith(kind):
                        yield f"{_name(path)}: {key}", text


def _of_kind(path: Path, kind: str) -> list[dict[str, Any]]:
    return [document for document in _documents(path) if document["kind"] == kind]


PLUGIN_WEIGHTS = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "DynamicResources": 2,
    "NodeResourcesFit": 1,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}
"""Of kube-scheduler 1.37 by default. Each plugin scores up to 100 times its weight; a point of an extender counts 10
times the extender's weight."""


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=_name)
def test_one_point_of_ours_outweighs_all_in_tree_scores(path: Path) -> None:
    (document,) = _documents(path)
    (extender,) = document["extenders"]
    if "prioritizeVerb" in extender:
        assert 10 * extender["weight"] > 100 * sum(PLUGIN_WEIGHTS.values())
    else:
        assert extender["filterVerb"] == "predicates", "which leaves one node"


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=_name)
def test_a_configuration_has_only_fields_of_its_version(path: Path) -> None:
    (document,) = _documents(path)
    msgspec.convert(document, KubeSchedulerConfiguration)


@pytest.mark.parametrize("text", [pytest.param(text, id=where) for where, text in _nested("gpu-scheduler-config.yaml")])
def test_a_configuration_in_a_config_map_has_only_fields_of_its_version(text: str) -> None:
    msgspec.convert(yaml.safe_load(text), KubeSchedulerConfiguration)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("version", ["v1beta2", "v1beta3"])
def test_an_older_version_says_the_same_as_the_one_that_is_tested(system: str, version: str) -> None:
    (new,) = _documents(DEPLOY / system / "kube-scheduler.yaml")
    (old,) = _documents(DEPLOY / system / "older" / f"kube-scheduler-{version}.yaml")
    assert old == {**new, "apiVersion": f"kubescheduler.config.k8s.io/{version}"}


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_policy_has_only_fields_of_its_time_and_says_the_same_as_the_configuration(system: str) -> None:
    folder = DEPLOY / system
    policy = json.loads((folder / "older" / "scheduler-policy-config.json").read_text())
    msgspec.convert(policy, Policy)
    (extender,) = policy["extenders"]
    (new,) = _documents(folder / "kube-scheduler.yaml")[0]["extenders"]
    assert {**extender, "enableHTTPS": extender["enableHttps"]}.items() >= new.items()


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_policy_of_the_config_map_is_the_policy_of_the_file(system: str) -> None:
    older = DEPLOY / system / "older"
    (config_map,) = _documents(older / "scheduler-policy-configmap.yaml")
    assert config_map["data"]["policy.cfg"] == (older / "scheduler-policy-config.json").read_text()


@pytest.mark.parametrize(
    "path", sorted(p for p in DEPLOY.glob("**/*") if p.parent.name == "older" and p.suffix == ".yaml"), ids=_name
)
def test_what_was_never_run_says_so(path: Path) -> None:
    assert "not run" in path.read_text()


@pytest.mark.parametrize("text", [pytest.param(text, id=where) for where, text in _nested("volcano-scheduler.conf")])
def test_volcanos_configuration_has_only_arguments_that_it_knows(text: str) -> None:
    read = msgspec.convert(yaml.safe_load(text), VolcanoConfiguration)
    assert any(plugin.name == "extender" for tier in read.tiers for plugin in tier.plugins)


@pytest.mark.parametrize(
    ("path", "text"), [*generated()], ids=lambda each: _name(each) if isinstance(each, Path) else ""
)
def test_what_follows_from_the_dialects_is_up_to_date(path: Path, text: str) -> None:
    assert path.read_text() == text, "run: make manifests"


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_managed_resource_is_one_of_a_dialect(system: str) -> None:
    (document,) = _documents(DEPLOY / system / "kube-scheduler.yaml")
    known = {resource.name for dialect in standard_dialects().values() for resource in dialect.resources}
    managed = {resource["name"] for extender in document["extenders"] for resource in extender["managedResources"]}
    assert managed <= known


@pytest.mark.parametrize(
    ("system", "dialects"),
    [
        pytest.param("gpushare", ["gpushare"], id="gpushare"),
        pytest.param("gpu-admission", ["tencent"], id="gpu-admission"),
        pytest.param("elastic-gpu", ["elastic"], id="elastic-gpu"),
    ],
)
def test_every_resource_of_its_dialects_is_managed(system: str, dialects: list[str]) -> None:
    """kube-scheduler would not ask us about a pod that names only others, and would bind it without a card. Slices of
    cards (MIG) it counts by itself."""
    (document,) = _documents(DEPLOY / system / "kube-scheduler.yaml")
    managed = {resource["name"] for extender in document["extenders"] for resource in extender["managedResources"]}
    offered = {resource.name for name in dialects for resource in standard_dialects()[name].resources}
    assert {name for name in offered if "/mig-" not in name} <= managed


def test_the_agent_is_started_with_flags_that_it_has_and_sees_what_they_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it tells kubelet and the runtime are paths of the host, so they are mounted at the same place."""
    (daemon_set,) = _of_kind(DEPLOY / "agent.yaml", "DaemonSet")
    spec = daemon_set["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["image"] == f"aliquot/agent:{aliquot.__version__}"
    monkeypatch.setenv("NODE_NAME", "n1")
    assert "NODE_NAME" in {variable["name"] for variable in container["env"]}
    keys = AGENT.read("", "", given(agent_command.make_context("agent", list(container["args"])))).tree
    hosts = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"]}
    mounts = {mount["mountPath"]: hosts[mount["name"]] for mount in container["volumeMounts"]}
    socket = keys.runtime_endpoint.removeprefix("unix://")
    for path in (keys.device_plugins, keys.pod_resources, socket, keys.cdi_folder, keys.dev_folder):
        (place,) = (place for place in mounts if path == place or path.startswith(f"{place}/"))
        assert mounts[place] == place, path
    assert mounts[keys.host_root] == "/"
    assert [(port["name"], port["containerPort"]) for port in container["ports"]] == [("health", keys.health_port)]
    read_only = {mount["mountPath"] for mount in container["volumeMounts"] if mount.get("readOnly")}
    assert set(mounts) - read_only == {keys.device_plugins, keys.cdi_folder, keys.dev_folder}


def test_the_agent_is_the_last_to_be_evicted_and_runs_wherever_a_label_asks_for_it() -> None:
    (daemon_set,) = _of_kind(DEPLOY / "agent.yaml", "DaemonSet")
    assert daemon_set["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": 1}
    spec = daemon_set["spec"]["template"]["spec"]
    assert spec["priorityClassName"] == "system-node-critical"
    assert spec["tolerations"] == [{"operator": "Exists"}]
    (account,) = (
        each for each in _of_kind(DEPLOY / "aliquot.yaml", "ServiceAccount") if "agent" in each["metadata"]["name"]
    )
    assert spec["serviceAccountName"] == account["metadata"]["name"]
    assert daemon_set["metadata"]["namespace"] == account["metadata"]["namespace"]
    affinity = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    for term in affinity["nodeSelectorTerms"]:
        (expression,) = term["matchExpressions"]
        labels = {expression["key"]: expression["values"][0]}
        node = msgspec.convert({"metadata": {"name": "n1", "labels": labels}}, Node)
        assert dialects_of_node(node, standard_dialects()) or labels == {OBSERVED: "true"}, labels


AUTHORITY = trustme.CA()
SECRET = "/etc/aliquot/tls"


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the Secret aliquot-tls holds, as a folder."""
    folder = tmp_path_factory.mktemp("tls")
    made = AUTHORITY.issue_cert("aliquot-server.aliquot-system.svc")
    made.private_key_pem.write_to_path(str(folder / "tls.key"))
    (folder / "tls.crt").write_bytes(b"".join(one.bytes() for one in made.cert_chain_pems))
    AUTHORITY.cert_pem.write_to_path(str(folder / "ca.crt"))
    return folder


def _checked(container: dict[str, Any], secret: Path) -> click.testing.Result:
    arguments = [argument.replace(SECRET, str(secret)) for argument in container["args"][1:]]
    return click.testing.CliRunner().invoke(command, [*arguments, "--check-config"])


@pytest.mark.parametrize("path", SERVERS, ids=_name)
def test_a_server_is_started_with_flags_that_it_has(path: Path, secret: Path) -> None:
    (deployment,) = _of_kind(path, "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["args"][0] == "server"
    done = _checked(container, secret)
    assert done.exit_code == 0, done.output
    assert container["image"] == f"aliquot:{aliquot.__version__}"


@pytest.mark.parametrize("path", [path for path in SERVERS if path.parent.name != "volcano"], ids=_name)
def test_a_server_answers_known_callers_only(path: Path, secret: Path) -> None:
    (deployment,) = _of_kind(path, "Deployment")
    spec = deployment["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    shown = yaml.safe_load(_checked(container, secret).output)
    assert {endpoint["callers"] for endpoint in shown["endpoints"].values()} == {"auto"}
    assert shown["listen"]["tls"]["clientCaFile"]
    (mount,) = container["volumeMounts"]
    (volume,) = spec["volumes"]
    assert (mount["mountPath"], mount["name"]) == (SECRET, volume["name"])
    for probe in ("readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["scheme"] == "HTTPS"


def test_only_volcanos_scheduler_reaches_the_server_that_answers_anyone(secret: Path) -> None:
    path = DEPLOY / "volcano" / "server.yaml"
    (deployment,) = _of_kind(path, "Deployment")
    (policy,) = _of_kind(path, "NetworkPolicy")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert policy["spec"]["podSelector"]["matchLabels"] == deployment["spec"]["selector"]["matchLabels"]
    (rule,) = policy["spec"]["ingress"]
    assert [port["port"] for port in rule["ports"]] == [port["containerPort"] for port in container["ports"]]
    assert [
        endpoint
        for endpoint, keys in yaml.safe_load(_checked(container, secret).output)["endpoints"].items()
        if keys["enabled"]
    ] == ["admission"]


@pytest.mark.parametrize("system", SYSTEMS)
def test_kube_scheduler_shows_its_certificate(system: str) -> None:
    """It checks the server's by a name that all of them have, whatever the address."""
    (document,) = _documents(DEPLOY / system / "kube-scheduler.yaml")
    (deployment,) = _of_kind(DEPLOY / system / "server.yaml", "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (extender,) = document["extenders"]
    assert extender["urlPrefix"].startswith("https://")
    assert extender["enableHTTPS"]
    assert extender["tlsConfig"].keys() == {"serverName", "caFile", "certFile", "keyFile"}
    assert f"--replicas-tls-name={extender['tlsConfig']['serverName']}" in container["args"]


@pytest.mark.parametrize("path", SERVERS, ids=_name)
def test_a_service_leads_to_ports_on_which_the_server_listens(path: Path, secret: Path) -> None:
    (deployment,) = _of_kind(path, "Deployment")
    (service,) = _of_kind(path, "Service")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    shown = yaml.safe_load(_checked(container, secret).output)
    endpoints = shown["endpoints"]
    listening = {endpoint["port"] for endpoint in endpoints.values() if endpoint.get("enabled", True)} | {
        shown["listen"]["healthPort"]
    }
    ports = {port["containerPort"] for port in container["ports"]}
    assert ports == listening
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    assert service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()


MONITORS = DEPLOY / "monitoring" / "monitors.yaml"


def test_prometheus_finds_the_servers_and_proves_who_it_is(secret: Path) -> None:
    (monitor,) = _of_kind(MONITORS, "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    path = DEPLOY / "native" / "server.yaml"
    (service,) = _of_kind(path, "Service")
    (deployment,) = _of_kind(path, "Deployment")
    assert monitor["metadata"]["namespace"] == service["metadata"]["namespace"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (port,) = (port for port in service["spec"]["ports"] if port["name"] == endpoint["port"])
    spec = deployment["spec"]["template"]["spec"]
    shown = yaml.safe_load(_checked(spec["containers"][0], secret).output)
    assert port["targetPort"] == shown["endpoints"]["native"]["port"]
    assert (endpoint["scheme"], endpoint["honorLabels"]) == ("https", True)
    assert endpoint["bearerTokenFile"]
    tls = endpoint["tlsConfig"]
    assert tls["ca"]["secret"]["name"] == spec["volumes"][0]["secret"]["secretName"]
    assert (secret / tls["ca"]["secret"]["key"]).exists()
    assert tls["serverName"] == shown["replicas"]["tlsName"]


def test_prometheus_finds_the_agents() -> None:
    (monitor,) = _of_kind(MONITORS, "PodMonitor")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    (daemon_set,) = _of_kind(DEPLOY / "agent.yaml", "DaemonSet")
    template = daemon_set["spec"]["template"]
    assert monitor["metadata"]["namespace"] == daemon_set["metadata"]["namespace"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert endpoint["port"] in {port["name"] for port in template["spec"]["containers"][0]["ports"]}
    assert endpoint["honorLabels"]


@pytest.mark.parametrize("path", [path for path in SERVERS if path.parent.name != "native"], ids=_name)
def test_an_account_in_an_originals_place_has_all_rights_of_aliquots_server(path: Path) -> None:
    def bound(file: Path, account: tuple[str, str]) -> set[tuple[str, ...]]:
        bindings = [*_of_kind(file, "ClusterRoleBinding"), *_of_kind(file, "RoleBinding")]
        return {
            (binding["metadata"].get("namespace", ""), binding["roleRef"]["kind"], binding["roleRef"]["name"])
            for binding in bindings
            for subject in binding["subjects"]
            if (subject.get("namespace"), subject["name"]) == account
        }

    (account,) = _of_kind(path, "ServiceAccount")
    theirs = bound(path, (account["metadata"]["namespace"], account["metadata"]["name"]))
    assert theirs == bound(DEPLOY / "aliquot.yaml", ("aliquot-system", "aliquot-server"))


@pytest.mark.parametrize("path", [*SERVERS, *sorted(DEPLOY.glob("*/kube-scheduler.yaml"))], ids=_name)
def test_files_that_a_file_names_are_there(path: Path) -> None:
    for named in re.findall(r"[\w./-]+\.yaml", "\n".join(re.findall(r"^ *#(.*)$", path.read_text(), re.M))):
        if "/etc/" not in named:
            places = (path.parent / named, DEPLOY / named, DEPLOY.parent / named)
            assert any(place.exists() for place in places), named
