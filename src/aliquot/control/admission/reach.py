"""Reach: what Aliquot's own accounts may write, so that a stolen token is worth as little as possible.

RBAC knows neither an agent's node nor the keys that it writes. The tables are separate variables, as JSON, so that
readers of a policy find them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from aliquot.control.admission import cel
from aliquot.dialects import Dialects
from aliquot.model.admission import NO_ROOM, NODE_CONDITIONS, NODE_OF_TOKEN, PLACEABLE, SERVER_KEYS
from aliquot.model.kubernetes import NOT_BEGUN
from aliquot.model.load import LOAD
from aliquot.model.records import CARD_LABELS, INVENTORY, NODE_LEASES, OBSERVED

_PODS_AND_NODES = ("pods", "pods/*", "bindings", "nodes", "nodes/*")
_EVERYTHING = ("*",)
_MANAGED = ("annotations", "labels", "managedFields", "resourceVersion", "generation")
"""Metadata that differs in every update, or is checked separately."""


def agent_spec(dialects: Dialects, account: str) -> dict[str, Any]:
    """An agent writes to its own Node, its own Lease and the pods on its node; on these only its own keys. In its
    Node's status it writes one condition. Its events are about its own Node, or about pods."""
    marks = (key for dialect in dialects.values() for key in dialect.mark_keys)
    keys = {
        "nodes": [INVENTORY, CARD_LABELS],
        "pods": list(dict.fromkeys((OBSERVED, *marks))),
        "leases": [LOAD],
    }
    labels = {
        "nodes": [key for dialect in dialects.values() for key in dialect.card_label_keys],
        "pods": [],
        "leases": [],
    }
    leases = {
        "apiGroups": ["coordination.k8s.io"],
        "apiVersions": ["v1"],
        "operations": list(_EVERYTHING),
        "resources": ["leases"],
    }
    constraints = cel.rules((_EVERYTHING, (*_PODS_AND_NODES, "events")))
    constraints["resourceRules"].append(leases)
    own = """
        variables.what.startsWith("nodes") ? oldObject.metadata.name : dyn(oldObject).?spec.?nodeName.orValue("")
        """
    why = f"""
        variables.node == ""
        ? request.userInfo.username + " has no node: its token must be bound to a pod on the node, or to the Node"
        : variables.what == "leases" && request.operation in ["CREATE", "UPDATE"]
        ? (request.namespace != "{NODE_LEASES}" || object.metadata.name != variables.node ? variables.others
          : variables.leaseIsOurs ? "" : "an agent may change only the spec of its Lease and its annotation {LOAD}")
        : variables.what == "events" && request.operation in ["CREATE", "UPDATE"]
        ? (variables.eventsAreOurs ? "" : "the agent of node " + variables.node
          + " may write events about its own Node and about pods only")
        : request.operation != "UPDATE" || !(variables.what in variables.keys || variables.what == "nodes/status")
        ? "an agent may not " + request.operation + " " + variables.what
        : variables.owner != variables.node ? variables.others
        : variables.what == "nodes/status"
        ? (variables.statusIsOurs ? "" : "an agent may change only these conditions of its Node's status: "
          + variables.conditions.join(", "))
        : variables.changesMore
        ? "an agent may change only these keys of " + variables.what + ": "
          + (variables.keys[variables.what] + variables.labelKeys[variables.what]).join(", ")
        : ""
        """
    more = {
        "node": f'request.userInfo.?extra[?"{NODE_OF_TOKEN}"][?0].orValue("")',
        "keys": cel.literal(keys),
        "labelKeys": cel.literal(labels),
        "conditions": cel.literal(list(NODE_CONDITIONS)),
        "owner": own,
        "others": '"the agent of node " + variables.node + " may write to its own Node, Lease and pods only"',
        "changesMore": f"""
            !({_only_keys("annotations", "variables.keys[variables.what]")})
            || !({_only_keys("labels", "variables.labelKeys[variables.what]")})
            || !({_same("dyn(object)", "dyn(oldObject)", ["metadata"])})
            || !({_same("dyn(object).metadata", "dyn(oldObject).metadata", _MANAGED)})
            """,
        "leaseIsOurs": f"""
            ({_only_keys("annotations", "variables.keys[variables.what]")})
            && ({_only_keys("labels", "variables.labelKeys[variables.what]")})
            && (oldObject == null || (({_same("dyn(object)", "dyn(oldObject)", ["metadata", "spec"])})
              && ({_same("dyn(object).metadata", "dyn(oldObject).metadata", _MANAGED)})))
            """,
        "eventsAreOurs": f"""
            ({_is_event_of_node("dyn(object)")}) && (oldObject == null || {_is_event_of_node("dyn(oldObject)")})
            """,
        "status": "dyn(object).?status.orValue({})",
        "oldStatus": "dyn(oldObject).?status.orValue({})",
        "statusIsOurs": f"""
            variables.annotations == variables.oldAnnotations && variables.labels == variables.oldLabels
            && ({_same("dyn(object)", "dyn(oldObject)", ["metadata", "status"])})
            && ({_same("dyn(object).metadata", "dyn(oldObject).metadata", _MANAGED)})
            && ({_same("variables.status", "variables.oldStatus", ["conditions"])})
            && {_others("variables.status", "variables.conditions")}
              == {_others("variables.oldStatus", "variables.conditions")}
            """,
    }
    return _spec(account, constraints, more, why)


def server_spec(dialects: Dialects, account: str) -> dict[str, Any]:
    """The server writes Bindings, placement keys, and the status of pods that wait or found no room."""
    placement = (key for dialect in dialects.values() for key in dialect.placement_keys)
    keys = list(dict.fromkeys((*SERVER_KEYS, *placement)))
    resources = list(dict.fromkeys(name for dialect in dialects.values() for name in dialect.guarded_resources))
    why = """
        !(variables.what in variables.written) || request.operation != variables.written[variables.what]
        ? "the server may not " + request.operation + " " + variables.what
        : !variables.onlyKeys ? "the server may change only these keys of a pod: " + variables.keys.join(", ")
        : request.operation == "UPDATE" && !variables.restIsSame
        ? "the server may change only the keys of a pod that record its placement"
        : variables.what == "pods/status" && !variables.statusIsOurs
        ? "the server may only report that a pod waits, or fail a pending GPU pod with reason " + variables.noRoom
        : ""
        """
    more = {
        "keys": cel.literal(keys),
        "resources": cel.literal(resources),
        "noRoom": cel.literal(NO_ROOM),
        "conditions": cel.literal(["PodScheduled", PLACEABLE]),
        "written": cel.literal(
            {"pods": "UPDATE", "pods/status": "UPDATE", "pods/binding": "CREATE", "bindings": "CREATE"}
        ),
        "onlyKeys": f"""
            ({_only_keys("annotations", "variables.keys")})
            && ({_only_keys("labels", "variables.keys")})
            """,
        "restIsSame": f"""
            ({_same("dyn(object)", "dyn(oldObject)", ["metadata", "status"])})
            && ({_same("dyn(object).metadata", "dyn(oldObject).metadata", _MANAGED)})
            && (variables.what == "pods/status" || dyn(object).?status == dyn(oldObject).?status)
            """,
        "status": "dyn(object).?status.orValue({})",
        "oldStatus": "dyn(oldObject).?status.orValue({})",
        "asksForGpu": f"""
            (dyn(object).?spec.?containers.orValue([]) + dyn(object).?spec.?initContainers.orValue([]))
              .exists(container, container.?resources.?limits.orValue({{}})
                .exists(name, variables.resources.exists(pattern, {cel.matches("pattern", "name")})))
            """,
        "statusIsOurs": f"""
            ({_same("variables.status", "variables.oldStatus", ["phase", "reason", "message", "conditions"])})
            && {_others("variables.status", "variables.conditions")}
              == {_others("variables.oldStatus", "variables.conditions")}
            && (["phase", "reason", "message"].all(field, variables.status[?field] == variables.oldStatus[?field])
              || (variables.status.?phase.orValue("") == "Failed"
                && variables.oldStatus.?phase.orValue("") in {cel.literal(NOT_BEGUN)}
                && variables.status.?reason.orValue("") == variables.noRoom && variables.asksForGpu))
            """,
    }
    return _spec(account, cel.rules((_EVERYTHING, _PODS_AND_NODES)), more, why)


def _spec(account: str, constraints: dict[str, Any], more: Mapping[str, str], why: str) -> dict[str, Any]:
    variables = {
        "what": 'request.resource.resource + (request.?subResource.orValue("") == "" ? "" : "/" + request.subResource)',
        "annotations": cel.after("annotations"),
        "oldAnnotations": cel.before("annotations"),
        "labels": cel.after("labels"),
        "oldLabels": cel.before("labels"),
        **more,
        "why": why,
    }
    validation = {
        "expression": 'variables.why == ""',
        "message": "this account may not write that",
        "messageExpression": "variables.why",
        "reason": "Forbidden",
    }
    condition = {"name": "account", "expression": f"request.userInfo.username == {cel.literal(account)}"}
    return {
        "matchConstraints": constraints,
        "matchConditions": [condition],
        "variables": cel.variables(variables),
        "validations": [validation],
    }


def _only_keys(field: str, patterns: str) -> str:
    """Whether the change adds, changes or removes no other keys of the metadata map. A pod may have thousands of keys,
    so an unchanged key takes few steps."""
    now, was = f"variables.{field}", f"variables.old{field.capitalize()}"
    is_meant = f"{patterns}.exists(pattern, {cel.matches('pattern', 'key')})"
    return f"""{now} == {was}
            || ({now}.all(key, (key in {was} && {was}[key] == {now}[key]) || {is_meant})
              && {was}.all(key, key in {now} || {is_meant}))"""


def _is_event_of_node(event: str) -> str:
    """Whether an event is about the agent's Node or about a pod, whose node an event does not name."""
    about = f"{event}.?involvedObject"
    return f"""{about}.?kind.orValue("") == "Pod"
              || ({about}.?kind.orValue("") == "Node" && {about}.?name.orValue("") == variables.node)"""


def _others(status: str, types: str) -> str:
    """The conditions of a status except for these types."""
    return f"{status}.?conditions.orValue([]).filter(held, !(held.type in {types}))"


def _same(now: str, was: str, but: Sequence[str]) -> str:
    """Whether two maps are equal except for some fields."""
    fields = cel.literal(list(but))
    return f"""{now}.all(field, field in {fields} || (field in {was} && {was}[field] == {now}[field]))
            && {was}.all(field, field in {fields} || field in {now})"""
