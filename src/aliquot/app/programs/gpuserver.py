"""`gpuserver` of nvidia-gpu-scheduler: its flags, file and variables, served by Aliquot."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

import aliquot
from aliquot.app.programs import klog
from aliquot.app.programs.command_line import CommandLine, Flag, Parsed, idle_flag
from aliquot.app.programs.program import Program
from aliquot.app.programs.starting import Translated
from aliquot.app.programs.values import BOOL, SIZE
from aliquot.config import yaml_text
from aliquot.config.declaration import Given
from aliquot.errors import BadConfig
from aliquot.plain import why

_NAME = "gpuserver"
_FILE = ".metrics-podresource.yaml"
_POD, _POD_NAMESPACE = "MetadataName", "MetadataNamespace"
"""Variables with the pod's name and namespace."""
_ABOUT = """
gpuserver, served by Aliquot: the API metrics.nvidia.com/v1alpha1 with podresources and gpuinfos behind the Kubernetes
API server, and a scheduler extender for card models (schedule/filter, prioritize and preempt).

One port with TLS serves all of it, and GET /health, /healthz, /readyz and /metrics. Variables:

  MetadataName       name of the pod; without the part after its last dash it is the name of the Service and the Secret
                     (default nvidia-gpu-scheduler)
  MetadataNamespace  their namespace (default kube-system)

Each flag can also be a key of the file, such as `secure-port: 8080`, or a variable in upper case, such as SECURE-PORT.
A flag overrides a variable, and a variable overrides the file.

This program is `aliquot server` with only this endpoint. You can set every key of the server as an ALIQUOT_ variable
(docs/configuration.md). docs/programs.md lists the differences from the original.
"""
_CERT, _KEY, _CA = (f"tls-config.tls-{name}-file" for name in ("cert", "private-key", "ca"))
_SERVER_FLAGS = (
    Flag("bind-address", "Address to listen on.", default="0.0.0.0", letter="b"),
    Flag("secure-port", "Port to listen on, with TLS.", SIZE, "8080", letter="p"),
    Flag("tls-auto", "Make the certificate, and share it with replicas in a Secret.", BOOL, "true"),
    Flag(_CA, "With --tls-auto=false: file with the CA to write into the APIServices' caBundle."),
    Flag(_CERT, "With --tls-auto=false: file with the certificate."),
    Flag(_KEY, "With --tls-auto=false: file with its key."),
    Flag("enable-scheduler", "Serve schedule/filter, prioritize and preempt.", BOOL, "true"),
    idle_flag("scheduler.parallelism", "Aliquot judges all nodes at once", SIZE, "10"),
)
_KEYS = {
    "bind-address": "listen.address",
    "secure-port": "endpoints.nvidia.port",
    "enable-scheduler": "queryApi.verbs",
}
"""Their defaults are those of the server. An empty address is the default, as in the original."""
_FLAGS = (
    Flag("config", f"File with values of the flags (default $HOME/{_FILE}).", letter="c"),
    Flag("write-config-to", "Write the values of the flags to this file, and exit."),
    Flag("version", "Print the version and exit.", BOOL),
    *_SERVER_FLAGS,
    *klog.KLOG_FLAGS,
)
LINE = CommandLine(_NAME, _ABOUT, _FLAGS, gnu=True)


def _completed(parsed: Parsed) -> Parsed:
    """The flags, with what variables and the file say of flags that were not given. Raises BadConfig."""
    told = {**_from_file(parsed["config"]), **_from_variables()}
    values, written = dict(parsed.values), dict(parsed.written)
    for flag in _SERVER_FLAGS:
        if flag.name in told and flag.name not in written:
            origin, text = told[flag.name]
            try:
                values[flag.name] = flag.kind.read(text)
            except ValueError as error:
                raise BadConfig(f"{origin}: {text!r}: {error}") from error
            written[flag.name] = origin
    return replace(parsed, values=values, written=written)


def _from_variables() -> dict[str, tuple[str, str]]:
    names = {flag.name: flag.name.upper() for flag in _SERVER_FLAGS}
    return {name: (f"${variable}", os.environ[variable]) for name, variable in names.items() if variable in os.environ}


def _from_file(named: str) -> dict[str, tuple[str, str]]:
    path = Path(named) if named else Path.home() / _FILE
    if not named and not path.exists():
        return {}
    try:
        text = path.read_text()
    except (OSError, ValueError) as error:
        raise BadConfig(f"--config {path}: {why(error)}") from error
    return {name: (f"{name} in {path}", value) for name, value in _leaves(yaml_text.parse(text, str(path)))}


def _leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(tree, dict):
        for name, value in tree.items():
            yield from _leaves(value, f"{prefix}.{name}".lstrip("."))
    elif tree is not None:
        yield prefix, str(tree).lower() if isinstance(tree, bool) else str(tree)


def _print_only(parsed: Parsed) -> bool:
    if parsed["version"]:
        click.echo(f"gpuserver version aliquot-{aliquot.__version__}")
        return True
    if parsed["write-config-to"]:
        _write_config(Path(parsed["write-config-to"]), _completed(parsed))
    return bool(parsed["write-config-to"])


def _write_config(path: Path, parsed: Parsed) -> None:
    lines: dict[str, list[str]] = {"": []}
    for flag in _SERVER_FLAGS:
        section, _, name = flag.name.rpartition(".")
        value = parsed[flag.name]
        shown = str(value).lower() if isinstance(value, bool) else str(value or '""')
        lines.setdefault(section, []).append(f"{name}: {shown}")
    top = lines.pop("")
    nested = [line for section, own in lines.items() for line in (f"{section}:", *(f"  {one}" for one in own))]
    try:
        path.write_text("\n".join((*top, *nested, "")))
    except OSError as error:
        raise BadConfig(f"--write-config-to {path}: {why(error)}") from error


def _translate(parsed: Parsed) -> Translated:
    parsed = _completed(parsed)
    written = parsed.written
    given = {**klog.given(parsed), **_own_service(), "queryApi.enabled": Given(True, _NAME)}
    given |= {
        key: Given(parsed[name], written[name]) for name, key in _KEYS.items() if name in written and parsed[name] != ""
    }
    remarks: list[str] = []
    files = {_CERT: "listen.tls.certFile", _KEY: "listen.tls.keyFile", _CA: "queryApi.caFile"}
    for name, key in files.items():
        if parsed[name] and parsed["tls-auto"]:
            remarks.append(f"{written[name]}: --tls-auto makes the certificate")
        elif parsed[name]:
            given[key] = Given(parsed[name], written[name])
    if not parsed["tls-auto"] and not parsed[_CERT]:
        raise BadConfig(f"--tls-auto=false: needs --{_CERT} and --{_KEY}")
    return Translated(given, klog.form(_NAME, parsed), tuple(remarks))


def _own_service() -> dict[str, Given]:
    """The Service, by the pod's own name and namespace."""
    pod, _, _ = os.environ.get(_POD, "").rpartition("-")
    told = {"queryApi.service": (pod, _POD), "queryApi.namespace": (os.environ.get(_POD_NAMESPACE, ""), _POD_NAMESPACE)}
    return {key: Given(value, f"${variable}") for key, (value, variable) in told.items() if value}


PROGRAM = Program(LINE, "nvidia", "0.0.0.0", _translate, _print_only, "--secure-port")


def main() -> None:
    PROGRAM.main()


if __name__ == "__main__":
    main()
