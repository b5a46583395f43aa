"""Container images made from files of this machine, without a registry and without Docker."""

import hashlib
import io
import json
import platform
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PAUSE = "docker.io/local/pause:1"
BUSYBOX = "docker.io/library/busybox:1"

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}

_PAUSE_SOURCE = """\
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void finish(int number) { (void)number; _exit(0); }
static void reap(int number) { (void)number; while (waitpid(-1, 0, WNOHANG) > 0) {} }

int main(void) {
    signal(SIGTERM, finish);
    signal(SIGINT, finish);
    signal(SIGCHLD, reap);
    for (;;) pause();
}
"""


@dataclass(frozen=True, slots=True)
class Image:
    """One image of one layer: `files` by their path inside, `links` likewise with what they point to."""

    name: str
    files: Mapping[str, bytes | Path]
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    folders: Sequence[str] = ("dev", "etc", "proc", "sys", "tmp")
    environment: Mapping[str, str] = field(default_factory=lambda: {"PATH": "/bin"})

    def write(self, folder: Path) -> Path:
        """Write the image as an archive that `ctr images import` reads."""
        layer = self._layer()
        config = json.dumps(self._config(layer)).encode()
        manifest = [{"Config": "config.json", "RepoTags": [self.name], "Layers": ["layer.tar"]}]
        archive = folder / f"{self.name.replace('/', '_').replace(':', '_')}.tar"
        with tarfile.open(archive, "w") as tar:
            for name, content in (
                ("config.json", config),
                ("layer.tar", layer),
                ("manifest.json", json.dumps(manifest).encode()),
            ):
                tar.addfile(_entry(name, size=len(content)), io.BytesIO(content))
        return archive

    def _layer(self) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for name in _all_folders([*self.folders, *_parents([*self.files, *self.links])]):
                tar.addfile(_entry(name, kind=tarfile.DIRTYPE, mode=0o1777 if name == "tmp" else 0o755))
            for name, content in self.files.items():
                held = content.read_bytes() if isinstance(content, Path) else content
                tar.addfile(_entry(name, size=len(held)), io.BytesIO(held))
            for name, target in self.links.items():
                entry = _entry(name, kind=tarfile.SYMTYPE)
                entry.linkname = target
                tar.addfile(entry)
        return buffer.getvalue()

    def _config(self, layer: bytes) -> dict[str, object]:
        return {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {
                "Entrypoint": list(self.entrypoint),
                "Cmd": list(self.command),
                "Env": [f"{name}={value}" for name, value in self.environment.items()],
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }


def pause(workshop: Path) -> Image:
    """The container that holds a pod's namespaces; compiled below `workshop`."""
    source = workshop / "pause.c"
    program = workshop / "pause"
    source.write_text(_PAUSE_SOURCE)
    subprocess.run(["cc", "-static", "-Os", "-s", "-o", program, source], check=True)
    return Image(PAUSE, {"pause": program.read_bytes()}, entrypoint=["/pause"])


def busybox() -> Image:
    """A shell with the usual programs."""
    program = shutil.which("busybox")
    assert program is not None, "prerequisites were not checked"
    listed = subprocess.run([program, "--list"], capture_output=True, text=True, check=True).stdout
    applets = [name for name in listed.split() if name != "busybox"]
    return Image(
        BUSYBOX,
        {
            "bin/busybox": Path(program),
            "etc/passwd": b"root:x:0:0:root:/:/bin/sh\n",
            "etc/group": b"root:x:0:\n",
        },
        command=["sh"],
        links={f"bin/{name}": "busybox" for name in applets},
    )


def _entry(name: str, *, size: int = 0, kind: bytes = tarfile.REGTYPE, mode: int = 0o755) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size, entry.type, entry.mode = size, kind, mode
    return entry


def _parents(names: Sequence[str]) -> Iterator[str]:
    for name in names:
        parent = str(Path(name).parent)
        if parent != ".":
            yield parent


def _all_folders(names: Sequence[str]) -> list[str]:
    every = {str(folder) for name in names for folder in (Path(name), *Path(name).parents) if str(folder) != "."}
    return sorted(every)
