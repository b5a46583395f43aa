"""The query API through a real API server: kubectl as admin, tenant and stranger, forged callers, a CA that changes,
kube-scheduler by way of the API server, and what is left when the server is down. Nodes and pods are only objects."""

import asyncio
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from aliquot.kube import Client, Informer, from_kubeconfig
from aliquot.kube.resources import ApiResource
from aliquot.model import NodeGpus, Object
from aliquot.model.records import PLACEMENT
from tests.factories import make_gpu
from tests.ports import free_port
from tests.real.aggregated import ACCOUNT, NO_HANDSHAKE, Person, register, straight, wait_available
from tests.real.by_hand import Asking, Refusal
from tests.real.objects import asking, gpu_node
from tests.real.scheduler import DEPLOY, Scheduling, pointed_at
from tests.real.serving import SHORT_LEASE, Serving, serving
from tests.rig.certificates import Identity
from tests.rig.waiting import wait_for

pytestmark = [pytest.mark.e2e]

SEED = "/apis/metrics.nvidia.com/v1alpha1"
T4, A100 = "Tesla T4", "NVIDIA A100-SXM4-40GB"
FULL = "not enough room on the node's GPUs now"
GPU = "nvidia.com/gpu"

PEOPLE = """
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: tenant, namespace: team}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: stranger, namespace: team}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant, namespace: team}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: aliquot-podgpus-view}
subjects: [{kind: ServiceAccount, name: tenant, namespace: team}]
"""


@dataclass(frozen=True)
class Querying:
    cluster: Scheduling
    server: Serving
    port: int
    admin: Person
    tenant: Person
    stranger: Person

    def restart(self) -> None:
        self.server.start()
        wait_available(self.cluster, self.server.process)


def cards(node: str, **counts: int) -> NodeGpus:
    models = [T4] * counts.get("t4", 0) + [A100] * counts.get("a100", 0)
    return NodeGpus(node, tuple(make_gpu(index, node, model=model) for index, model in enumerate(models)), 1024)


@pytest.fixture(scope="module")
def querying(progress: Callable[[str], None]) -> Iterator[Querying]:
    """A node of two models; a pod on an A100 of it, and a tenant's on a T4."""
    port = free_port()
    with Scheduling.up(progress) as cluster:
        register(cluster.apply, port)
        cluster.apply(PEOPLE)
        cluster.create(gpu_node("mixed", "nvidia", cards("mixed", t4=2, a100=2)))
        with serving(cluster, account=ACCOUNT, env=SHORT_LEASE, query_api_enabled="true", nvidia_port=port) as server:
            wait_available(cluster, server.process)
            people = [
                Person(cluster, cluster.service_account_kubeconfig("team", name)) for name in ("tenant", "stranger")
            ]
            admin = Person(cluster, cluster.api.control_plane.kubeconfig("admin"))
            made = Querying(cluster, server, port, admin, *people)
            place(made, "train", A100)
            place(made, "mine", T4, "team")
            yield made


def place(querying: Querying, name: str, model: str, namespace: str = "default") -> str:
    """A pod that somebody has bound to the node; returns its card."""
    wish = {"nvidia.com/gpu.model": model}
    querying.cluster.create(asking(name, {GPU: 1}, namespace=namespace, annotations=wish, nodeName="mixed"))
    return card_of(querying.cluster.wait_annotated(f"{namespace}/{name}", PLACEMENT))


def card_of(pod: dict[str, Any]) -> str:
    ((part,),) = json.loads(pod["metadata"]["annotations"][PLACEMENT])["containers"].values()
    return str(part["uuid"])


# -- kubectl


def test_an_admin_sees_nodes_and_pods_with_their_cards(querying: Querying) -> None:
    admin = querying.admin
    (node,) = admin.rows("gpuinfos")
    assert [node[name] for name in ("NAME", "MODELS", "TOTAL", "BUSY", "FREE")] == [
        "mixed",
        "tesla t4, nvidia a100-sxm4-40gb",
        "4",
        "2",
        "2",
    ]
    assert admin.rows("gpunodes")[0]["NAME"] == "mixed"
    assert len(admin.kubectl("get", "gpuinfos", "-o", "wide").splitlines()[0].split()) > len(node)
    pods = {row["NAME"]: row for row in admin.rows("podresources")}
    assert pods.keys() == {"default.train", "team.mine"}
    assert (pods["default.train"]["NODE"], pods["default.train"]["GPUS"]) == ("mixed", "1")
    assert pods["default.train"]["MODEL"] == A100
    assert {row["NAME"] for row in admin.rows("gpupods")} == pods.keys()
    assert [row["NAME"] for row in admin.rows("podgpus", "-n", "team")] == ["mine"]
    assert len(admin.rows("podgpus", "-A")) == 2
    everything = admin.kubectl("get", "gpu", "-A", "-o", "name").split()
    assert {"gpuinfo.metrics.nvidia.com/mixed", "podgpu.gpu.aliquot.io/mine"} <= {*everything}, "by its category"


def test_yaml_has_the_fields_of_the_original_and_those_of_kubernetes(querying: Querying) -> None:
    read = yaml.safe_load(querying.admin.kubectl("get", "podresources", "default.train", "-o", "yaml"))
    assert (read["apiVersion"], read["kind"]) == ("metrics.nvidia.com/v1alpha1", "PodResource")
    assert {"name", "uid", "creationTimestamp", "resourceVersion"} <= read["metadata"].keys()
    (container,) = read["spec"]["containers_device"]
    ((device,),) = [container["device_info"]]
    pod = querying.cluster.pod("default/train")
    assert (device["device_id"], device["device_model"]) == (card_of(pod), A100)
    (node,) = querying.admin.objects("gpuinfos")
    assert card_of(pod) in node["spec"]["device_busy"]
    assert node["spec"]["device_models"].keys() == {T4.lower(), A100.lower()}


def test_kubectl_explains_and_waits(querying: Querying) -> None:
    admin = querying.admin
    for words, said in (
        (("gpuinfos.spec",), "device_models"),
        (("podresources.spec.containers_device",), "container_name"),
        (("podgpus",), "gpu.aliquot.io"),
    ):
        assert said in admin.kubectl("explain", *words)
    for_node = "--for=jsonpath={.spec.device_node}=mixed"
    assert "condition met" in admin.kubectl("wait", for_node, "gpuinfos/mixed", "--timeout=10s")
    with admin.watching("waiting", "wait", "--for=create", "podresources/default.later", "--timeout=30s") as waiting:
        place(querying, "later", T4)
        waiting.wait("condition met")
    with admin.watching("waiting", "wait", "--for=delete", "podresources/default.later", "--timeout=30s") as waiting:
        querying.cluster.delete_pod("default/later")
        assert waiting.ended() == 0


def test_watches_show_pods_come_and_go(querying: Querying) -> None:
    admin, raw = querying.admin, f"{SEED}/podresources?watch=true"
    with (
        admin.watching("table", "get", "podresources", "-w", "--output-watch-events") as table,
        admin.watching("raw", "get", "--raw", raw) as original,
        querying.tenant.watching("tenant", "get", "podgpus", "-n", "team", "-w") as tenant,
    ):
        table.wait("ADDED", "team.mine")
        original.wait('"SYNCED"', '"train"')
        tenant.wait("mine")
        card = place(querying, "new", A100, "team")
        table.wait("ADDED", "team.new", "mixed")
        assert card in original.wait('"SYNCED"', '"new"')
        tenant.wait("new")
        querying.cluster.delete_pod("team/new")
        table.wait("DELETED", "team.new")
        gone = json.loads(original.wait('"DELETED"'))
        assert gone["Object"]["spec"] == {"pod_name": "new", "pod_namespace": "team"}
        assert not any("train" in line for line in tenant.lines)


# -- who may see what


def test_everybody_sees_what_rbac_gives_them(querying: Querying) -> None:
    for words in (
        ("gpuinfos",),
        ("podresources",),
        ("gpupods",),
        ("podgpus", "-n", "team"),
        ("--raw", f"{SEED}/gpuinfos"),
    ):
        assert "orbidden" in querying.stranger.kubectl("get", *words, code=1)
    assert [row["NAME"] for row in querying.tenant.rows("podgpus", "-n", "team")] == ["mine"]
    for words in (("podgpus", "-n", "default"), ("podgpus", "-A"), ("gpuinfos",)):
        assert "orbidden" in querying.tenant.kubectl("get", *words, code=1)


def test_nobody_gets_in_with_a_forged_name(querying: Querying) -> None:
    """Straight at the port, as any pod could ask."""
    held, path = querying.cluster.api.certificates, f"{SEED}/gpuinfos"
    forged = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    impostor = held.front_proxy_client("impostor")
    token = yaml.safe_load(querying.stranger.kubeconfig.read_text())["users"][0]["user"]["token"]
    assert straight(querying.port, path, shown=held.front_proxy, headers=forged)[0] == 200, "kube-apiserver itself"
    cases: dict[str, tuple[Any, dict[str, str], int, str]] = {
        "no certificate": (None, {}, 403, "system:anonymous"),
        "a certificate of the cluster": (held.scheduler, {}, 403, "system:kube-scheduler"),
        "another name from the front proxies' CA": (impostor, {}, 401, ""),
        "a pod's token": (None, {"Authorization": f"Bearer {token}"}, 403, "system:serviceaccount:team:stranger"),
        "a made-up token": (None, {"Authorization": "Bearer x"}, 401, ""),
    }
    for case, (shown, more, code, user) in cases.items():
        status, body = straight(querying.port, path, shown=shown, headers={**forged, **more})
        assert (status, body["kind"]) == (code, "Status"), case
        assert f'User "{user}"' in body["message"] or not user, case
    assert straight(querying.port, path, shown=held.admin)[0] == 200


def test_requests_go_on_while_the_front_proxies_ca_changes(querying: Querying) -> None:
    """kube-apiserver follows its files: first it trusts both CAs, then its own certificate is from the new one."""
    held, path = querying.cluster.api.certificates, f"{SEED}/gpuinfos"
    old = Identity(
        *(Path(shutil.copy(file, f"{file}.old")) for file in (held.front_proxy.certificate, held.front_proxy.key))
    )
    authority, new = held.new_front_proxy()
    forged = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}

    def answers(shown: Identity) -> int:
        return straight(querying.port, path, shown=shown, headers=forged)[0]

    with asking_all_along(querying, path) as answered:
        assert (answers(old), answers(new)) == (200, NO_HANDSHAKE)
        replace(held.front_proxy_authority, held.front_proxy_authority.read_bytes() + authority)
        wait_for("the server to trust the new CA", lambda: answers(new) == 200, seconds=90)
        replace(held.front_proxy.key, new.key.read_bytes())
        replace(held.front_proxy.certificate, new.certificate.read_bytes())
        enough = len(answered) + 300
        wait_for("more requests to be answered", lambda: len(answered) > enough, seconds=30)
        assert set(answered) == {""}
    replace(held.front_proxy_authority, authority)
    maps = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    settings = {"data": {"requestheader-client-ca-file": authority.decode()}}
    querying.cluster.ask("PATCH", maps, settings, content="application/merge-patch+json")
    wait_for("the server to drop the old CA", lambda: (answers(old), answers(new)) == (NO_HANDSHAKE, 200), seconds=30)
    wait_for("kube-apiserver to be known", lambda: not refused(querying.cluster.ask, path), seconds=60)


@contextmanager
def asking_all_along(querying: Querying, path: str) -> Iterator[list[str]]:
    """What was wrong with each answer of the API server while the block runs: nothing."""
    answered, over = list[str](), threading.Event()

    def work() -> None:
        with closing(Asking(querying.cluster.api.url)) as ask:
            while not over.is_set():
                answered.append(refused(ask, path))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield answered
    finally:
        over.set()
        thread.join()


def refused(ask: Asking, path: str) -> str:
    try:
        ask("GET", path)
    except (Refusal, OSError) as error:
        return str(error)
    return ""


def replace(file: Path, content: bytes) -> None:
    """At once: nobody may read half a file."""
    written = file.with_suffix(".written")
    written.write_bytes(content)
    written.rename(file)


# -- kube-scheduler by way of the API server


def test_twenty_pods_at_once_for_nineteen_cards_of_a_model(querying: Querying) -> None:
    cluster = querying.cluster
    for name in ("default/train", "team/mine"):
        cluster.delete_pod(name)
    nodes = [cards(f"m{place}", t4=3, a100=4) for place in range(3)] + [cards("a", a100=5), cards("t", t4=8)]
    cluster.create(*(gpu_node(each.node, "nvidia", each) for each in nodes))
    wanted = {gpu.uuid for each in nodes for gpu in each.gpus if gpu.model == A100} | {"GPU-mixed-2", "GPU-mixed-3"}
    assert len(wanted) == 19
    cluster.schedule(through_the_api_server(cluster))
    pods = [f"p{number:02}" for number in range(20)]
    try:
        cluster.create(*(asking(name, {GPU: 1}, annotations={"nvidia.com/gpu.model": "A100"}) for name in pods))
        wait_for("19 pods to be bound", lambda: len(cluster.bound().keys() & {*pods}) == 19, seconds=60)
        (last,) = {*pods} - cluster.bound().keys()
        cluster.wait_refused(last, FULL)
        placed = {name: card_of(cluster.wait_annotated(name, PLACEMENT)) for name in pods if name != last}
        assert set(placed.values()) == wanted
        assert last not in cluster.bound()
        ended = pods[0] if last != pods[0] else pods[1]
        cluster.delete_pod(ended)
        cluster.wait_bound(last, seconds=60)
        assert card_of(cluster.wait_annotated(last, PLACEMENT)) == placed[ended]
        calls = [json.loads(line) for line in querying.server.process.log.read_text().splitlines()]
        callers = {each["caller"] for each in calls if each.get("verb") == "filter"}
        assert callers == {"system:kube-scheduler"}, "by its own name, by way of the API server"
        for pod in cluster.pods():
            assert pod["status"].get("reason") != "AliquotNoRoom"
    finally:
        cluster.scheduler.stop()


def through_the_api_server(cluster: Scheduling) -> dict[str, Any]:
    """The shipped configuration, with the certificates of this cluster."""
    plane, held = cluster.api.control_plane, cluster.api.certificates
    config = pointed_at(DEPLOY / "nvidia-gpu-scheduler" / "kube-scheduler-through-apiserver.yaml", plane.url)
    (extender,) = config["extenders"]
    identity = {"certFile": str(held.scheduler.certificate), "keyFile": str(held.scheduler.key)}
    extender["tlsConfig"] = {"caFile": str(held.authority), **identity}
    return config


# -- without the server


def test_without_the_server_the_rest_of_the_cluster_goes_on(querying: Querying) -> None:
    """Kubernetes ends no namespace while an aggregated API is away: it cannot know what that API has there. It empties
    the namespace, and ends it as soon as the API is back."""
    cluster, admin = querying.cluster, querying.admin
    querying.server.process.stop()
    try:
        wait_available(cluster, is_up=False)
        assert "nvidia" in admin.kubectl("get", "gpuinfos", code=1)
        assert "mixed" in admin.kubectl("get", "nodes")
        assert "Deployment" in admin.kubectl("explain", "deployments.apps")
        with namespace_to_end(cluster) as doomed:
            admin.kubectl("delete", "namespace", doomed, "--wait=false")
            wait_for("the namespace to be empty", lambda: _is_empty(cluster, doomed), seconds=60)
            wait_for("kube-controller-manager to say why", lambda: _is_blocked(cluster, doomed), seconds=30)
            querying.restart()
            admin.kubectl("wait", "--for=delete", f"namespace/{doomed}", "--timeout=60s")
    finally:
        if not querying.server.process.running:
            querying.restart()


def test_with_another_replica_nothing_waits_for_one_that_is_down(querying: Querying) -> None:
    """The APIServices lead to the other replica, as their Service would do when one is not ready."""
    cluster, admin, port = querying.cluster, querying.admin, free_port()
    with (
        serving(cluster, account=ACCOUNT, env=SHORT_LEASE, query_api_enabled="true", nvidia_port=port) as other,
        namespace_to_end(cluster) as doomed,
    ):
        try:
            register(cluster.apply, port)
            wait_available(cluster, other.process)
            assert "mixed" in admin.kubectl("get", "gpuinfos"), "a follower answers from its own cluster state"
            querying.server.process.stop()
            wait_available(cluster, other.process)
            assert "mixed" in admin.kubectl("get", "gpuinfos")
            admin.kubectl("delete", "namespace", doomed, "--timeout=60s")
        finally:
            register(cluster.apply, querying.port)
            if not querying.server.process.running:
                querying.server.start()
            wait_available(cluster, querying.server.process)


@contextmanager
def namespace_to_end(cluster: Scheduling) -> Iterator[str]:
    """A namespace with something in it, while kube-controller-manager ends namespaces, and does nothing else."""
    name, manager = "doomed", cluster.api.control_plane.controller_manager
    cluster.apply(f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}")
    cluster.apply(f"{{apiVersion: v1, kind: ConfigMap, metadata: {{name: content, namespace: {name}}}}}")
    only = "--controllers=namespace-controller"
    manager.argv.append(only)
    manager.start()
    try:
        yield name
    finally:
        manager.kill()
        manager.argv.remove(only)


def _is_blocked(cluster: Scheduling, namespace: str) -> bool:
    conditions = cluster.ask("GET", f"/api/v1/namespaces/{namespace}")["status"].get("conditions", ())
    return any(each["type"] == "NamespaceDeletionDiscoveryFailure" and each["status"] == "True" for each in conditions)


def _is_empty(cluster: Scheduling, namespace: str) -> bool:
    return not cluster.ask("GET", f"/api/v1/namespaces/{namespace}/configmaps")["items"]


PODRESOURCES = ApiResource(SEED[1:], "podresources", Object, namespaced=False)


def test_an_informer_is_right_again_after_each_restart_of_the_server(querying: Querying) -> None:
    asyncio.run(_followed(querying))


async def _followed(querying: Querying) -> None:
    async with Client(from_kubeconfig(querying.admin.kubeconfig)) as client:
        informer = Informer(client, PODRESOURCES, lambda _, __: None)
        running = asyncio.create_task(informer.run())
        try:
            for number, end in enumerate(("stop", "kill")):
                await _until(lambda: _has(informer, querying))
                await asyncio.to_thread(place, querying, f"before-{number}", T4)
                await _until(lambda: _has(informer, querying))
                getattr(querying.server.process, end)()
                querying.cluster.delete_pod(f"default/before-{number}")
                await asyncio.to_thread(querying.restart)
                await _until(lambda: _has(informer, querying))
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


def _has(informer: Informer[Object], querying: Querying) -> bool:
    """Whether the copy is what the cluster has."""
    shown = {each.metadata.name for each in informer.all()}
    return shown == {f"{m['namespace']}.{m['name']}" for pod in querying.cluster.pods() if (m := pod["metadata"])}


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.05)
