"""`gpu-admission`: its flags, served by Aliquot."""

import sys

import click

import aliquot
from aliquot.app.programs import klog
from aliquot.app.programs.addresses import host_and_port
from aliquot.app.programs.command_line import CommandLine, Flag, Parsed
from aliquot.app.programs.program import Program
from aliquot.app.programs.quota_file import read_quota_file
from aliquot.app.programs.starting import Translated
from aliquot.app.programs.values import BOOL, ValueKind
from aliquot.config.declaration import Given

_NAME = "gpu-admission"
_ABOUT = """
gpu-admission, served by Aliquot: a scheduler extender for tencent.com/vcuda-core and vcuda-memory.

kube-scheduler calls POST /scheduler/predicates, Volcano calls POST /scheduler/vpredicates. The same port serves GET
/version, /healthz, /readyz and /metrics. This program is `aliquot server` with only this endpoint. You can set every
key of the server as an ALIQUOT_ variable (docs/configuration.md). docs/programs.md lists the differences from the
original.
"""


def _version(text: str) -> str:
    return text if text == "raw" else str(BOOL.read(text)).lower()


_FLAGS = (
    Flag("address", "Address and port to listen on.", default="127.0.0.1:3456"),
    Flag(
        "pprofAddress",
        "Address and port of /debug/pprof/, such as 127.0.0.1:3457. If the port is in use, the program continues "
        "without it. The default, like port 0, opens no such port.",
    ),
    Flag("kubeconfig", "Path of the kubeconfig (default $KUBECONFIG, the pod's service account, ~/.kube/config)."),
    Flag("master", "Address of the API server; overrides the kubeconfig's."),
    Flag("incluster-mode", "Use the pod's service account even if there is a kubeconfig.", BOOL),
    Flag(
        "config",
        "JSON file that names the ConfigMap with the quotas and the node labels for model and pool: "
        "QuotaConfigMapName, QuotaConfigMapNamespace, GPUModelLabel, GPUPoolLabel. SkipBindTime has no effect, since "
        "quotas count a pod as soon as it is placed.",
    ),
    Flag(
        "version",
        "Print the version and exit; --version=raw prints more.",
        ValueKind("version[=true]", _version, bare="true", absent="false"),
    ),
    *klog.KLOG_FLAGS,
)


def _print_version(parsed: Parsed) -> bool:
    if parsed["version"] == "raw":
        python = ".".join(map(str, sys.version_info[:3]))
        click.echo(f'version.Info{{GitBranch:"aliquot", GitCommit:"{aliquot.__version__}", PythonVersion:"{python}"}}')
    elif parsed["version"] == "true":
        click.echo(f"GPU-Quota-Admission aliquot-{aliquot.__version__}")
    return bool(parsed["version"] != "false")


def _translate(parsed: Parsed) -> Translated:
    given = klog.given(parsed)
    address, port = host_and_port("--address", parsed["address"])
    values = {
        "address": {"listen.address": address, "endpoints.admission.port": port},
        "kubeconfig": {"kubernetes.kubeconfig": parsed["kubeconfig"]},
        "master": {"kubernetes.server": parsed["master"]},
        "incluster-mode": {"kubernetes.asPod": parsed["incluster-mode"]},
    }
    for name, keys in values.items():
        if name in parsed.written:
            given |= {key: Given(value, f"--{name}") for key, value in keys.items()}
    if "pprofAddress" in parsed.written:
        given |= _profiling(parsed["pprofAddress"])
    if parsed["config"]:
        given |= read_quota_file(parsed["config"])
    return Translated(given, klog.form(_NAME, parsed))


def _profiling(where: str) -> dict[str, Given]:
    """Only this flag opens the port for profiles."""
    address, port = host_and_port("--pprofAddress", where)
    keys = {
        "listen.profiling": True,
        "endpoints.admission.debugAddress": address,
        "endpoints.admission.debugPort": port,
    }
    return {key: Given(value, "--pprofAddress") for key, value in keys.items()}


PROGRAM = Program(
    CommandLine(_NAME, _ABOUT, _FLAGS, gnu=True), "admission", "127.0.0.1", _translate, _print_version, "--address"
)


def main() -> None:
    PROGRAM.main()


if __name__ == "__main__":
    main()
