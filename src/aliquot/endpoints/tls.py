"""Certificates for listeners and for calls to other replicas, read from files and reloaded on change.

Kubernetes updates a mounted Secret by swapping a symbolic link. Open connections keep their certificates. Unusable
files change nothing. An expired or not yet valid certificate does not replace a valid certificate.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

import structlog

from aliquot import metrics
from aliquot.clock import Clock, SystemClock
from aliquot.endpoints.validity import Validity, validity_of
from aliquot.errors import BadConfig
from aliquot.plain import why
from aliquot.signals import Signal

_log = structlog.get_logger()

_LOOK_SECONDS = 1.0
_SOON_SECONDS = 7 * 86400.0
_APPLIED = metrics.TLS_RELOADS.labels("applied")
_INVALID = metrics.TLS_RELOADS.labels("invalid")
_WORDS = {"KEY_VALUES_MISMATCH": "the key does not match the certificate"}


@dataclass(frozen=True)
class Files:
    """PEM files; an empty path means none."""

    cert: str
    key: str
    client_ca: str = ""
    """The CA of client certificates."""
    replica_ca: str = ""
    """The CA of other replicas' certificates; defaults to the client CA, then to the system's CAs."""
    replica_token: str = ""
    """The token file for other replicas; without it, we present our certificate."""
    least: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2

    def all(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.cert, self.key, self.client_ca, self.replica_ca)))


class ServesTls(Protocol):
    """What a listener needs for TLS."""

    @property
    def serving(self) -> ssl.SSLContext:
        """Hands each handshake to the newest context."""


class ReachesReplicas(Protocol):
    """What calls to other replicas need for TLS."""

    @property
    def reaching(self) -> ssl.SSLContext: ...


class Certificates:
    """Load the certificates; `run` follows them. Raises BadConfig, naming the key and the file, if they are unusable at
    startup. An expired or not yet valid certificate is better than none; `notes` reports it."""

    def __init__(self, files: Files, clock: Clock | None = None) -> None:
        self._files = files
        self._clock = clock or SystemClock()
        self._trouble = ""
        self._seen = self._look()
        self._current, self._validity = _serving(files), _validity(files)
        self.reaching = _reaching(files)
        """For calls to other replicas; replaced on every change."""
        self.serving = _serving(files)
        """For listeners, never replaced: it hands each handshake to the newest context."""
        self.serving.sni_callback = self._hand_over
        self.changed: Signal[None] = Signal()
        self._count()

    def notes(self) -> list[str]:
        """Problems that people should know about."""
        found = []
        if self._trouble:
            found.append(f"Aliquot keeps the previous certificates: {self._trouble}")
        now, shown = self._now(), self._validity
        if trouble := shown.trouble(now) or shown.expiry() * (shown.until - now < _SOON_SECONDS):
            found.append(f"{_named(self._files)}: {trouble}")
        return found

    async def run(self) -> NoReturn:
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Reload the files if they changed."""
        stamps = self._look()
        if stamps != self._seen:
            self._seen = stamps
            try:
                self._take()
            except BadConfig as error:
                self._keep(str(error))
        self._count()

    def _take(self) -> None:
        """Switch to the new certificates. Raises BadConfig if the old ones are better."""
        serving, reaching, validity = _serving(self._files), _reaching(self._files), _validity(self._files)
        now = self._now()
        if (trouble := validity.trouble(now)) and not self._validity.trouble(now):
            self._seen = []  # it may become valid later
            raise BadConfig(f"{_named(self._files)}: {trouble}")
        self._current, self.reaching, self._validity = serving, reaching, validity
        self._trouble = ""
        _APPLIED.inc()
        _log.info("loaded new certificates", files=self._files.all(), until=validity.until)
        self.changed.emit(None)

    def _keep(self, why: str) -> None:
        if why != self._trouble:
            _INVALID.inc()
            _log.error("keeping the previous certificates", why=why)
        self._trouble = why

    def _count(self) -> None:
        metrics.TLS_VALID.set(not self._trouble and not self._validity.trouble(self._now()))
        metrics.TLS_EXPIRES.set(self._validity.until)

    def _now(self) -> float:
        return self._clock.wall_ns() / 1e9

    def _look(self) -> list[tuple[int, ...]]:
        return [_stamp(Path(path)) for path in self._files.all()]

    def _hand_over(self, handshake: Any, _: str | None, __: ssl.SSLContext) -> None:
        handshake.context = self._current


def _named(files: Files) -> str:
    return f"listen.tls.certFile {files.cert}"


def _validity(files: Files) -> Validity:
    """The validity of a file that ssl has read."""
    try:
        return validity_of(Path(files.cert).read_bytes())
    except (OSError, ValueError) as error:
        raise BadConfig(f"{_named(files)}: cannot read the certificate: {why(error)}") from error


def server_context(least: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = least
    # ssl does not check a resumed session against the current CA
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    return context


def _serving(files: Files) -> ssl.SSLContext:
    context = server_context(files.least)
    _own_pair(context, files)
    if files.client_ca:
        # a client without a certificate may have a token; kubelet's probes have neither (Gate.of)
        context.verify_mode = ssl.CERT_OPTIONAL
        _trust(context, "listen.tls.clientCaFile", files.client_ca)
    return context


def _reaching(files: Files) -> ssl.SSLContext:
    """Our client context for other replicas."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = files.least
    if not files.replica_token:
        _own_pair(context, files)
    if files.replica_ca:
        _trust(context, "replicas.caFile", files.replica_ca)
    elif files.client_ca:
        _trust(context, "listen.tls.clientCaFile", files.client_ca)
    else:
        context.load_default_certs()
    return context


def _own_pair(context: ssl.SSLContext, files: Files) -> None:
    _require_readable("listen.tls.certFile", files.cert)
    _require_readable("listen.tls.keyFile", files.key)
    try:
        # an empty password prevents a prompt on the terminal
        context.load_cert_chain(files.cert, files.key, password="")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", "") or why(error)
        trouble = _WORDS.get(reason, f"no PEM certificate that matches the key ({reason})")
        raise BadConfig(f"listen.tls.certFile {files.cert}, listen.tls.keyFile {files.key}: {trouble}") from error


def _trust(context: ssl.SSLContext, key: str, path: str) -> None:
    _require_readable(key, path)
    try:
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:
        raise BadConfig(f"{key} {path}: the file contains no PEM certificates") from error


def _require_readable(key: str, path: str) -> None:
    try:
        Path(path).read_bytes()
    except OSError as error:
        raise BadConfig(f"{key} {path}: {why(error)}") from error


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
