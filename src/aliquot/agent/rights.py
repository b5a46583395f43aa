"""RBAC rights that the agent needs, and the consequences of missing rights, e.g. with an original's account."""

import structlog

from aliquot.kube import Client, KubeError
from aliquot.kube.reviews import Action
from aliquot.kube.rights import Right
from aliquot.model.records import NODE_LEASES

_log = structlog.get_logger()

_GROUP = "coordination.k8s.io"
_STATUS = Action("patch", "nodes", subresource="status")
_HEARTBEAT = "the server cannot notice when this agent stops"

_RIGHTS = (
    Right(Action("list", "nodes"), "the agent does not see its own Node", ("get", "watch")),
    Right(Action("list", "pods"), "the agent sees no pod and hands over no card", ("watch",)),
    Right(Action("patch", "pods"), "the agent cannot mark pods and hands over no card"),
    Right(_STATUS, "the Node has no conditions that tell of broken or unguarded cards"),
    Right(Action("create", "events"), "no event tells of broken cards", ("patch",)),
    Right(Action("patch", "leases", _GROUP, namespace=NODE_LEASES), _HEARTBEAT, ("get", "create")),
)
_PUBLISH = Right(Action("patch", "nodes"), "the server does not see the cards of this node")


async def say_what_is_missing(client: Client) -> None:
    """Log each missing right once, with the rule to add. The agent goes on: it retries what needs a right."""
    try:
        missing = [right for right in _RIGHTS if not await right.is_given(client)]
        # the originals' accounts may write to a Node through its status only, which is enough to publish cards
        if _STATUS in (right.action for right in missing) and not await _PUBLISH.is_given(client):
            missing.append(_PUBLISH)
    except KubeError as error:
        _log.warning("cannot find out which rights this account has", error=str(error))
        return
    for right in missing:
        _log.warning("this account lacks a right", what=str(right), rule=right.rule())
