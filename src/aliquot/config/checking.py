"""Values that are right each for itself, and together or for this program are not."""

from collections.abc import Callable, Collection, Iterator
from itertools import combinations

from aliquot.compat import parse as parse_compat
from aliquot.config import meaning
from aliquot.config.addresses import is_loopback
from aliquot.config.tree import ENDPOINTS, SETTINGS, Configuration
from aliquot.dialects import make_dialects, standard_dialects
from aliquot.errors import BadConfig

_PORTS = (
    *(f"endpoints.{endpoint}.port" for endpoint in ENDPOINTS),
    "endpoints.admission.debugPort",
    "listen.healthPort",
)
_ENABLED = tuple(f"endpoints.{endpoint}.enabled" for endpoint in ENDPOINTS)
_TLS = (
    "listen.tls.certFile",
    "listen.tls.keyFile",
    "listen.tls.clientCaFile",
    "replicas.caFile",
    "replicas.tlsName",
    "replicas.tokenFile",
)
_CALLERS = (
    "callers.users",
    "callers.groups",
    "schedulers",
    "listen.address",
    "listen.healthPort",
    "listen.profiling",
    "endpoints.admission.debugAddress",
    "endpoints.admission.debugPort",
    *(f"endpoints.{endpoint}.callers" for endpoint in ENDPOINTS),
)
KINDS = ("scheduler", "replica", "reader", "nobody")
_BODIES = ("listen.limits.bodyMb", "listen.limits.bodiesMb")
_TERMS = ("lease.duration", "lease.renew", "lease.retry")
_PREFIXES = ("prefixes",)
_POLICIES = ("policies.gpu", "policies.node")
_EXTENDER_SECONDS = 5.0
"""How long kube-scheduler waits for an extender unless its httpTimeout says otherwise."""


def clashes(tree: Configuration, unread: Collection[str] = ()) -> Iterator[str]:
    """Every problem of a tree in which the `unread` keys have their defaults for want of a good value: nothing that
    depends on these is looked at."""
    for paths, check in _CHECKS:
        if not set(paths) & set(unread):
            yield from check(tree)


def doubts(tree: Configuration) -> list[str]:
    """What can be used, but hardly is what was meant."""
    commit, limit = tree.commit, tree.listen.limits.seconds
    waits = f"kube-scheduler waits {_EXTENDER_SECONDS:g} s for"
    found: list[str] = []
    if commit.budget + commit.look > _EXTENDER_SECONDS:
        together = f"commit.budget and commit.look are together {commit.budget + commit.look:g} s"
        found.append(f"{together}: {waits} a bind, unless its httpTimeout is longer")
    if limit >= _EXTENDER_SECONDS:
        found.append(f"listen.limits.seconds is {limit:g}: {waits} an answer, unless its httpTimeout is longer")
    if not any(getattr(tree.endpoints, endpoint).enabled for endpoint in ENDPOINTS):
        found.append("every endpoint is closed: there is nobody to ask, not even for /readyz")
    return found


def _ports(tree: Configuration) -> Iterator[str]:
    ports = dict(_open_ports(tree))
    for one, other in combinations(ports, 2):
        if ports[one] == ports[other] != 0:
            yield f"{one} and {other} are both {ports[one]}: each endpoint needs a port of its own"


def _open_ports(tree: Configuration) -> Iterator[tuple[str, int]]:
    for name in ENDPOINTS:
        endpoint = getattr(tree.endpoints, name)
        if endpoint.enabled:
            yield f"endpoints.{name}.port", endpoint.port
    if tree.endpoints.admission.enabled and tree.listen.profiling:
        yield "endpoints.admission.debugPort", tree.endpoints.admission.debug_port
    yield "listen.healthPort", tree.listen.health_port


def _bodies(tree: Configuration) -> Iterator[str]:
    one, several = tree.listen.limits.body_mb, tree.listen.limits.bodies_mb
    if several < one:
        yield f"listen.limits.bodiesMb is {several}, less than listen.limits.bodyMb, {one}: no such body could be read"


def _compat(tree: Configuration) -> Iterator[str]:
    if unknown := sorted(tree.compat.keys() - set(ENDPOINTS)):
        yield f"compat: no endpoint is called {', '.join(unknown)}; there are {', '.join(ENDPOINTS)}"
    for endpoint, quirks in tree.compat.items():
        try:
            parse_compat(quirks)
        except BadConfig as error:
            yield f"compat.{endpoint}: {error}"


def _tls(tree: Configuration) -> Iterator[str]:
    tls, replicas = tree.listen.tls, tree.replicas
    if bool(tls.cert_file) != bool(tls.key_file):
        yield "listen.tls.certFile and listen.tls.keyFile: a certificate and its key go together"
    elif not tls.cert_file:
        values = (tls.client_ca_file, replicas.ca_file, replicas.tls_name, replicas.token_file)
        given = dict(zip(_TLS[2:], values, strict=True))
        for path in filter(given.get, given):
            yield f"{path}: without listen.tls.certFile there is no TLS"


def _callers(tree: Configuration) -> Iterator[str]:
    for key, given in (("callers.users", tree.callers.users), ("callers.groups", tree.callers.groups)):
        for name, kind in given.items():
            if kind not in KINDS:
                yield f"{key}.{name}: there is no kind {kind}, only {', '.join(KINDS)}"
    if not meaning.schedulers(tree) and "*" not in tree.schedulers:
        yield "schedulers: name at least one, or * for all"
    if tree.listen.tls.cert_file:
        return
    for path, address, answered in _listening(tree):
        if meaning.knows_callers(tree, answered, address) and not is_loopback(address):
            yield (
                f"{path}: others reach {address}, and without listen.tls.certFile nobody can prove who calls; give "
                "one, listen on 127.0.0.1, or answer anyone (docs/callers.md)"
            )


def _listening(tree: Configuration) -> Iterator[tuple[str, str, str]]:
    """The key that says who is answered, the address, and who is."""
    for name in ENDPOINTS:
        endpoint = getattr(tree.endpoints, name)
        if endpoint.enabled:
            yield f"endpoints.{name}.callers", tree.listen.address, endpoint.callers
    if (
        tree.listen.health_port and not tree.endpoints.native.enabled
    ):  # whoever may read at the native endpoint may read there
        yield (
            "endpoints.native.callers, by which listen.healthPort answers",
            tree.listen.address,
            tree.endpoints.native.callers,
        )
    debug = tree.endpoints.admission
    if debug.enabled and debug.debug_port and tree.listen.profiling:
        yield "endpoints.admission.callers", debug.debug_address, debug.callers


def _lease(tree: Configuration) -> Iterator[str]:
    try:
        meaning.control_settings(tree)
    except BadConfig as error:
        yield f"{', '.join(_TERMS)}: {error}"


def _prefixes(tree: Configuration) -> Iterator[str]:
    """One by one first, so that each is named; then whether they go together."""
    wrong = list(_unless_made(*({name: prefix} for name, prefix in tree.prefixes.items())))
    yield from wrong or _unless_made(tree.prefixes)


def _unless_made(*choices: dict[str, str]) -> Iterator[str]:
    for prefixes in choices:
        try:
            make_dialects(prefixes)
        except BadConfig as error:
            yield str(error)


def _policies(tree: Configuration) -> Iterator[str]:
    yield from meaning.wrong_policies(standard_dialects(), tree)


_CHECKS: tuple[tuple[tuple[str, ...], Callable[[Configuration], Iterator[str]]], ...] = (
    ((*_PORTS, *_ENABLED, "listen.profiling"), _ports),
    (_BODIES, _bodies),
    (("compat",), _compat),
    (_TLS, _tls),
    ((*_TLS, *_CALLERS, *_ENABLED), _callers),
    (_TERMS, _lease),
    (_PREFIXES, _prefixes),
    (_POLICIES, _policies),
)
assert all(path in SETTINGS for paths, _ in _CHECKS for path in paths), "a check names a key that there is not"
