"""RBAC: what a user may do, by the user's own rules or else by the stored roles."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from aliquot.apiserver.objects import Object, dig, text_at
from aliquot.apiserver.statuses import Forbidden
from aliquot.apiserver.store import Store
from aliquot.embedded.api.identity import MASTERS, User, Users, account
from aliquot.embedded.api.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES

_ALL = "*"
_ABOUT_ONESELF = ("selfsubjectaccessreviews", "selfsubjectreviews")
_EVERYTHING: tuple[Object, ...] = (
    {"verbs": [_ALL], "apiGroups": [_ALL], "resources": [_ALL]},
    {"verbs": [_ALL], "nonResourceURLs": [_ALL]},
)


@dataclass(frozen=True, slots=True)
class Action:
    """An action in RBAC's terms. `path` is for non-resource URLs."""

    verb: str
    resource: str = ""
    group: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def whole_resource(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def __str__(self) -> str:
        if self.path:
            return f'{self.verb} path "{self.path}"'
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return f'{self.verb} resource "{self.whole_resource}" in API group "{self.group}" {where}'


class Rights:
    def __init__(self, store: Store, users: Users) -> None:
        self._store = store
        self._users = users

    def require(self, user: User, action: Action) -> None:
        """Raises Forbidden with the real server's message."""
        if not self.allow(user, action):
            raise Forbidden(action.group, action.resource, action.name, f'User "{user.name}" cannot {action}')

    def allow(self, user: User, action: Action) -> bool:
        if action.resource in _ABOUT_ONESELF:
            return True
        return any(_covers(rule, action) for rule in self._of(user, action.namespace))

    def _of(self, user: User, namespace: str) -> Iterable[Object]:
        if MASTERS in user.groups:
            return _EVERYTHING
        own = self._users.rules_of(user.name)
        return self._by_roles(user, namespace) if own is None else own

    def _by_roles(self, user: User, namespace: str) -> Iterator[Object]:
        for held in self._store.snapshot(CLUSTER_ROLE_BINDINGS.collection):
            if _is_bound(held.obj, user):
                yield from self._rules(held.obj, "")
        for held in self._store.snapshot(ROLE_BINDINGS.collection) if namespace else ():
            if text_at(held.obj, "metadata", "namespace") == namespace and _is_bound(held.obj, user):
                yield from self._rules(held.obj, namespace)

    def _rules(self, binding: Object, namespace: str) -> Sequence[Object]:
        name = text_at(binding, "roleRef", "name")
        is_role = text_at(binding, "roleRef", "kind") == ROLES.kind
        collection, key = (ROLES, (namespace, name)) if is_role else (CLUSTER_ROLES, ("", name))
        role = self._store.get(collection.collection, key)
        return (role.obj.get("rules") or ()) if role is not None else ()


def _is_bound(binding: Object, user: User) -> bool:
    return any(_is_subject(subject, user) for subject in binding.get("subjects") or ())


def _is_subject(subject: Object, user: User) -> bool:
    name = text_at(subject, "name")
    match subject.get("kind"):
        case "User":
            return name == user.name
        case "Group":
            return name in user.groups
        case "ServiceAccount":
            return account(text_at(subject, "namespace"), name) == user.name
    return False


def _covers(rule: Object, action: Action) -> bool:
    if not _has(rule, "verbs", action.verb):
        return False
    if action.path:
        return any(_is_below(pattern, action.path) for pattern in rule.get("nonResourceURLs") or ())
    named = dig(rule, "resourceNames") or ()
    anywhere = f"*/{action.subresource}" if action.subresource else action.resource
    is_resource = _has(rule, "resources", action.whole_resource) or anywhere in (rule.get("resources") or ())
    return _has(rule, "apiGroups", action.group) and is_resource and (not named or action.name in named)


def _has(rule: Object, field: str, wanted: str) -> bool:
    listed = rule.get(field) or ()
    return wanted in listed or _ALL in listed


def _is_below(pattern: str, path: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith(_ALL) else path == pattern
