"""What Aliquot's own accounts may write; every API server must answer each of these alike."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from aliquot.dialects import Dialect, standard_dialects
from aliquot.dialects.table import OURS
from aliquot.model.admission import AGENT_REACH, CARDS_GUARDED, CARDS_HEALTHY, NO_ROOM, PLACEABLE, SERVER_REACH, WOKEN
from aliquot.model.load import LOAD
from aliquot.model.records import INVENTORY, NODE_LEASES, OBSERVED
from tests.integration.policies.caller import JSON, MERGE, Answer, Caller
from tests.integration.policies.cases import INDEX, PLACED, placement_key

HERE, THERE = "reach-here", "reach-there"
"""Two nodes; the agent's token is bound to the first."""
STRATEGIC = "application/strategic-merge-patch+json"
POD, NODE, LEASE, EVENT = "pod", "node", "lease", "event"


@dataclass(frozen=True)
class Write:
    """One write of one of our accounts, to a thing that was made for it."""

    account: str
    body: Mapping[str, Any]
    why: str = ""
    """What the refusal says; nothing if it is taken."""
    to: str = POD
    where: str = HERE
    part: str = ""
    method: str = "PATCH"
    media: str = MERGE
    token: str = HERE
    """The node in the token."""
    limits: Mapping[str, str] = field(default_factory=lambda: {"aliyun.com/gpu-mem": "1"})
    has: Mapping[str, str] = field(default_factory=dict)
    """The annotations that the pod has before."""
    phase: str = ""
    """What kubelet has reported of the pod before."""

    @property
    def policy(self) -> str:
        return AGENT_REACH if self.account == "agent" else SERVER_REACH


def annotated(**keys: str | None) -> dict[str, Any]:
    return {"metadata": {"annotations": keys}}


def labelled(**keys: str) -> dict[str, Any]:
    return {"metadata": {"labels": keys}}


OTHERS = f"the agent of node {HERE} may write to its own Node, Lease and pods only"
KEYS = "an agent may change only these keys of "
LEASE_KEYS = f"an agent may change only the spec of its Lease and its annotation {LOAD}"
SERVER_KEYS = "the server may change only these keys of a pod"
TAINT = {"spec": {"taints": [{"key": "a.example/b", "effect": "NoSchedule"}]}}
IMAGE = {"spec": {"containers": [{"name": "main", "image": "registry.example/other:1"}]}}
RENEWED = {"spec": {"holderIdentity": HERE, "renewTime": "2026-01-01T00:00:00.000000Z"}}
MARK = annotated(ALIYUN_COM_GPU_MEM_ASSIGNED="true", ALIYUN_COM_GPU_MEM_ASSUME_TIME="7")
FAILED = {"status": {"phase": "Failed", "reason": NO_ROOM, "message": "no room"}}
WAITS = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "it waits"}
READY = {"type": "Ready", "status": "True"}


SICK = {"type": CARDS_HEALTHY, "status": "False", "reason": "XidError", "message": "card 0"}
OUR_CONDITIONS = f"an agent may change only these conditions of its Node's status: {CARDS_HEALTHY}, {CARDS_GUARDED}"
EVENTS = f"the agent of node {HERE} may write events about its own Node and about pods only"


def condition(**fields: str) -> dict[str, Any]:
    return {"status": {"conditions": [{**SICK, **fields}]}}


def event(kind: str, name: str) -> dict[str, Any]:
    about = {"apiVersion": "v1", "kind": kind, "name": name}
    if kind == "Pod":
        about["namespace"] = "default"
    return {"apiVersion": "v1", "kind": "Event", "involvedObject": about, "reason": "x", "type": "Warning"}


def bound(**metadata: Any) -> dict[str, Any]:
    target = {"apiVersion": "v1", "kind": "Node", "name": HERE}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


def _case(name: str, *args: Any, **fields: Any) -> Any:
    return pytest.param(Write(*args, **fields), id=name)


def _sample(dialect: Dialect) -> Mapping[str, Any]:
    (container,) = dialect.sample_pod()["spec"]["containers"]
    return {name: str(amount) for name, amount in container["resources"]["limits"].items()}


def own(dialect: Dialect) -> dict[str, str]:
    return {placement_key(dialect): "0"}


DIALECTS = [standard_dialects()[kind.name] for kind in OURS]

AGENT = [
    _case("its inventory", "agent", annotated(**{INVENTORY: "{}"}), to=NODE),
    _case("its inventory taken away", "agent", annotated(**{INVENTORY: None}), to=NODE),
    _case("another node's inventory", "agent", annotated(**{INVENTORY: "{}"}), OTHERS, to=NODE, where=THERE),
    _case("its node by a token without one", "agent", annotated(**{INVENTORY: "{}"}), "has no node", to=NODE, token=""),
    _case("another key of its node", "agent", annotated(team="a"), KEYS + "nodes", to=NODE),
    _case("a label of its node", "agent", labelled(team="a"), KEYS + "nodes", to=NODE),
    _case("the labels of its cards", "agent", labelled(**{"nvidia.com/gpu.product": "Tesla-T4"}), to=NODE),
    _case(
        "a label of its cards on another node",
        "agent",
        labelled(**{"nvidia.com/gpu.product": "Tesla-T4"}),
        OTHERS,
        to=NODE,
        where=THERE,
    ),
    _case("a card label on a pod", "agent", labelled(**{"nvidia.com/gpu.product": "Tesla-T4"}), KEYS + "pods"),
    _case("a taint on its node", "agent", TAINT, KEYS + "nodes", to=NODE),
    _case("a taint beside its inventory", "agent", {**TAINT, **annotated(**{INVENTORY: "1"})}, KEYS, to=NODE),
    _case("a finalizer on its node", "agent", {"metadata": {"finalizers": ["a.example/b"]}}, KEYS + "nodes", to=NODE),
    _case("a taint on another node", "agent", TAINT, OTHERS, to=NODE, where=THERE),
    _case("its condition", "agent", condition(), to=NODE, part="status", media=STRATEGIC),
    _case("its other condition", "agent", condition(type=CARDS_GUARDED), to=NODE, part="status", media=STRATEGIC),
    _case("its condition elsewhere", "agent", condition(), OTHERS, to=NODE, where=THERE, part="status"),
    _case("its condition without a node", "agent", condition(), "has no node", to=NODE, part="status", token=""),
    _case(
        "another condition",
        "agent",
        condition(type="Ready"),
        OUR_CONDITIONS,
        to=NODE,
        part="status",
        media=STRATEGIC,
    ),
    _case(
        "capacity by status",
        "agent",
        {"status": {"capacity": {"aliyun.com/gpu-mem": "99"}}},
        OUR_CONDITIONS,
        to=NODE,
        part="status",
    ),
    _case("a label by status", "agent", labelled(team="a"), OUR_CONDITIONS, to=NODE, part="status"),
    _case("an annotation by status", "agent", annotated(team="a"), OUR_CONDITIONS, to=NODE, part="status"),
    _case("an event about its node", "agent", event("Node", HERE), to=EVENT, method="POST"),
    _case("an event about a pod", "agent", event("Pod", "p"), to=EVENT, method="POST"),
    _case("an event about another node", "agent", event("Node", THERE), EVENTS, to=EVENT, method="POST"),
    _case("an event about anything else", "agent", event("Secret", "s"), EVENTS, to=EVENT, method="POST"),
    _case("an event without a node", "agent", event("Node", HERE), "has no node", to=EVENT, method="POST", token=""),
    _case("its node deleted", "agent", {}, "may not DELETE nodes", to=NODE, method="DELETE"),
    _case("a mark", "agent", MARK),
    _case("a mark by a token without a node", "agent", MARK, "has no node", token=""),
    _case("a mark on another node's pod", "agent", MARK, OTHERS, where=THERE),
    _case("a mark on a pod that waits", "agent", MARK, OTHERS, where=""),
    _case("the cards that it saw", "agent", annotated(**{OBSERVED: "{}"})),
    _case("the cards of another node's pod", "agent", annotated(**{OBSERVED: "{}"}), OTHERS, where=THERE),
    _case("a placement", "agent", annotated(**PLACED), KEYS + "pods"),
    _case("where a pod is", "agent", annotated(**{INDEX: "1"}), KEYS + "pods"),
    _case("any other key", "agent", annotated(team="a"), KEYS + "pods"),
    _case("an empty key", "agent", annotated(team=""), KEYS + "pods"),
    _case("a key taken away", "agent", annotated(team=None), KEYS + "pods", has={"team": "a"}),
    _case("a label", "agent", labelled(team="a"), KEYS + "pods"),
    _case("an image", "agent", IMAGE, KEYS + "pods", media=STRATEGIC),
    _case("an image on another node", "agent", IMAGE, OTHERS, where=THERE, media=STRATEGIC),
    _case("the status of a pod", "agent", FAILED, "may not UPDATE pods/status", part="status"),
    _case("a Binding", "agent", bound(), "may not CREATE pods/binding", where="", part="binding", method="POST"),
    _case("a pod deleted", "agent", {}, "may not DELETE pods", method="DELETE"),
    _case("its Lease", "agent", RENEWED, to=LEASE),
    _case("its Lease with the load", "agent", {**RENEWED, **annotated(**{LOAD: "{}"})}, to=LEASE),
    _case("another key of its Lease", "agent", annotated(team="a"), LEASE_KEYS, to=LEASE),
    _case("a label of its Lease", "agent", labelled(team="a"), LEASE_KEYS, to=LEASE),
    _case("a finalizer of its Lease", "agent", {"metadata": {"finalizers": ["a.example/b"]}}, LEASE_KEYS, to=LEASE),
    _case("its Lease by a token without a node", "agent", RENEWED, "has no node", to=LEASE, token=""),
    _case("another node's Lease", "agent", RENEWED, OTHERS, to=LEASE, where=THERE),
    _case("its Lease deleted", "agent", {}, "may not DELETE leases", to=LEASE, method="DELETE"),
    *(
        _case(f"a mark of {dialect.name}", "agent", annotated(**dict.fromkeys(dialect.mark_keys, "x")))
        for dialect in DIALECTS
        if dialect.mark_keys
    ),
]

SERVER = [
    _case("a late placement", "server", annotated(**PLACED)),
    _case("a wake-up", "server", annotated(**{WOKEN: "now"}), where=""),
    *(
        _case(f"{dialect.name}'s keys", "server", annotated(**PLACED, **own(dialect)), limits=_sample(dialect))
        for dialect in DIALECTS
        if dialect.placement_keys
    ),
    _case("a label of a dialect", "server", labelled(**{"elasticgpu.io/assumed": "true"})),
    _case("a Binding", "server", bound(), where="", part="binding", method="POST"),
    _case(
        "a Binding with a placement",
        "server",
        bound(annotations={**PLACED, INDEX: "0"}, labels={"elasticgpu.io/assumed": "true"}),
        where="",
        part="binding",
        method="POST",
    ),
    _case(
        "a Binding with another key",
        "server",
        bound(annotations={"team": "a"}),
        SERVER_KEYS,
        where="",
        part="binding",
        method="POST",
    ),
    _case(
        "a Binding with another label",
        "server",
        bound(labels={"team": "a"}),
        SERVER_KEYS,
        where="",
        part="binding",
        method="POST",
    ),
    _case("another key", "server", annotated(team="a"), SERVER_KEYS),
    _case("another label", "server", labelled(team="a"), SERVER_KEYS),
    _case("the size of a part", "server", labelled(**{"aliyun.com/gpu-count": "2"}), SERVER_KEYS),
    _case("an image", "server", IMAGE, "only the keys of a pod that record its placement", media=STRATEGIC),
    _case(
        "an owner", "server", {"metadata": {"finalizers": ["a.example/b"]}}, "only the keys of a pod that record its"
    ),
    _case("no room", "server", FAILED, part="status"),
    _case("no room for a pod without GPU", "server", FAILED, "with reason AliquotNoRoom", part="status", limits={}),
    _case("no room for a pending pod", "server", FAILED, part="status", phase="Pending"),
    _case("no room for a running pod", "server", FAILED, "fail a pending GPU pod", part="status", phase="Running"),
    _case("no room for a pod that ended", "server", FAILED, "fail a pending GPU pod", part="status", phase="Succeeded"),
    _case(
        "another end", "server", {"status": {"phase": "Failed", "reason": "x"}}, "may only report that", part="status"
    ),
    _case("success", "server", {"status": {"phase": "Succeeded"}}, "may only report that", part="status"),
    _case("an address", "server", {"status": {"podIP": "10.0.0.9"}}, "may only report that", part="status"),
    _case("why a pod waits", "server", {"status": {"conditions": [WAITS]}}, where="", part="status", media=STRATEGIC),
    _case(
        "why a pod cannot be placed",
        "server",
        {"status": {"conditions": [WAITS | {"type": PLACEABLE}]}},
        where="",
        part="status",
        media=STRATEGIC,
    ),
    _case(
        "that a pod is ready",
        "server",
        {"status": {"conditions": [READY]}},
        "may only report that",
        part="status",
        media=STRATEGIC,
    ),
    _case("a key by status", "server", annotated(team="a"), SERVER_KEYS, part="status"),
    _case("a pod deleted", "server", {}, "may not DELETE pods", method="DELETE"),
    _case("the cards that an agent saw", "server", annotated(**{OBSERVED: "{}"}), SERVER_KEYS),
    _case("a key of a node", "server", annotated(**{INVENTORY: "{}"}), "may not UPDATE nodes", to=NODE),
    _case("a taint", "server", TAINT, "may not UPDATE nodes", to=NODE),
    _case("a node deleted", "server", {}, "may not DELETE nodes", to=NODE, method="DELETE"),
]

WRITES = [*AGENT, *SERVER]


async def prepare(caller: Caller) -> None:
    """The nodes of the cases, and the namespace of Leases."""
    for name in (HERE, THERE):
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": {INVENTORY: "0"}}}
        assert (await caller.send("POST", "/api/v1/nodes", body)).code in (201, 409)
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NODE_LEASES}}
    assert (await caller.send("POST", "/api/v1/namespaces", body)).code in (201, 409)


async def judge(caller: Caller, write: Write, home: str, namespace: str, name: str) -> None:
    """Asserts that a write ends as it should. `home` is the namespace of our accounts."""
    answer = await attempt(caller, write, home, namespace, name)
    if not write.why:
        assert answer.code in (200, 201), answer.body
        return
    assert (answer.code, answer.body.get("reason")) == (403, "Forbidden"), answer.body
    head = f"ValidatingAdmissionPolicy '{write.policy}' with binding '{write.policy}' denied request: "
    assert head in answer.message
    assert write.why in answer.message


async def attempt(caller: Caller, write: Write, home: str, namespace: str, name: str) -> Answer:
    await prepare(caller)
    if write.to == NODE:
        path = f"/api/v1/nodes/{write.where}"
    elif write.to == LEASE:
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{NODE_LEASES}/leases"
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": write.where}, "spec": {}}
        assert (await caller.send("POST", leases, lease)).code in (201, 409)
        path = f"{leases}/{write.where}"
    elif write.to == EVENT:
        path = "/api/v1/namespaces/default/events"
    else:
        pods = f"/api/v1/namespaces/{namespace}/pods"
        (await caller.send("POST", pods, _pod(write, name))).expect(201)
        path = f"{pods}/{name}"
        if write.phase:
            status = {"status": {"phase": write.phase}}
            (await caller.send("PATCH", f"{path}/status", status, media=MERGE)).expect(200)
    if write.part:
        path = f"{path}/{write.part}"
    body = _named(write.body, name) if write.method == "POST" else write.body
    media = JSON if write.method != "PATCH" else write.media
    user = f"system:serviceaccount:{home}:aliquot-{write.account}"
    dry = write.method == "DELETE"
    sent = None if write.method == "DELETE" else body
    return await caller.send(write.method, path, sent, user=user, media=media, node=write.token, dry_run=dry)


def _named(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {**body, "metadata": {**body.get("metadata", {}), "name": name}}


def _pod(write: Write, name: str) -> dict[str, Any]:
    """No scheduler looks after it, and no kubelet has it."""
    container = {"name": "main", "image": "registry.example/none:1", "resources": {"limits": dict(write.limits)}}
    spec: dict[str, Any] = {"schedulerName": "nobody", "containers": [container]}
    if write.where:
        spec["nodeName"] = write.where
    metadata = {"name": name, "annotations": dict(write.has)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
