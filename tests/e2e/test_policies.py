"""The admission policies on a real API server: the same matrix as on the embedded one, and what only a real one has."""

import json
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from aliquot.control.admission import ACTIONS, manifests
from aliquot.dialects import standard_dialects
from aliquot.embedded import EmbeddedCluster
from aliquot.kube.access import from_kubeconfig
from aliquot.model.admission import EPOCH_MAP, PARAMETERS, STALE_EPOCH, WRITERS_MAP
from aliquot.model.records import EPOCH
from tests.integration.policies.attempt import binding, config_map, judge, parameters
from tests.integration.policies.caller import MERGE, Caller
from tests.integration.policies.cases import CASES, INDEX, PLACED, SERVER, TERM, USER, Case
from tests.integration.policies.reach import HERE, STRATEGIC, THERE, WRITES, Write
from tests.integration.policies.reach import judge as judge_reach
from tests.rig import Rig, RigError, wait_for

pytestmark = pytest.mark.e2e

DEPLOY = Path(__file__).parents[2] / "deploy"
HOME, PODS = "policies-home", "policies-pods"
"""Namespaces of our own: a server of Aliquot may be running in the usual one."""
_KINDS = "validatingadmissionpolicies,validatingadmissionpolicybindings"
_names = (f"p{number}" for number in count())


def apply(rig: Rig, *documents: dict[str, Any]) -> None:
    rig.apply(yaml.safe_dump_all(documents))


def gpu_pod(name: str, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
    """No scheduler looks after it."""
    container = {"name": "main", "image": "none:1", "resources": {"limits": {"aliyun.com/gpu-mem": "1"}}}
    metadata = {"name": name, "namespace": PODS, "annotations": dict(annotations or {})}
    spec = {"schedulerName": "nobody", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def refusal(rig: Rig, *arguments: str, input: str | None = None) -> str:  # noqa: A002
    """Why kubectl failed; empty if it did not."""
    try:
        rig.kubectl(*arguments, input=input)
    except RigError as error:
        return str(error)
    return ""


def bind_nothing(rig: Rig, user: str, annotations: Mapping[str, str]) -> str:
    """Why a Binding that can come to nothing is refused."""
    body = json.dumps(binding("nobody", namespace=PODS, annotations=annotations))
    path = f"/api/v1/namespaces/{PODS}/pods/nobody/binding?dryRun=All"
    return refusal(rig, "create", f"--raw={path}", "--filename=-", *as_user(user), input=body)


def as_user(name: str) -> tuple[str, ...]:
    return f"--as={name}", "--as-group=system:masters"


def remove_policies(rig: Rig) -> None:
    rig.kubectl("delete", _KINDS, "--selector=app.kubernetes.io/part-of=aliquot")
    wait_for("the policies to be forgotten", lambda: probe(rig, "0") == "current", seconds=30)


def probe(rig: Rig, epoch: str) -> str:
    told = bind_nothing(rig, SERVER, {**PLACED, EPOCH: epoch})
    return "stale" if STALE_EPOCH in told else "current" if "not found" in told else told


def refuses_deletion(rig: Rig) -> bool:
    arguments = ("delete", "configmap", EPOCH_MAP, f"--namespace={HOME}", "--dry-run=server")
    return "delete the policies" in refusal(rig, *arguments)


def refuses_forgery(rig: Rig) -> bool:
    return f"denied request: {USER} may not write UUID" in bind_nothing(rig, USER, {"UUID": "x"})


@pytest.fixture(scope="module")
def guarded(rig: Rig) -> Iterator[Rig]:
    """A cluster whose policies refuse."""
    for name in (HOME, PODS):
        apply(rig, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    apply(rig, *parameters(HOME))
    apply(rig, *manifests(standard_dialects(), HOME, ACTIONS["Deny"]))
    try:
        account = ("get", "serviceaccount", "default", f"--namespace={PODS}", "--output=name")
        wait_for("the namespace's account", lambda: rig.kubectl(*account, check=False), seconds=30)
        wait_for("fencing", lambda: (probe(rig, "0"), probe(rig, TERM)) == ("stale", "current"), seconds=30)
        wait_for("the other policies", lambda: refuses_deletion(rig) and refuses_forgery(rig), seconds=30)
        yield rig
    finally:
        remove_policies(rig)
        rig.kubectl("delete", "namespace", HOME, PODS, "--wait=false", "--ignore-not-found")


@pytest.fixture
async def caller(guarded: Rig) -> AsyncIterator[Caller]:
    access = from_kubeconfig(guarded.admin_kubeconfig)
    connector = aiohttp.TCPConnector(ssl=access.tls or True)
    async with aiohttp.ClientSession(connector=connector) as session:
        yield Caller(session, access.server)


@pytest.mark.parametrize("case", CASES)
async def test_a_real_server_answers_as_the_matrix_says(caller: Caller, case: Case) -> None:
    await judge(caller, case, PODS, next(_names))


@pytest.mark.parametrize("write", WRITES)
async def test_our_accounts_write_what_they_must_and_no_more(caller: Caller, write: Write) -> None:
    await judge_reach(caller, write, HOME, PODS, next(_names))


class Thief:
    """Whoever has got hold of a token."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str) -> None:
        self._session = session
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": STRATEGIC}

    async def patch(self, path: str, body: object) -> tuple[int, str]:
        request = self._session.patch(self._url + path, data=json.dumps(body), headers=self._headers)
        async with request as response:
            return response.status, (await response.json()).get("message", "")


def agent_pod(rig: Rig, name: str) -> None:
    """A pod of the agent's account on the rig's node: kubelet need not start it, its token is what counts."""
    container = {"name": "main", "image": "registry.example/none:1"}
    spec = {"serviceAccountName": "aliquot-agent", "nodeName": rig.node_name, "containers": [container]}
    metadata = {"name": name, "namespace": HOME}
    apply(rig, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


@pytest.fixture(scope="module")
def with_rights(guarded: Rig) -> Rig:
    """Our accounts, in the namespace of these tests, with the rights that the shipped manifest gives them."""
    documents = yaml.safe_load_all((DEPLOY / "aliquot.yaml").read_text())
    made = []
    for document in documents:
        text = yaml.safe_dump(document).replace("aliquot-system", HOME)
        if document["kind"] == "ServiceAccount" or document["kind"].startswith(("Role", "ClusterRole")):
            moved = yaml.safe_load(text)
            moved["metadata"]["name"] += "-of-policies" if "Role" in document["kind"] else ""
            if "roleRef" in moved:
                moved["roleRef"]["name"] += "-of-policies"
            made.append(moved)
    for name in (HOME, "aliquot-nodes"):
        apply(guarded, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    apply(guarded, *made)
    return guarded


async def test_a_stolen_token_of_an_agent_reaches_its_own_node_only(with_rights: Rig, caller: Caller) -> None:
    rig, node = with_rights, with_rights.node_name
    agent_pod(rig, "agent")
    create = ("create", "token", "aliquot-agent", f"--namespace={HOME}")
    tokens = {
        "of a pod": rig.kubectl(*create, "--bound-object-kind=Pod", "--bound-object-name=agent").strip(),
        "of the node": rig.kubectl(*create, "--bound-object-kind=Node", f"--bound-object-name={node}").strip(),
        "of nothing": rig.kubectl(*create).strip(),
    }
    await caller.send("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": THERE}})
    for name, place in (("here", node), ("there", THERE)):
        apply(rig, gpu_pod(name) | {"spec": gpu_pod(name)["spec"] | {"nodeName": place}})
    pods = f"/api/v1/namespaces/{PODS}/pods"
    mark = {"metadata": {"annotations": {"ALIYUN_COM_GPU_MEM_ASSIGNED": "true"}}}
    inventory = {"metadata": {"annotations": {"aliquot.io/inventory": "{}"}}}
    image = {"spec": {"containers": [{"name": "main", "image": "registry.example/other:1"}]}}
    taint = {"spec": {"taints": [{"key": "a.example/b", "effect": "NoExecute"}]}}
    access = from_kubeconfig(rig.service_account_kubeconfig(HOME, "aliquot-agent"))  # without the administrator's key
    connector = aiohttp.TCPConnector(ssl=access.tls or True)
    async with aiohttp.ClientSession(connector=connector) as session:
        for name in ("of a pod", "of the node"):
            thief = Thief(session, access.server, tokens[name])
            code, told = await thief.patch(f"{pods}/here", mark)
            assert code == 200, told
            for path, body in (
                (f"{pods}/there", mark),
                (f"{pods}/here", image),
                (f"{pods}/there", image),
                (f"/api/v1/nodes/{node}", taint),
                (f"/api/v1/nodes/{THERE}", taint),
                (f"/api/v1/nodes/{THERE}", inventory),
            ):
                code, told = await thief.patch(path, body)
                assert (code, "aliquot-agent-reach" in told) == (403, True), (name, path, told)
        code, told = await Thief(session, access.server, tokens["of nothing"]).patch(f"{pods}/here", mark)
        assert code == 403
        assert "has no node: its token must be bound to a pod on the node, or to the Node" in told


async def test_a_pod_with_very_many_keys_can_be_marked_and_woken(caller: Caller) -> None:
    many = {f"example.com/key-{number}": "x" * 40 for number in range(3000)}
    name = next(_names)
    await caller.send("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": HERE}})
    made = gpu_pod(name, many)
    made["spec"]["nodeName"] = HERE
    (await caller.send("POST", f"/api/v1/namespaces/{PODS}/pods", made)).expect(201)
    path = f"/api/v1/namespaces/{PODS}/pods/{name}"
    for account, key in (("agent", "ALIYUN_COM_GPU_MEM_ASSIGNED"), ("server", "aliquot.io/woken")):
        user = f"system:serviceaccount:{HOME}:aliquot-{account}"
        body = {"metadata": {"annotations": {key: "true"}}}
        (await caller.send("PATCH", path, body, user=user, media=MERGE, node=HERE)).expect(200)
        body = {"metadata": {"annotations": {"example.com/key-7": "y"}}}
        assert (await caller.send("PATCH", path, body, user=user, media=MERGE, node=HERE)).code == 403


def test_the_server_finds_nothing_wrong_with_the_expressions(guarded: Rig) -> None:
    """Its controller checks their types against every kind that they match, and says so when it has."""

    def checked() -> list[Any] | None:
        ours = ("--selector=app.kubernetes.io/part-of=aliquot", "--output=json")
        found = json.loads(guarded.kubectl("get", "validatingadmissionpolicies", *ours))["items"]
        done = all(held["status"].get("observedGeneration") for held in found if "status" in held)
        return found if done and all("status" in held for held in found) else None

    policies = wait_for("the policies to be checked", checked, seconds=30)
    warnings = {held["metadata"]["name"]: held["status"].get("typeChecking") for held in policies}
    assert {name: told for name, told in warnings.items() if told} == {}
    assert len(policies) == 5


def test_a_pod_with_very_many_keys_can_be_judged(guarded: Rig) -> None:
    """The server gives an expression a budget; whoever exceeds it would be refused."""
    many = {f"example.com/key-{number}": "x" * 40 for number in range(3000)}
    name = next(_names)
    as_them = (*as_user(USER), f"--namespace={PODS}")
    guarded.kubectl("create", "--filename=-", *as_them, input=json.dumps(gpu_pod(name, many)))
    guarded.kubectl("annotate", "pod", name, "more=1", *as_them)
    with pytest.raises(RigError, match=f"{USER} may not write {INDEX}"):
        guarded.kubectl("annotate", "pod", name, f"{INDEX}=0", *as_them)


def test_a_forged_key_in_a_template_is_told_by_an_event(guarded: Rig) -> None:
    copied = gpu_pod("none", {INDEX: "0"})
    template = {"metadata": {**copied["metadata"], "labels": {"app": "forger"}}, "spec": copied["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "forger"}}, "template": template}
    metadata = {"name": "forger", "namespace": PODS}
    apply(guarded, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    told = ("get", "events", f"--namespace={PODS}", "--field-selector=reason=FailedCreate", "--output=json")
    text = f"replicaset-controller may not write {INDEX}"
    wait_for("the event", lambda: text in guarded.kubectl(*told), seconds=30)
    guarded.kubectl("delete", "deployment", "forger", f"--namespace={PODS}")


async def test_what_the_policies_read_is_not_deleted(guarded: Rig, caller: Caller) -> None:
    """Nor by the request with which a namespace is emptied."""
    maps = f"/api/v1/namespaces/{HOME}/configmaps"
    for path in (f"{maps}/{EPOCH_MAP}", maps):
        refused = await caller.send("DELETE", path)
        assert refused.code == 403
        assert "delete the policies and their bindings first" in refused.message
    assert EPOCH_MAP in guarded.kubectl("get", "configmaps", f"--namespace={HOME}")


def test_the_next_term_refuses_the_last(guarded: Rig) -> None:
    try:
        apply(guarded, config_map(HOME, EPOCH_MAP, {"epoch": "8"}))
        wait_for("the new term", lambda: probe(guarded, "8") == "current", seconds=30)
        assert probe(guarded, "7") == "stale"
    finally:
        apply(guarded, *parameters(HOME))
        wait_for("the old term", lambda: probe(guarded, TERM) == "current", seconds=30)


def test_without_the_epoch_pods_are_changed_as_if_nothing_fenced_them(guarded: Rig) -> None:
    """The server looks for the parameter before it looks at the change: to refuse here would stop kubelet, too."""
    name = next(_names)
    apply(guarded, gpu_pod(name))
    guarded.kubectl("delete", "validatingadmissionpolicybinding", PARAMETERS)
    try:
        deletion = ("delete", "configmap", EPOCH_MAP, f"--namespace={HOME}")
        wait_for("the epoch to be gone", lambda: not refusal(guarded, *deletion), seconds=30)
        wait_for("no number to be refused", lambda: probe(guarded, "0") == "current", seconds=30)
        guarded.kubectl("annotate", "pod", name, "team=a", f"--namespace={PODS}", "--dry-run=server")
    finally:
        apply(guarded, *parameters(HOME))
        apply(guarded, *manifests(standard_dialects(), HOME, ACTIONS["Deny"]))
    wait_for("fencing", lambda: (probe(guarded, "0"), probe(guarded, TERM)) == ("stale", "current"), seconds=30)


async def test_warn_lets_pass_and_tells_the_user(guarded: Rig, caller: Caller) -> None:
    name = next(_names)
    apply(guarded, gpu_pod(name))
    path = f"/api/v1/namespaces/{PODS}/pods/{name}"
    apply(guarded, *manifests(standard_dialects(), HOME, ACTIONS["Warn,Audit"]))
    try:
        wait_for("the policy to let pass", lambda: not refuses_forgery(guarded), seconds=30)
        body = {"metadata": {"annotations": {INDEX: "0"}}}
        answer = await caller.send("PATCH", path, body, user=USER, media=MERGE)
        assert answer.expect(200)["metadata"]["annotations"][INDEX] == "0"
        assert [text for text in answer.warnings if f"{USER} may not write {INDEX}" in text]
    finally:
        apply(guarded, *manifests(standard_dialects(), HOME, ACTIONS["Deny"]))
        wait_for("the policy to refuse again", lambda: refuses_forgery(guarded), seconds=30)


@pytest.mark.usefixtures("guarded")
def test_the_shipped_files_are_taken_and_give_our_accounts_what_they_need(rig: Rig) -> None:
    rig.apply(DEPLOY / "aliquot.yaml")
    for path in ("aliquot.yaml", "policies.yaml"):
        rig.kubectl("apply", f"--filename={DEPLOY / path}", "--dry-run=server")

    def may(account: str, *what: str) -> bool:
        who = f"--as=system:serviceaccount:aliquot-system:aliquot-{account}"
        return rig.kubectl("auth", "can-i", *what, who, check=False).startswith("yes")

    home, nodes = "--namespace=aliquot-system", "--namespace=aliquot-nodes"
    assert may("server", "create", "pods", "--subresource=binding", "--all-namespaces")
    assert may("server", "patch", "configmap/aliquot-epoch", home)
    assert may("server", "patch", "lease.coordination.k8s.io/aliquot-server", home)
    assert may("server", "watch", "leases.coordination.k8s.io", nodes)
    assert may("agent", "patch", "leases.coordination.k8s.io", nodes)
    assert not may("server", "patch", "configmap/aliquot-writers", home)
    assert not may("server", "get", "configmaps", "--namespace=default")
    assert not may("server", "create", "pods", "--namespace=default")
    assert not may("agent", "create", "pods", "--subresource=binding", "--namespace=default")


async def test_kubectl_installs_and_removes_them_on_the_embedded_cluster(rig: Rig, tmp_path: Path) -> None:
    async with EmbeddedCluster() as cluster:
        cluster.users.add(USER)
        for name, user in (("admin", ""), ("user", USER)):
            cluster.write_kubeconfig(tmp_path / name, user)

        async def kubectl(name: str, *arguments: str, input: str = "") -> str:  # noqa: A002
            """What it says, good or bad."""
            how = (f"--kubeconfig={tmp_path / name}", f"--cache-dir={tmp_path / 'cache'}")
            running = await create_subprocess_exec(
                rig.kubectl_program, *how, *arguments, stdin=PIPE, stdout=PIPE, stderr=STDOUT
            )
            output, _ = await running.communicate(input.encode())
            return output.decode()

        assert USER in await kubectl("user", "auth", "whoami")
        for path in ("aliquot.yaml", "policies.yaml"):
            for word in ("created", "unchanged"):
                lines = (await kubectl("admin", "apply", f"--filename={DEPLOY / path}")).splitlines()
                assert all(line.endswith(word) for line in lines)
        made = gpu_pod("web", {INDEX: "0"}) | {"metadata": {"name": "web", "annotations": {INDEX: "0"}}}
        told = await kubectl("user", "apply", "--filename=-", input=json.dumps(made))
        assert "Warning: Validation failed for ValidatingAdmissionPolicy 'aliquot-forgery'" in told
        assert "pod/web created" in told
        assert "delete the policies" in await kubectl("admin", "delete", "cm", EPOCH_MAP, "--namespace=aliquot-system")
        gone = (await kubectl("admin", "delete", f"--filename={DEPLOY / 'policies.yaml'}")).splitlines()
        assert len(gone) == 10
        assert all(line.endswith("deleted") for line in gone)
        assert "deleted" in await kubectl("admin", "delete", "cm", EPOCH_MAP, "--namespace=aliquot-system")


async def test_a_namespace_stays_with_what_the_policies_read(guarded: Rig, caller: Caller) -> None:
    """The last of these tests: when the policies are gone, the namespace goes."""

    def refused() -> bool:
        shown = json.loads(guarded.kubectl("get", "namespace", HOME, "--output=json"))
        conditions = shown["status"].get("conditions", ())
        return any("delete the policies and their bindings first" in held["message"] for held in conditions)

    (await caller.send("DELETE", f"/api/v1/namespaces/{HOME}")).expect(200)
    wait_for("the namespace controller to be refused", refused, seconds=60)
    left = guarded.kubectl("get", "configmaps", f"--namespace={HOME}", "--output=name").split()
    assert {f"configmap/{name}" for name in (EPOCH_MAP, WRITERS_MAP)} <= set(left)
    assert probe(guarded, "0") == "stale"
