"""`kubectl gpu` on an API server, for people with all rights and with few."""

import asyncio
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from aliquot.embedded.api import resources
from aliquot.model.load import LOAD, CardLoad, NodeLoad, write_load
from aliquot.model.records import PLACEMENT, write_placement
from aliquot.reports.explained import Explained
from aliquot.reports.history import HistoryReport, HistorySample, PastReport
from aliquot.reports.pods import PodCard, PodReport, PodsReport
from aliquot.reports.report import Use
from aliquot.reports.waste import WastefulPod, WasteReport
from tests.factories import make_cards, make_placement, node_manifest, pod_manifest
from tests.fakes import ScriptedApi, answer, body
from tests.fakes.api import Next
from tests.integration.kubectl.command import Ended, gpu, gpu_beside

pytestmark = pytest.mark.embedded_only("has users of its own making")

CORDON = "cordon.aliquot.io/GPU-gpu-1-0"


def rule(group: str, names: str, *verbs: str) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": names.split(","), "verbs": list(verbs)}


NODES_AND_PODS = [rule("", "nodes,pods", "get", "list")]
User = Callable[..., str]


@pytest.fixture(autouse=True)
def _filled(scripted: ScriptedApi) -> None:
    cards = make_cards("gpu-1")
    make = scripted.registry.create
    for namespace in ("research", "aliquot-nodes", "aliquot-system"):
        make(resources.NAMESPACES, "", {"metadata": {"name": namespace}})
    make(resources.NODES, "", node_manifest("gpu-1", cards))
    record = {PLACEMENT: write_placement(make_placement(cards, 0, main=3072))}
    secret = {"kubectl.kubernetes.io/last-applied-configuration": '{"env":[{"name":"PASSWORD","value":"hunter2"}]}'}
    container = pod_manifest()["spec"]["containers"][0] | {"env": [{"name": "PASSWORD", "value": "hunter2"}]}
    metadata = {"annotations": {**record, **secret}}
    make(resources.PODS, "default", pod_manifest("held", node="gpu-1", metadata=metadata, containers=[container]))
    metadata = {"annotations": {PLACEMENT: write_placement(make_placement(cards, 1, main=5120))}}
    make(resources.PODS, "research", pod_manifest("mine", 5, namespace="research", node="gpu-1", metadata=metadata))
    make(
        resources.PODS, "default", pod_manifest("waiting", 99, metadata={"annotations": secret}, containers=[container])
    )
    load = NodeLoad(time.time(), {"GPU-gpu-1-0": CardLoad(0.5, 2**30, 40.0)})
    lease = {"metadata": {"name": "gpu-1", "annotations": {LOAD: write_load(load)}}, "spec": {}}
    make(resources.LEASES, "aliquot-nodes", lease)


async def run(kubeconfig: str, *arguments: str) -> Ended:
    return await gpu_beside(*arguments, "--kubeconfig", kubeconfig)


async def test_everything_is_read_that_may_be_read(admin: str) -> None:
    ended = await run(admin, "nodes", "--no-headers", "-o", "wide")
    assert ended.err == ""
    assert ended.out.split()[:7] == ["gpu-1", "Ready", "2", "27%", "8.0/30.0", "2", "25%"]


async def test_the_cluster_tells_the_time(scripted: ScriptedApi, admin: str) -> None:
    """The clock of this machine is months ahead of the API server's, and the agent is not silent."""

    async def answer_in_january(request: web.Request, handler: Next) -> web.StreamResponse:
        response = await handler(request)
        response.headers["Date"] = "Sat, 31 Jan 2026 12:00:05 GMT"
        return response

    scripted.registry.create(resources.NODES, "", node_manifest("gpu-2", make_cards("gpu-2")))
    spec = {"holderIdentity": "gpu-2", "leaseDurationSeconds": 60, "renewTime": "2026-01-31T12:00:00.000000Z"}
    scripted.registry.create(resources.LEASES, "aliquot-nodes", {"metadata": {"name": "gpu-2"}, "spec": spec})
    scripted.script("GET", "", *[answer_in_january] * 4)
    ended = await run(admin, "nodes", "--no-headers")
    assert [line.split()[:2] for line in ended.out.splitlines()] == [["gpu-1", "Ready"], ["gpu-2", "Ready"]]


async def test_nodes_and_pods_are_enough_and_the_rest_is_named(user: User) -> None:
    kubeconfig = user(NODES_AND_PODS)
    ended = await run(kubeconfig, "nodes", "--no-headers")
    assert (ended.code, ended.out.split()[3]) == (0, "27%")
    assert ended.err.splitlines() == [
        "note: with one more right you would see how busy cards and pods are, and silent agents: "
        '- {apiGroups: ["coordination.k8s.io"], resources: [leases], verbs: [list]}',
        "note: with one more right you would see cards marked unhealthy in kube-system/unhealthy-gpu-<node>: "
        '- {apiGroups: [""], resources: [configmaps], verbs: [list]}',
    ]


async def test_a_tenant_sees_the_pods_of_one_namespace(scripted: ScriptedApi, admin: str) -> None:
    scripted.script("GET", r"/api/v1/nodes", answer(403, reason="Forbidden"))
    scripted.script("GET", r"/api/v1/pods", answer(403, reason="Forbidden"))
    scripted.script("GET", r"/leases", answer(403, reason="Forbidden"))
    ended = await run(admin, "pods", "-n", "research", "--no-headers")
    assert ended.code == 0
    assert ended.out.split()[:6] == ["mine", "Pending", "gpu-1", "GPU-gpu-1-1", "0%", "5.0"]
    assert ended.err.startswith("note: only pods of namespace research are counted\n")
    assert "the cards of the cluster" in ended.err


async def test_a_tenant_cannot_see_nodes_and_is_told_what_to_use(scripted: ScriptedApi, admin: str) -> None:
    scripted.script("GET", r"/api/v1/nodes", answer(403, reason="Forbidden"))
    scripted.script("GET", r"/api/v1/nodes", answer(403, reason="Forbidden"))
    for command in ("nodes", "top"):
        ended = await run(admin, command)
        assert (ended.code, ended.out) == (1, "")
        assert ended.err == (
            "error: you may not list nodes; `kubectl gpu pods` and `kubectl gpu top pods` show your own pods, "
            'or ask for - {apiGroups: [""], resources: [nodes], verbs: [list]}\n'
        )


async def test_a_tenant_is_not_told_that_no_quota_limits_it(scripted: ScriptedApi, admin: str) -> None:
    assert (await run(admin, "quota", "set", "research", "T4", "--cards", "2")).code == 0
    scripted.script("GET", r"/configmaps", answer(403, reason="Forbidden"))
    ended = await run(admin, "quota", "-n", "research")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("error: you may not read the quotas in ConfigMap kube-system/gpuquota; ask for - {")


async def test_what_is_used_of_a_quota_is_unknown_to_a_tenant_who_sees_no_nodes(
    scripted: ScriptedApi, admin: str
) -> None:
    assert (await run(admin, "quota", "set", "research", "T4", "--cards", "2")).code == 0
    scripted.script("GET", r"/api/v1/nodes", answer(403, reason="Forbidden"))
    ended = await run(admin, "quota", "-n", "research", "--no-headers")
    assert ended.out.split() == ["research", "T4", "cards", "-", "2", "-", "-"]
    assert "the cards of the cluster" in ended.err


async def test_a_tenant_reads_the_cards_of_a_running_pod_from_its_record(scripted: ScriptedApi, admin: str) -> None:
    scripted.script("GET", r"/api/v1/nodes", answer(403, reason="Forbidden"))
    ended = await run(admin, "explain", "mine", "-n", "research")
    assert ended.out.splitlines()[1] == "  container main: 5,120 MiB of card 1, GPU-gpu-1-1"


async def test_a_tenant_is_not_told_that_there_is_no_node(scripted: ScriptedApi, admin: str) -> None:
    scripted.script("GET", r"/api/v1/nodes", answer(403, reason="Forbidden"))
    ended = await run(admin, "whatif", "-f", "examples/gpushare.yaml")
    right = '- {apiGroups: [""], resources: [nodes], verbs: [list]}'
    why = f"error: you may not list nodes, so it cannot be told where pods would go; ask for {right}\n"
    assert (ended.code, ended.out, ended.err) == (1, "", why)


async def test_a_tenant_is_not_told_that_pods_hold_nothing(scripted: ScriptedApi, admin: str) -> None:
    scripted.script("GET", r"/api/v1/nodes", answer(403, reason="Forbidden"))
    ended = await run(admin, "waste", "-n", "research", "--no-headers")
    assert [line.split() for line in ended.out.splitlines()] == [["mine", "gpu-1", *"----", "5.0", *"--"]]


async def test_somebody_without_rights_is_told_so_in_one_line(user: User) -> None:
    ended = await run(user([]), "pods")
    assert ended.code == 1
    assert ended.err.startswith("error: pods is forbidden")
    assert ended.err.count("\n") == 1


async def test_a_server_that_is_away_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "away"
    path.write_text(
        "{clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: a, user: {}}],"
        " contexts: [{name: a, context: {cluster: a, user: a}}], current-context: a}"
    )
    ended = await run(str(path), "nodes")
    assert ended.code == 1
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1


async def test_a_cordon_is_an_annotation_that_everybody_reads(scripted: ScriptedApi, admin: str) -> None:
    def annotations() -> dict[str, str]:
        return dict(scripted.registry.get(resources.NODES, "", "gpu-1").obj["metadata"]["annotations"])

    assert (await run(admin, "cordon", "gpu-1/0")).err == "card 0 of node gpu-1 (Tesla T4) is cordoned now\n"
    assert annotations()[CORDON] == "true"
    assert (await run(admin, "cordon", "gpu-1/GPU-gpu-1-0")).err.endswith("is cordoned already\n")
    assert "Cordoned" in (await run(admin, "nodes", "gpu-1")).out
    assert (await run(admin, "uncordon", "gpu-1/0")).code == 0
    assert CORDON not in annotations()
    assert (await run(admin, "uncordon", "gpu-1/0", "--good")).code == 0
    assert annotations()[CORDON] == "false"
    missing = await run(admin, "cordon", "gpu-1/7")
    assert (missing.code, missing.err) == (1, "error: node gpu-1 has no card 7; its cards are 0, 1\n")
    assert (await run(admin, "cordon", "gpu-9/0")).err == 'error: nodes "gpu-9" not found\n'


async def test_a_quota_is_set_changed_and_removed(scripted: ScriptedApi, admin: str) -> None:
    def text() -> str:
        return str(scripted.registry.get(resources.CONFIG_MAPS, "kube-system", "gpuquota").obj["data"]["gpu_quota"])

    assert (await run(admin, "quota", "set", "research", "T4", "--cards", "2")).code == 0
    assert (await run(admin, "quota", "set", "default", "T4", "--memory", "20Gi", "--pools", "a,b")).code == 0
    shown = await run(admin, "quota", "-A", "--no-headers")
    assert [line.split() for line in shown.out.splitlines()] == [
        ["default", "T4", "MiB", "3072", "20480", "15%", "a,b"],
        ["research", "T4", "cards", "0.3333", "2", "17%", "-"],
    ]
    removed = await run(admin, "quota", "set", "research", "T4", "--cards", "none")
    assert (removed.code, removed.err) == (0, "namespace research has no limit of cards for T4 any more\n")
    assert "research" not in text()
    before = text()
    assert (await run(admin, "quota", "set", "x", "T4", "--cards", "1", "--dry-run")).err.count('"x"') == 1
    assert text() == before


async def test_quotas_may_be_in_another_config_map(scripted: ScriptedApi, admin: str) -> None:
    elsewhere = ("--quotas", "default/limits/gpus")
    assert (await run(admin, "quota", "set", "research", "T4", "--cards", "2", *elsewhere)).code == 0
    assert "research" in scripted.registry.get(resources.CONFIG_MAPS, "default", "limits").obj["data"]["gpus"]
    assert (await run(admin, "quota", "-A", "--no-headers", *elsewhere)).out.split()[:2] == ["research", "T4"]
    assert (await run(admin, "quota", "-A")).err == "no quota limits any namespace\n"
    wrong = await run(admin, "quota", "--quotas", "limits")
    assert (wrong.code, wrong.err) == (1, "error: --quotas limits: write NAMESPACE/NAME or NAMESPACE/NAME/KEY\n")


async def test_a_quota_that_changed_meanwhile_is_not_overwritten(scripted: ScriptedApi, admin: str) -> None:
    assert (await run(admin, "quota", "set", "research", "T4", "--cards", "2")).code == 0
    scripted.script("PATCH", r"/configmaps/", answer(409, reason="Conflict", message="it has changed"))
    ended = await run(admin, "quota", "set", "research", "T4", "--cards", "3")
    assert (ended.code, ended.err) == (1, "error: it has changed\n")


async def test_a_dump_has_everything_but_secrets(admin: str, tmp_path: Path) -> None:
    path = str(tmp_path / "dump.tar.gz")
    ended = await run(admin, "dump", path)
    assert (ended.code, ended.err) == (0, f"{path} has 1 nodes, 3 pods and 0 events\n")
    with tarfile.open(path) as archive:
        files = {name: archive.extractfile(name).read() for name in archive.getnames()}  # type: ignore[union-attr]
    assert {"objects.json", "decisions.json", "doctor.json", "nodes.json", "schedulers.yaml"} <= files.keys()
    assert b"hunter2" not in b"".join(files.values())
    assert PLACEMENT.encode() in files["objects.json"]
    assert Path(path).stat().st_mode & 0o077 == 0
    from_file = await asyncio.to_thread(lambda: gpu_text("nodes", "--from", path))
    assert from_file == (await run(admin, "nodes")).out


async def test_a_dump_has_the_configuration_and_what_doctor_found(
    scripted: ScriptedApi, admin: str, tmp_path: Path
) -> None:
    private = "-----BEGIN EC PRIVATE KEY-----\nhunter2\n"
    data = {
        "server.yaml": "listen: {port: 12340}\nproxy: {password: hunter2}",
        "key.pem": private,
        "token": "hunter2",
    }
    config = {"metadata": {"name": "server-config"}, "data": data}
    scripted.registry.create(resources.CONFIG_MAPS, "aliquot-system", config)
    about = {"kind": "Pod", "name": "waiting", "namespace": "default", "uid": uid_of(scripted, "waiting")}
    event = {"metadata": {"name": "e"}, "involvedObject": about, "reason": "NoRoom", "message": "too full"}
    scripted.registry.create(resources.EVENTS, "default", event)
    path, again = str(tmp_path / "dump.tar.gz"), str(tmp_path / "again.tar.gz")
    assert (await run(admin, "dump", path)).code == 0
    assert (await asyncio.to_thread(gpu, "dump", again, "--from", path)).code == 0
    for each in (path, again):
        with tarfile.open(each) as archive:
            files = {name: archive.extractfile(name).read() for name in archive.getnames()}  # type: ignore[union-attr]
        assert b"port: 12340" in files["server.yaml"]
        assert b"hunter2" not in b"".join(files.values())
        assert b"too full" in files["decisions.json"]
        found = await asyncio.to_thread(gpu, "doctor", "-o", "wide", "--from", each)
        assert found.out == (await run(admin, "doctor", "-o", "wide")).out
        assert "the archive does not have" not in found.out


def uid_of(scripted: ScriptedApi, pod: str) -> str:
    return str(scripted.registry.get(resources.PODS, "default", pod).obj["metadata"]["uid"])


def gpu_text(*arguments: str) -> str:
    return gpu(*arguments).out


async def test_a_dump_that_cannot_be_written_leaves_nothing(admin: str, tmp_path: Path) -> None:
    ended = await run(admin, "dump", str(tmp_path / "no" / "dump.tar.gz"))
    assert ended.code == 1
    assert "cannot be written: no such file" in ended.err


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["no"], ["nodes"]),
        (["nodes", "--b"], ["--by"]),
        (["nodes", "--by", ""], ["model"]),
        (["nodes", "g"], ["gpu-1"]),
        (["cordon", "gpu-1/"], ["gpu-1/0", "gpu-1/1"]),
        (["pods", "-A", ""], ["held", "mine", "waiting"]),
        (["pods", "-n", "re"], ["research"]),
        (["top", "p"], ["pods"]),
        (["quota", "s"], ["set", "show"]),
        (["dump", "f"], []),
    ],
)
async def test_words_are_completed(
    words: list[str], found: list[str], admin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", admin)
    ended = await gpu_beside("__complete", *words)
    assert ended.out.splitlines()[:-1] == found
    assert ended.out.splitlines()[-1] == (":0" if words[0] == "dump" else ":4")


async def test_a_server_answers_instead_and_knows_since_when_a_pod_is_idle(scripted: ScriptedApi, admin: str) -> None:
    pod = WastefulPod(
        namespace="research",
        name="mine",
        node="gpu-1",
        held=0.5,
        used=0.0,
        unused=0.5,
        memory_mib=5120,
        use=Use(cores=0.0, memory_bytes=0),
        is_idle=True,
        idle_since="2026-01-31T12:00:00Z",
    )
    answered = WasteReport(pods=[pod], held=0.5, measured=0.5, unused=0.5)
    scripted.script("GET", r"/v1/waste\?namespace=research$", body(msgspec.json.encode(answered)))
    ended = await run(admin, "waste", "-n", "research", "--no-headers", "--server", scripted.url)
    assert ended.err == ""
    shown = ["mine", "gpu-1", "0.50", "0.00", "0.50", "0%", "5.0", "0.0", "2026-01-31T12:00:00Z"]
    assert ended.out.splitlines()[0].split() == shown


async def test_a_server_that_refuses_is_one_line(scripted: ScriptedApi, admin: str) -> None:
    scripted.script("GET", r"/v1/nodes", body(b'{"error": "somebody may not list nodes"}', status=403))
    ended = await run(admin, "nodes", "--server", scripted.url)
    assert (ended.code, ended.err) == (1, "error: somebody may not list nodes\n")


@pytest.mark.parametrize(
    ("server", "why"),
    [
        ("http://aliquot.example.com", "your token could be read on its way; use https"),
        ("aliquot.example.com", "write an address such as https://aliquot.example.com:12340"),
        ("http://[", "Invalid IPv6 URL"),
    ],
)
async def test_a_token_goes_to_no_address_that_others_could_read(server: str, why: str, admin: str) -> None:
    ended = await run(admin, "queue", "--server", server)
    assert (ended.code, ended.err) == (1, f"error: --server {server}: {why}\n")


async def test_top_begins_with_what_a_server_has_seen(scripted: ScriptedApi, admin: str) -> None:
    samples = [HistorySample(at="", cores=cores, memory_bytes=0) for cores in (0.0, 0.5, None, 1.0)]
    histories = [PastReport(namespace="research", name="mine", since="", samples=samples)]
    past = HistoryReport(histories=histories, note="pods that are not shown: 1")
    card = PodCard(index=0, uuid="u", model="m", cores=0, memory_mib=5120, use=Use(cores=1.0))
    pod = PodReport(
        namespace="research",
        name="mine",
        uid="uid",
        state="Running",
        node="gpu-1",
        dialect="",
        asks="",
        cards=(card,),
        use=card.use,
    )
    scripted.script("GET", r"/v1/history\?", body(msgspec.json.encode(past)))
    scripted.script("GET", r"/v1/pods\?", body(msgspec.json.encode(PodsReport(pods=[pod]))))
    ended = await run(admin, "top", "pods", "-n", "research", "--no-headers", "--server", scripted.url)
    assert (ended.err, ended.out.split()[-1]) == ("note: pods that are not shown: 1\n", "▁▅██")


async def test_a_server_explains_a_pod_and_shows_the_node(scripted: ScriptedApi, admin: str) -> None:
    told = Explained(pod="research/p", cause="OtherScheduler", outlook="never", message="Never as things are: so")
    scripted.script("GET", r"/v1/explain/research/p\?namespace=research&node=gpu-1$", body(msgspec.json.encode(told)))
    ended = await run(admin, "explain", "pod/p", "-n", "research", "--node", "gpu-1", "--server", scripted.url)
    assert (ended.code, ended.out, ended.err) == (0, "research/p waits. Never as things are: so\n", "")
