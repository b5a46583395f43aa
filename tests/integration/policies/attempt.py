"""Trying a case of the matrix on an API server."""

from typing import Any

from aliquot.model.admission import EPOCH_MAP, WRITERS_MAP
from tests.integration.policies.caller import MERGE, Answer, Caller
from tests.integration.policies.cases import AGENT, DIALECTS, SERVER, TERM, Case, Outcome, Way, original


def parameters(namespace: str) -> list[dict[str, Any]]:
    """What the policies read: the current term, and the accounts; each original stands in its own list."""
    writers = {dialect.name: original(dialect.name) for dialect in DIALECTS}
    own = "\n".join(f"system:serviceaccount:{namespace}:aliquot-{name}" for name in ("server", "agent"))
    listed = {**writers, "aliquot": f"{SERVER}, {AGENT}\n{own}", "tencent": f"someone\n {original('tencent')} \n"}
    return [config_map(namespace, EPOCH_MAP, {"epoch": TERM}), config_map(namespace, WRITERS_MAP, listed)]


def config_map(namespace: str, name: str, data: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def pod(case: Case, name: str, **keys: Any) -> dict[str, Any]:
    """No scheduler looks after it, and no node has it."""
    empty = {"name": "other", "image": "registry.example/none:1"}
    asking = {"name": "main", "image": "registry.example/none:1", "resources": {"limits": dict(case.limits)}}
    spec: dict[str, Any] = {"schedulerName": "nobody", "containers": [asking]}
    if case.in_init:
        spec |= {"containers": [empty], "initContainers": [asking]}
    if case.bound:
        spec["nodeName"] = "none"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **keys}, "spec": spec}


async def attempt(caller: Caller, case: Case, namespace: str, name: str) -> Answer:
    """What the server answers. Whoever prepares the pod is trusted."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    if case.way is Way.CREATE:
        return await caller.send("POST", pods, pod(case, name, **{case.where: case.keys}), user=case.user)
    made = await caller.send("POST", pods, pod(case, name, **{case.where: case.has}), user=SERVER)
    before = made.expect(201)
    change = {"metadata": {case.where: case.keys}}
    match case.way:
        case Way.PUT:
            keys = {key: value for key, value in {**case.has, **case.keys}.items() if value is not None}
            before["metadata"][case.where] = keys
            return await caller.send("PUT", f"{pods}/{name}", before, user=case.user)
        case Way.PATCH:
            return await caller.send("PATCH", f"{pods}/{name}", change, user=case.user, media=MERGE)
        case Way.BINDING | Way.BINDINGS:
            path = f"{pods}/{name}/binding" if case.way is Way.BINDING else pods.replace("/pods", "/bindings")
            return await caller.send("POST", path, binding(name, **change["metadata"]), user=case.user)
    return await caller.send("PATCH", f"{pods}/{name}/{case.way.value}", change, user=case.user, media=MERGE)


def binding(name: str, **metadata: Any) -> dict[str, Any]:
    target = {"apiVersion": "v1", "kind": "Node", "name": "none"}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **metadata}, "target": target}


async def judge(caller: Caller, case: Case, namespace: str, name: str) -> None:
    """Asserts that the case ends as it should."""
    answer = await attempt(caller, case, namespace, name)
    now = await caller.send("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
    held = now.body.get("metadata", {}).get(case.where, {})
    expected = {key: value for key, value in {**case.has, **case.keys}.items() if value is not None}
    if isinstance(case.outcome.value, tuple):
        code, reason, policy = case.outcome.value
        assert (answer.code, answer.body.get("reason")) == (code, reason), answer.body
        assert f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: " in answer.message
        if case.outcome is Outcome.FORGED:
            assert any(f"{case.user} may not write {key}" in answer.message for key in case.keys), answer.message
        assert held == (case.has if case.way is not Way.CREATE else {})
    else:
        assert answer.code in (200, 201), answer.body
        assert {**held, **case.has} == held or case.outcome is Outcome.WRITTEN
        assert held == (expected if case.outcome is Outcome.WRITTEN else case.has)
