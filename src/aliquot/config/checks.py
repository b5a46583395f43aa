"""Checks of the server's configuration beyond single values: keys that contradict each other, and likely mistakes."""

from collections.abc import Callable, Collection, Iterator
from itertools import combinations
from typing import Any, cast

from aliquot.compat import parse as parse_compat
from aliquot.config.addresses import is_loopback
from aliquot.config.configured_dialects import policy_problems
from aliquot.config.keys import Section
from aliquot.config.sections.endpoints import ENDPOINTS
from aliquot.config.server_tree import ServerConfig
from aliquot.dialects import make_dialects, standard_dialects
from aliquot.errors import BadConfig
from aliquot.kube import LeaseTiming

CALLER_KINDS = ("scheduler", "replica", "reader", "nobody")
_EXTENDER_SECONDS = 5.0
"""How long kube-scheduler waits for an extender by default."""


def problems(config: ServerConfig, unusable: Collection[str] = ()) -> Iterator[str]:
    """Every contradiction in a configuration. Skips checks that need a key with an unusable value."""
    readable = cast(ServerConfig, _Readable(config, unusable))
    for check in _CHECKS:
        try:
            yield from list(check(readable))
        except _UnusableKey:
            continue


def doubts(config: ServerConfig) -> list[str]:
    """Valid settings that are probably mistakes."""
    commit, limit = config.commit, config.listen.limits.seconds
    waits = f"kube-scheduler waits only {_EXTENDER_SECONDS:g} s for"
    found: list[str] = []
    if commit.budget + commit.look > _EXTENDER_SECONDS:
        total = f"commit.budget plus commit.look is {commit.budget + commit.look:g} s"
        found.append(f"{total}, but {waits} a bind, unless its httpTimeout is longer")
    if limit >= _EXTENDER_SECONDS:
        found.append(f"listen.limits.seconds is {limit:g}, but {waits} an answer, unless its httpTimeout is longer")
    if not any(getattr(config.endpoints, endpoint).enabled for endpoint in ENDPOINTS):
        found.append("every endpoint is disabled: the server answers no scheduler")
    return found


class _UnusableKey(Exception):
    pass


class _Readable:
    """A view of a section that raises _UnusableKey when a check reads a key with an unusable value."""

    def __init__(self, section: Section, unusable: Collection[str], path: str = "") -> None:
        self._section = section
        self._unusable = unusable
        self._path = path
        self._names = dict(zip(section.__struct_fields__, section.__struct_encode_fields__, strict=True))

    def __getattr__(self, name: str) -> Any:
        if name not in self._names:  # a method or property, which reads keys itself
            return vars(type(self._section))[name].__get__(self)
        path = f"{self._path}.{self._names[name]}".lstrip(".")
        if path in self._unusable:
            raise _UnusableKey(path)
        value = getattr(self._section, name)
        return _Readable(value, self._unusable, path) if isinstance(value, Section) else value


def _ports(config: ServerConfig) -> Iterator[str]:
    ports = dict(_open_ports(config))
    for first, second in combinations(ports, 2):
        if ports[first] == ports[second] != 0:
            yield f"{first} and {second} are both {ports[first]}: each endpoint needs its own port"


def _open_ports(config: ServerConfig) -> Iterator[tuple[str, int]]:
    for name in ENDPOINTS:
        endpoint = getattr(config.endpoints, name)
        if endpoint.enabled:
            yield f"endpoints.{name}.port", endpoint.port
    if config.endpoints.admission.enabled and config.listen.profiling:
        yield "endpoints.admission.debugPort", config.endpoints.admission.debug_port
    yield "listen.healthPort", config.listen.health_port


def _bodies(config: ServerConfig) -> Iterator[str]:
    body, total = config.listen.limits.body_mb, config.listen.limits.bodies_mb
    if total < body:
        yield f"listen.limits.bodiesMb is {total}, less than listen.limits.bodyMb, {body}; set it to at least {body}"


def _compat(config: ServerConfig) -> Iterator[str]:
    if unknown := sorted(config.compat.keys() - set(ENDPOINTS)):
        yield f"compat: unknown endpoint {', '.join(unknown)}; valid endpoints are {', '.join(ENDPOINTS)}"
    for endpoint, quirks in config.compat.items():
        try:
            parse_compat(quirks)
        except BadConfig as error:
            yield f"compat.{endpoint}: {error}"


def _tls(config: ServerConfig) -> Iterator[str]:
    tls, replicas = config.listen.tls, config.replicas
    if bool(tls.cert_file) != bool(tls.key_file):
        yield "listen.tls.certFile and listen.tls.keyFile: set both or neither"
    elif not tls.cert_file:
        need_tls = {
            "listen.tls.clientCaFile": tls.client_ca_file,
            "replicas.caFile": replicas.ca_file,
            "replicas.tlsName": replicas.tls_name,
            "replicas.tokenFile": replicas.token_file,
        }
        for path in filter(need_tls.get, need_tls):
            yield f"{path}: needs TLS, so set listen.tls.certFile"


def _query_api(config: ServerConfig) -> Iterator[str]:
    query = config.query_api
    if query.ca_file and not config.listen.tls.cert_file:
        yield "queryApi.caFile: the server makes the certificate and knows its CA, unless listen.tls.certFile is set"
    for name in query.api_services:
        version, dot, group = name.partition(".")
        if not (version and dot and group):
            yield f"queryApi.apiServices: {name} is not a name of an APIService, VERSION.GROUP"
    for name in query.endpoints:
        if not getattr(config.endpoints, name).enabled:
            yield f"queryApi.enabled: needs the port of endpoints.{name}, which is disabled"


def _callers(config: ServerConfig) -> Iterator[str]:
    for key, kinds in (("callers.users", config.callers.users), ("callers.groups", config.callers.groups)):
        for name, kind in kinds.items():
            if kind not in CALLER_KINDS:
                yield f"{key}.{name}: unknown kind {kind}; valid kinds are {', '.join(CALLER_KINDS)}"
    if not config.scheduler_names and "*" not in config.schedulers:
        yield "schedulers: name at least one scheduler, or * for all"
    if config.listen.tls.cert_file:
        return
    exposed: dict[str, list[str]] = {}
    for path, address, answered in _listening(config):
        if config.listen.knows_callers(answered, address) and not is_loopback(address):
            exposed.setdefault(address, []).append(path)
    for address, paths in exposed.items():
        yield (
            f"{', '.join(paths)}: other machines can reach {address}, and without listen.tls.certFile callers cannot "
            "prove who they are; set it, listen on 127.0.0.1, or answer anyone (docs/callers.md)"
        )


def _listening(config: ServerConfig) -> Iterator[tuple[str, str, str]]:
    """Each open port, except the query API's: the key that says who gets answers, the address, and that key's value."""
    for name in ENDPOINTS:
        endpoint = getattr(config.endpoints, name)
        if endpoint.enabled and name not in config.query_api.endpoints:
            yield f"endpoints.{name}.callers", config.listen.address, endpoint.callers
    native = config.endpoints.native
    if config.listen.health_port and not native.enabled:  # whoever may read at the native endpoint may read there
        key = "endpoints.native.callers, which also applies to listen.healthPort"
        yield key, config.listen.address, native.callers
    debug = config.endpoints.admission
    if debug.enabled and debug.debug_port and config.listen.profiling:
        yield "endpoints.admission.callers", debug.debug_address, debug.callers


def _lease(config: ServerConfig) -> Iterator[str]:
    lease = config.lease
    try:
        LeaseTiming(lease.duration, lease.renew, lease.retry)
    except BadConfig as error:
        yield f"lease.duration, lease.renew, lease.retry: {error}"


def _prefixes(config: ServerConfig) -> Iterator[str]:
    """Check each prefix alone, so that every problem is named, and then all together."""
    wrong = list(_unless_made(*({name: prefix} for name, prefix in config.prefixes.items())))
    yield from wrong or _unless_made(config.prefixes)


def _unless_made(*choices: dict[str, str]) -> Iterator[str]:
    for prefixes in choices:
        try:
            make_dialects(prefixes)
        except BadConfig as error:
            yield str(error)


def _policies(config: ServerConfig) -> Iterator[str]:
    yield from policy_problems(standard_dialects(), config.policies)


_CHECKS: tuple[Callable[[ServerConfig], Iterator[str]], ...] = (
    _ports,
    _bodies,
    _compat,
    _tls,
    _query_api,
    _callers,
    _lease,
    _prefixes,
    _policies,
)
