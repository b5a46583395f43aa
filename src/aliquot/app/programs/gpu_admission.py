"""`gpu-admission`: its flags, and Aliquot behind its routes."""

import sys

import click

import aliquot
from aliquot.app.programs import klog
from aliquot.app.programs.addresses import host_and_port
from aliquot.app.programs.command_line import CommandLine, Flag, Parsed
from aliquot.app.programs.klog_flags import KLOG_FLAGS
from aliquot.app.programs.quota_file import read_quota_file
from aliquot.app.programs.starting import Program, Wanted
from aliquot.app.programs.values import BOOL, Kind
from aliquot.config import Given

_NAME = "gpu-admission"
_ABOUT = """
gpu-admission, answered by Aliquot: a scheduler extender for tencent.com/vcuda-core and vcuda-memory.

POST /scheduler/predicates is for kube-scheduler, POST /scheduler/vpredicates for Volcano; GET /version, /healthz,
/readyz and /metrics are on the same port. It is `aliquot server` with this one endpoint: every key of that can be given
as an ALIQUOT_ variable (docs/configuration.md). docs/programs.md says what differs from the original.
"""


def _version(text: str) -> str:
    return text if text == "raw" else str(BOOL.read(text)).lower()


_FLAGS = (
    Flag("address", "The address and port to listen on.", default="127.0.0.1:3456"),
    Flag(
        "pprofAddress",
        "The address and port of /debug/pprof/, such as 127.0.0.1:3457; if they cannot be had, it goes on without. "
        "Without the flag, or with port 0, there is none.",
    ),
    Flag("kubeconfig", "The path of a kubeconfig. Without: $KUBECONFIG, the pod's service account, ~/.kube/config."),
    Flag("master", "The address of the API server, instead of the kubeconfig's."),
    Flag("incluster-mode", "Use the pod's service account, whatever kubeconfig there is.", BOOL),
    Flag(
        "config",
        "A JSON file that says which ConfigMap has the quotas, and which labels name a node's model and pool: "
        "QuotaConfigMapName, QuotaConfigMapNamespace, GPUModelLabel, GPUPoolLabel. SkipBindTime has no effect: quotas "
        "count pods from when they are placed, so nothing has to be waited for.",
    ),
    Flag(
        "version",
        "Print the version and end; --version=raw prints more.",
        Kind("version[=true]", _version, bare="true", absent="false"),
    ),
    *KLOG_FLAGS,
)


def _tell_version(parsed: Parsed) -> bool:
    if parsed["version"] == "raw":
        python = ".".join(map(str, sys.version_info[:3]))
        click.echo(f'version.Info{{GitBranch:"aliquot", GitCommit:"{aliquot.__version__}", PythonVersion:"{python}"}}')
    elif parsed["version"] == "true":
        click.echo(f"GPU-Quota-Admission aliquot-{aliquot.__version__}")
    return bool(parsed["version"] != "false")


def _understand(parsed: Parsed) -> Wanted:
    given = klog.given(parsed)
    address, port = host_and_port("--address", parsed["address"])
    values = {
        "address": {"listen.address": address, "endpoints.admission.port": port},
        "kubeconfig": {"kubernetes.kubeconfig": parsed["kubeconfig"]},
        "master": {"kubernetes.server": parsed["master"]},
        "incluster-mode": {"kubernetes.asPod": parsed["incluster-mode"]},
    }
    for name, keys in values.items():
        if name in parsed.said:
            given |= {key: Given(value, f"--{name}") for key, value in keys.items()}
    if "pprofAddress" in parsed.said:
        given |= _profiling(parsed["pprofAddress"])
    if parsed["config"]:
        given |= read_quota_file(parsed["config"])
    return Wanted(given, klog.form(_NAME, parsed))


def _profiling(where: str) -> dict[str, Given]:
    """Nobody gets profiles who does not ask for them."""
    address, port = host_and_port("--pprofAddress", where)
    keys = {
        "listen.profiling": True,
        "endpoints.admission.debugAddress": address,
        "endpoints.admission.debugPort": port,
    }
    return {key: Given(value, "--pprofAddress") for key, value in keys.items()}


PROGRAM = Program(CommandLine(_NAME, _ABOUT, _FLAGS, gnu=True), "admission", "127.0.0.1", _understand, _tell_version)


def main() -> None:
    PROGRAM.main()


if __name__ == "__main__":
    main()
