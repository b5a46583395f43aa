"""Exec plugins of a kubeconfig: programs that return credentials (client.authentication.k8s.io)."""

import asyncio
import base64
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from aliquot.clock import Clock, SystemClock
from aliquot.errors import BadConfig
from aliquot.kube.errors import NotSent

_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_RUN_SECONDS = 60.0
_BEFORE_EXPIRY_SECONDS = 10.0
_MAX_WORDS = 400


class _Status(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    status: _Status


@dataclass(frozen=True)
class Credential:
    """A plugin's credential: a token, a certificate with its key as one PEM, or both. `until` is wall time."""

    token: str = ""
    certificate: bytes = b""
    until: float | None = None


class ExecPlugin:
    """Runs the program when a credential is needed, and again shortly before it expires or after `forget`.

    It runs without a shell or a terminal, and never twice at the same time. A caller that stops waiting does not stop
    the program. Otherwise a slow program would never finish for callers with short timeouts.
    """

    def __init__(
        self,
        command: str,
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        version: str = _VERSIONS[0],
        cluster: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        seconds: float = _RUN_SECONDS,
    ) -> None:
        self._words = (command, *args)
        self._version = version
        spec = {"interactive": False} | ({"cluster": dict(cluster)} if cluster else {})
        info = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
        self._env = {**(env or {}), "KUBERNETES_EXEC_INFO": json.dumps(info)}
        self._clock = clock or SystemClock()
        self._seconds = seconds
        self._held: Credential | None = None
        self._run: asyncio.Task[Credential] | None = None

    async def credential(self) -> Credential:
        """The current credential. Raises NotSent with the program's own message if it returns none."""
        if self._held is not None and not self._ends_soon(self._held):
            return self._held
        if self._run is None or self._run.done():
            self._run = asyncio.create_task(self._fetch())
            self._run.add_done_callback(_heard)
        return await asyncio.shield(self._run)

    async def close(self) -> None:
        if self._run is not None:
            self._run.cancel()
            await asyncio.wait({self._run})

    async def _fetch(self) -> Credential:
        self._held = self._read(await self._output())
        return self._held

    def forget(self, refused: Credential) -> None:
        """Drop a credential that the API server refused. The next call runs the program again."""
        if self._held is refused:
            self._held = None

    def _ends_soon(self, held: Credential) -> bool:
        return held.until is not None and self._clock.wall_ns() / 1e9 >= held.until - _BEFORE_EXPIRY_SECONDS

    async def _output(self) -> bytes:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, **self._env},
            )
        except (OSError, ValueError) as error:
            raise self._failed(f"cannot be run: {error}") from error
        try:
            async with asyncio.timeout(self._seconds):
                output, words = await process.communicate()
        except TimeoutError as error:
            raise self._failed(f"did not answer within {self._seconds:g} s") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()
        if process.returncode:
            raise self._failed(f"ended with {process.returncode}: {_clipped(words)}")
        return output

    def _read(self, output: bytes) -> Credential:
        try:
            answer = msgspec.json.decode(output, type=_ExecCredential)
            if (answer.kind, answer.api_version) != ("ExecCredential", self._version):
                raise ValueError(f"it is a {answer.kind} of {answer.api_version}, not an ExecCredential")
            status = answer.status
            until = status.expiration_timestamp.timestamp() if status.expiration_timestamp else None
        except (msgspec.DecodeError, ValueError) as error:
            raise self._failed(f"returned no {self._version} credential: {error}") from error
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise self._failed("returned a certificate without its key, or a key without its certificate")
        if not status.token and not status.client_key_data:
            raise self._failed("returned neither a token nor a certificate")
        pair = (status.client_certificate_data, status.client_key_data)
        return Credential(status.token, "\n".join(filter(None, pair)).encode(), until)

    def _failed(self, why: str) -> NotSent:
        return NotSent(f"the kubeconfig's exec plugin {self._words[0]} {why}")


def read(section: Any, folder: Path, cluster: Mapping[str, Any]) -> ExecPlugin:
    """The plugin that a user's `exec` describes. Raises BadConfig that names the field."""
    if not isinstance(section, dict) or not isinstance(section.get("command"), str) or not section["command"]:
        raise BadConfig("exec needs a command")
    if section.get("apiVersion") not in _VERSIONS:
        raise BadConfig(f"exec.apiVersion is {section.get('apiVersion')!r}, not {' or '.join(_VERSIONS)}")
    if section.get("interactiveMode") == "Always":
        raise BadConfig("exec.interactiveMode is Always, but there is no terminal to ask on")
    try:
        args = [str(word) for word in section.get("args") or ()]
        env = {str(pair["name"]): str(pair["value"]) for pair in section.get("env") or ()}
    except (KeyError, TypeError) as error:
        raise BadConfig("exec.args must be a list of strings, and exec.env a list of names and values") from error
    shown = _cluster_info(cluster, folder) if section.get("provideClusterInfo") else None
    return ExecPlugin(_program(section, folder), args, env=env, version=section["apiVersion"], cluster=shown)


def _program(section: Mapping[str, Any], folder: Path) -> str:
    """Look up a bare name in PATH; a relative path starts at the kubeconfig's folder. Raises BadConfig."""
    command = str(section["command"])
    found = shutil.which(str(folder / command) if os.sep in command else command)
    if found is None:
        hint = str(section.get("installHint") or "").strip()
        raise BadConfig(f"exec.command {command} does not exist or is not executable" + (f": {hint}" if hint else ""))
    return found


def _cluster_info(cluster: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    told = {
        name: cluster[name] for name in ("server", "tls-server-name", "insecure-skip-tls-verify") if name in cluster
    }
    if "certificate-authority-data" in cluster:
        told["certificate-authority-data"] = cluster["certificate-authority-data"]
    elif "certificate-authority" in cluster:
        content = (folder / str(cluster["certificate-authority"])).read_bytes()
        told["certificate-authority-data"] = base64.b64encode(content).decode()
    for extension in cluster.get("extensions") or ():
        if extension.get("name") == "client.authentication.k8s.io/exec":
            told["config"] = extension.get("extension")
    return told


def _clipped(words: bytes) -> str:
    """The end of the output: that is where programs say what went wrong."""
    text = " ".join(words.decode(errors="replace").split())
    return text if len(text) <= _MAX_WORDS else "…" + text[-_MAX_WORDS:]


def _heard(run: asyncio.Task[Credential]) -> None:
    """Mark the task's error as seen: if no caller waits any more, the event loop need not report it."""
    if not run.cancelled():
        run.exception()
