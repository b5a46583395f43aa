"""The processes that are measured or asked, and the CPU time that one of them has used."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.measuring import cpu_of, say
from tests.ports import free_port
from tests.rig import golang, programs
from tests.rig.network import LOOPBACK
from tests.rig.processes import Process
from tests.rig.waiting import answers, wait_for

_GO = Path(__file__).parents[1] / "go"
_OTHER_ENDPOINTS = ("admission", "gpushare", "elastic", "nvidia")
_READY_SECONDS = 90.0


class Served:
    """An extender, ours or a peer: where its verbs are, and what it costs."""

    def __init__(self, port: int, prefix: str, process: Process) -> None:
        self.port = port
        self.prefix = prefix
        self.process = process

    def cpu(self) -> float:
        return cpu_of(self.process.pid)


@contextmanager
def cluster(nodes: int, folder: Path, module: str = "bench.extending.cluster") -> Iterator[Path]:
    """Yields the kubeconfig."""
    kubeconfig = folder / "kubeconfig"
    command: list[str | Path] = [sys.executable, "-m", module, str(nodes), kubeconfig]
    with _running("cluster", command, folder) as process:
        wait_for("the cluster", kubeconfig.exists, seconds=_READY_SECONDS, processes=[process])
        yield kubeconfig


@contextmanager
def ours(kubeconfig: Path, folder: Path, *flags: str, name: str = "aliquot") -> Iterator[Served]:
    """`aliquot server` when it can decide."""
    native = free_port()
    endpoints = [
        f"--native-port={native}",
        "--health-port=0",
        *(f"--{endpoint}-enabled=false" for endpoint in _OTHER_ENDPOINTS),
    ]
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "aliquot",
        "server",
        "--kubeconfig",
        kubeconfig,
        *endpoints,
        *flags,
    ]
    with _running(name, command, folder) as process:
        _wait_until_it_answers(process, f"http://{LOOPBACK}:{native}/readyz")
        yield Served(native, "/aliquot", process)


@contextmanager
def go_peer(folder: Path) -> Iterator[Served]:
    """The handler of bench/go, compiled if it is not yet."""
    port = free_port()
    with _running("go-peer", [_compiled(), str(port)], folder) as process:
        _wait_until_it_answers(process, f"http://{LOOPBACK}:{port}/ready")
        yield Served(port, "", process)


def _compiled() -> Path:
    """Beside the rig's programs. Go itself keeps what it has compiled, so it is always asked."""
    cache = programs.cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    go = golang.tool_chain(cache, say)
    output = cache / "bench"
    golang.build(go, _GO, ["."], output, tags="", version_flags=(), title="the Go peer", progress=say)
    return output / "extender"


def _wait_until_it_answers(process: Process, url: str) -> None:
    wait_for(f"{process.name} to answer", lambda: answers(url), seconds=_READY_SECONDS, processes=[process])


@contextmanager
def _running(name: str, command: Sequence[str | Path], folder: Path) -> Iterator[Process]:
    process = Process(name, command, log=folder / f"{name}.log")
    process.start()
    try:
        yield process
    finally:
        process.kill()
