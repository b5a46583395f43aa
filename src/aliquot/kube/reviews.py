"""Questions to the API server about rights and tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from aliquot.kube.client import Client
from aliquot.kube.resources import Resource
from aliquot.model import Object
from aliquot.model.kubernetes import Metadata


class _Answer(msgspec.Struct, rename="camel", frozen=True):
    pass


class Verdict(_Answer, frozen=True):
    """Whether something is allowed, and why, if the server says so."""

    allowed: bool = False
    reason: str = ""
    evaluation_error: str = ""


class User(_Answer, frozen=True):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None


class _TokenStatus(_Answer, frozen=True):
    authenticated: bool = False
    user: User = User()
    audiences: list[str] | None = None


class _AccessReview(Object, frozen=True):
    metadata: Metadata = Metadata()
    status: Verdict = Verdict()


class _TokenReview(Object, frozen=True):
    metadata: Metadata = Metadata()
    status: _TokenStatus = _TokenStatus()


_AUTHORIZATION, _AUTHENTICATION = "authorization.k8s.io/v1", "authentication.k8s.io/v1"
_OWN_RIGHTS = Resource(f"apis/{_AUTHORIZATION}", "selfsubjectaccessreviews", _AccessReview, namespaced=False)
_RIGHTS = Resource(f"apis/{_AUTHORIZATION}", "subjectaccessreviews", _AccessReview, namespaced=False)
_TOKENS = Resource(f"apis/{_AUTHENTICATION}", "tokenreviews", _TokenReview, namespaced=False)


@dataclass(frozen=True)
class Action:
    """Something that one may do, in RBAC's words: on objects, or on a `path` that is none."""

    verb: str
    resource: str = ""
    group: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    def attributes(self) -> dict[str, Any]:
        if self.path:
            return {"nonResourceAttributes": {"verb": self.verb, "path": self.path}}
        fields = ("verb", "resource", "group", "subresource", "namespace", "name")
        return {"resourceAttributes": {field: getattr(self, field) for field in fields if getattr(self, field)}}


async def may_we(client: Client, action: Action) -> Verdict:
    """Whether we ourselves may do it (SelfSubjectAccessReview). Raises KubeError."""
    body = {"apiVersion": _AUTHORIZATION, "kind": "SelfSubjectAccessReview", "spec": action.attributes()}
    return (await client.create(_OWN_RIGHTS, body)).status


async def may(client: Client, user: User, action: Action) -> Verdict:
    """Whether somebody may do it (SubjectAccessReview). Raises KubeError."""
    who = {"user": user.username, "uid": user.uid, "groups": user.groups}
    spec = {**action.attributes(), **{name: value for name, value in who.items() if value}}
    body = {"apiVersion": _AUTHORIZATION, "kind": "SubjectAccessReview", "spec": spec}
    return (await client.create(_RIGHTS, body)).status


async def whose(client: Client, token: str, audiences: Sequence[str] = ()) -> User | None:
    """Whose token it is (TokenReview); None if it is nobody's, or meant for none of the audiences. Raises KubeError."""
    spec = {"token": token} | ({"audiences": list(audiences)} if audiences else {})
    body = {"apiVersion": _AUTHENTICATION, "kind": "TokenReview", "spec": spec}
    status = (await client.create(_TOKENS, body)).status
    # an authenticator that knows no audiences leaves them out, and has not checked them
    for_us = not audiences or bool(set(audiences) & set(status.audiences or ()))
    return status.user if status.authenticated and for_us else None
