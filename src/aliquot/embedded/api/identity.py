"""The sender of a request, by bearer token. Without a token it is the administrator."""

import binascii
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random, SystemRandom
from urllib.parse import quote

from multidict import CIMultiDictProxy

from aliquot.apiserver.objects import Object
from aliquot.apiserver.statuses import Forbidden, Unauthorized
from aliquot.model.admission import NODE_OF_TOKEN

MASTERS = "system:masters"
"""Its members may do everything."""
_AUTHENTICATED = "system:authenticated"
_ACCOUNT = "system:serviceaccount:"
_IMPERSONATED_NODE = f"Impersonate-Extra-{quote(NODE_OF_TOKEN, safe='')}"


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...] = (_AUTHENTICATED,)
    node: str = ""
    """The node of the pod that a service account's token was made for."""

    def info(self) -> Object:
        extra = {"extra": {NODE_OF_TOKEN: [self.node]}} if self.node else {}
        return {"username": self.name, "groups": list(self.groups), **extra}


ADMIN = User("kubernetes-admin", (MASTERS, _AUTHENTICATED))


def account(namespace: str, name: str) -> str:
    """The user name of a service account."""
    return f"{_ACCOUNT}{namespace}:{name}"


def user(name: str, groups: Sequence[str] = (), node: str = "") -> User:
    """The user with the groups that follow from the name."""
    implied = [_AUTHENTICATED]
    if name.startswith(_ACCOUNT):
        namespace = name.removeprefix(_ACCOUNT).partition(":")[0]
        implied = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", _AUTHENTICATED]
    return User(name, tuple(dict.fromkeys([*groups, *implied])), node)


class Users:
    """`cluster.users`: users with tokens.

    `rules` are RBAC rules. A user without rules may do everything; a service account may do what the stored roles say.
    """

    def __init__(self, random: Random | None = None) -> None:
        self._random = random or SystemRandom()
        self._by_token: dict[str, User] = {}
        self._rules: dict[str, Sequence[Object]] = {}

    def add(
        self,
        name: str,
        *,
        groups: Sequence[str] = (),
        token: str = "",
        rules: Sequence[Mapping[str, Sequence[str]]] | None = None,
        node: str = "",
    ) -> str:
        """Adds a user and returns the token, which is random unless given, and bound to a node if one is named."""
        token = token or f"{self._random.getrandbits(128):032x}"
        may_all = rules is None and not name.startswith(_ACCOUNT)
        self._by_token[token] = user(name, [*groups, *([MASTERS] if may_all else [])], node)
        if rules is not None:
            self._rules[name] = [dict(rule) for rule in rules]
        return token

    def token_of(self, name: str) -> str:
        """The token of a user. Raises KeyError if there is none."""
        for token, held in self._by_token.items():
            if held.name == name:
                return token
        raise KeyError(f"no user {name} was added")

    def by_token(self, token: str) -> User | None:
        return self._by_token.get(token)

    def rules_of(self, name: str) -> Sequence[Object] | None:
        """The user's own rules; None if the stored roles decide."""
        return self._rules.get(name)

    def sender(self, headers: CIMultiDictProxy[str]) -> User:
        """The sender. Raises Unauthorized, or Forbidden for impersonation without the right to it."""
        real = self._real(headers.get("Authorization", ""))
        spoken_for = headers.get("Impersonate-User", "")
        if not spoken_for:
            return real
        if MASTERS not in real.groups:
            why = f'User "{real.name}" cannot impersonate resource "users" in API group "" at the cluster scope'
            raise Forbidden("", "users", spoken_for, why)
        return user(spoken_for, headers.getall("Impersonate-Group", []), headers.get(_IMPERSONATED_NODE, ""))

    def _real(self, proof: str) -> User:
        if not proof:
            return ADMIN
        found = self._by_token.get(_token(proof))
        if found is None:
            raise Unauthorized
        return found


def _token(proof: str) -> str:
    """The token of a request: a bearer token, or the password of basic authentication. kubectl sends no token without
    TLS, but it sends the password in the server's address."""
    kind, _, value = proof.partition(" ")
    if kind.lower() != "basic":
        return value.strip()
    try:
        return b64decode(value, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""
