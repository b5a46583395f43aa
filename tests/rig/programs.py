"""Where the programs of Kubernetes, containerd and etcd come from.

Each is looked for in `$KUBEBUILDER_ASSETS`, then on PATH (only in a version that fits), then in the cache, where
it is compiled once from the Go modules pinned in the folder `modules/` beside this file.
"""

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.rig import golang
from tests.rig.errors import RigError
from tests.rig.golang import Progress

_MODULES = Path(__file__).with_name("modules")

Version = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Source:
    """One pinned Go module and the programs that it gives."""

    name: str
    module: str
    programs: dict[str, str]
    """Name of each program and its package below the module."""
    fits: Callable[[Version], bool]
    version_flags: tuple[str, ...] = ()
    tags: str = ""
    keeps: dict[str, str] = field(default_factory=dict)
    """Folders of the module, by the names under which they are put beside its programs."""

    @property
    def folder(self) -> Path:
        return _MODULES / self.name

    @property
    def version(self) -> str:
        pinned = re.search(rf"^require {re.escape(self.module)} v(\S+)", (self.folder / "go.mod").read_text(), re.M)
        assert pinned, f"{self.folder}/go.mod pins no {self.module}"
        return pinned[1]

    @property
    def key(self) -> str:
        """Where several versions of a program are pinned, the name says which."""
        return self.name if self.name.endswith(f"-{self.version}") else f"{self.name}-{self.version}"

    def compile(self, go: Path, output: Path, progress: Progress) -> None:
        version = self.version
        major, minor, _ = version.split(".", 2)
        golang.build(
            go,
            self.folder,
            [f"{self.module}{package}" for package in self.programs.values()],
            output,
            tags=self.tags,
            version_flags=[flag.format(v=version, major=major, minor=minor) for flag in self.version_flags],
            title=self.key.replace("-", " "),
            progress=progress,
        )
        # Go names a program after the last part of its package, which for etcd is "server"
        for program, package in self.programs.items():
            made = output / (package or self.module.removesuffix("/v3")).rsplit("/", 1)[-1]
            made.rename(output / program)
        for name, kept in self.keeps.items():
            shutil.copytree(golang.sources(go, self.folder, self.module) / kept, output / name)


SOURCES = (
    Source(
        name="etcd",
        module="go.etcd.io/etcd/server/v3",
        programs={"etcd": ""},
        fits=lambda version: version >= (3, 5, 0),
    ),
    Source(
        name="containerd",
        module="github.com/containerd/containerd/v2",
        programs={name: f"/cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")},
        fits=lambda version: version >= (2, 0, 0),
        version_flags=("github.com/containerd/containerd/v2/version.Version=v{v}",),
        tags="no_btrfs",
    ),
    Source(
        name="kubernetes",
        module="k8s.io/kubernetes",
        programs={
            name: f"/cmd/{name}"
            for name in (
                "kube-apiserver",
                "kube-controller-manager",
                "kube-scheduler",
                "kubectl",
                "kubelet",
            )
        },
        fits=lambda version: version[:2] == (1, 37),
        version_flags=tuple(
            f"k8s.io/component-base/version.git{flag}" for flag in ("Version=v{v}", "Major={major}", "Minor={minor}")
        ),
    ),
)

_VERSION_ARGUMENTS = {"kubectl": ("version", "--client"), "containerd-shim-runc-v2": ("-v",)}


def find(progress: Progress) -> dict[str, Path]:
    """Path of every program by its name; compiles those that are nowhere to be found."""
    found: dict[str, Path] = {}
    for source in SOURCES:
        ready = {name: _ready(source, name) for name in source.programs}
        if None in ready.values():
            folder = compiled(source, progress)
            ready = {name: path or folder / name for name, path in ready.items()}
        found |= {name: path for name, path in ready.items() if path is not None}
    return found


def cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "aliquot" / "rig"


def _ready(source: Source, name: str) -> Path | None:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and not Path(assets).is_dir():
        raise RigError(
            f"KUBEBUILDER_ASSETS={assets} is no folder: correct it, or unset it to have the programs compiled"
        )
    if assets and (Path(assets) / name).is_file():
        return (Path(assets) / name).resolve()
    on_path = shutil.which(name)
    if on_path is None:
        return None
    return Path(on_path) if source.fits(version_of(Path(on_path))) else None


def version_of(program: Path) -> Version:
    """The version that a program tells; all zeros if it tells none."""
    arguments = _VERSION_ARGUMENTS.get(program.name, ("--version",))
    try:
        answer = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return 0, 0, 0
    numbers = re.search(r"\bv?(\d+)\.(\d+)\.(\d+)", answer.stdout)
    return (int(numbers[1]), int(numbers[2]), int(numbers[3])) if numbers else (0, 0, 0)


def compiled(source: Source, progress: Progress) -> Path:
    """The folder with a source's programs, compiled here if they are not yet."""
    cache = cache_folder()
    folder = cache / source.key
    if folder.exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with _alone(cache / "lock", progress):
        if not folder.exists():
            for abandoned in cache.glob(f"{source.key}.*"):
                shutil.rmtree(abandoned)
            go = golang.tool_chain(cache, progress)
            with tempfile.TemporaryDirectory(dir=cache, prefix=f"{source.key}.") as part:
                output = Path(part) / "bin"
                output.mkdir()
                source.compile(go, output, progress)
                output.rename(folder)
    return folder


@contextmanager
def _alone(lock: Path, progress: Progress) -> Iterator[None]:
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another run that is compiling")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
