"""Access and token reviews."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from aliquot.kube.client import Client
from aliquot.kube.resources import ApiResource
from aliquot.model import Object
from aliquot.model.kubernetes import Metadata


class _Fields(msgspec.Struct, rename="camel", frozen=True):
    pass


class AccessReviewStatus(_Fields, frozen=True):
    """Whether an action is allowed, with the server's reason if it gives one."""

    allowed: bool = False
    reason: str = ""
    evaluation_error: str = ""


class User(_Fields, frozen=True):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None
    """What else an authenticator knows. Authorizers may use it, also to narrow rights, such as OpenShift's scopes."""


class _TokenStatus(_Fields, frozen=True):
    authenticated: bool = False
    user: User = User()
    audiences: list[str] | None = None


class _AccessReview(Object, frozen=True):
    metadata: Metadata = Metadata()
    status: AccessReviewStatus = AccessReviewStatus()


class _TokenReview(Object, frozen=True):
    metadata: Metadata = Metadata()
    status: _TokenStatus = _TokenStatus()


_AUTHORIZATION, _AUTHENTICATION = "authorization.k8s.io/v1", "authentication.k8s.io/v1"
_OWN_RIGHTS = ApiResource(f"apis/{_AUTHORIZATION}", "selfsubjectaccessreviews", _AccessReview, namespaced=False)
_RIGHTS = ApiResource(f"apis/{_AUTHORIZATION}", "subjectaccessreviews", _AccessReview, namespaced=False)
_TOKENS = ApiResource(f"apis/{_AUTHENTICATION}", "tokenreviews", _TokenReview, namespaced=False)


@dataclass(frozen=True)
class Action:
    """An action in RBAC's terms, on a resource or on a non-resource `path`."""

    verb: str
    resource: str = ""
    group: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    version: str = ""

    def attributes(self) -> dict[str, Any]:
        if self.path:
            return {"nonResourceAttributes": {"verb": self.verb, "path": self.path}}
        fields = ("verb", "resource", "group", "version", "subresource", "namespace", "name")
        return {"resourceAttributes": {field: getattr(self, field) for field in fields if getattr(self, field)}}


async def may_we(client: Client, action: Action) -> AccessReviewStatus:
    """Whether we may do it (SelfSubjectAccessReview). Raises KubeError."""
    body = {"apiVersion": _AUTHORIZATION, "kind": "SelfSubjectAccessReview", "spec": action.attributes()}
    return (await client.create(_OWN_RIGHTS, body)).status


async def may(client: Client, user: User, action: Action) -> AccessReviewStatus:
    """Whether a user may do it (SubjectAccessReview). Raises KubeError."""
    who = {"user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra}
    spec = {**action.attributes(), **{name: value for name, value in who.items() if value}}
    body = {"apiVersion": _AUTHORIZATION, "kind": "SubjectAccessReview", "spec": spec}
    return (await client.create(_RIGHTS, body)).status


async def whose(client: Client, token: str, audiences: Sequence[str] = ()) -> User | None:
    """The user of a token (TokenReview); None if it is invalid or for none of the audiences. Raises KubeError."""
    spec = {"token": token} | ({"audiences": list(audiences)} if audiences else {})
    body = {"apiVersion": _AUTHENTICATION, "kind": "TokenReview", "spec": spec}
    status = (await client.create(_TOKENS, body)).status
    # an authenticator without audience support omits them and has not checked them
    for_us = not audiences or bool(set(audiences) & set(status.audiences or ()))
    return status.user if status.authenticated and for_us else None
