"""Tiny Debian packages and wheels, and an apt-get that knows them."""

import gzip
import io
import stat
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

AGENTS = ("gpushare-device-plugin-v2", "elastic-gpu-agent", "gpu-manager", "gpuserver-ds")
SERVERS = (
    "aliquot",
    "gpu-admission",
    "gpushare-schd-extender",
    "elastic-gpu-scheduler",
    "nano-gpu-scheduler",
    "gpuserver",
)
PROGRAMS = (*SERVERS, *AGENTS)

_APT = """\
#!/bin/sh
echo "$@" >> {log}
for word in "$@"; do
  case $word in
    update) exit {update} ;;
    install) cat {archive}/answer; exit 0 ;;
    download) cp {archive}/*.deb . ; exit 0 ;;
  esac
done
exit 1
"""

Content = Mapping[str, bytes | str]
"""Files by their path; text starting with "-> " is a link."""


def debian_package(folder: Path, name: str, version: str = "1.0-1", files: Content | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    control = f"Package: {name}\nVersion: {version}\nArchitecture: all\nDescription: tiny\n"
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.gz": gzip.compress(_tar({"./control": control.encode()})),
        "data.tar": _tar(files or {}),
    }
    package = folder / f"{name}_{version}_all.deb"
    package.write_bytes(b"!<arch>\n" + b"".join(_member(*member) for member in members.items()))
    return package


def debian(folder: Path) -> list[Path]:
    """Packages that have what an image needs, and something of everything that is changed or left out."""
    return [
        debian_package(folder, "base-files", files={"./etc/os-release": b"ID=debian\n", "./bin": "-> usr/bin"}),
        debian_package(
            folder,
            "dash",
            files={
                "./bin/dash": b"shell",
                "./usr/share/man/man1/dash.1": b"page",
                "./usr/share/doc/dash/copyright": b"licence",
                "./usr/share/doc/dash/changelog": b"news",
            },
        ),
        debian_package(
            folder, "ca-certificates", files={f"./usr/share/ca-certificates/{n}.crt": n for n in ("b", "a")}
        ),
        debian_package(
            folder, "python3.13", files={"./usr/bin/python3.13": b"python", "./usr/bin/python3": "-> python3.13"}
        ),
    ]


def wheel(
    folder: Path, name: str, version: str = "1.0", programs: Sequence[str] = (), files: Content | None = None
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    scripts = "".join(f"{program} = {name}.cli:main\n" for program in programs)
    with zipfile.ZipFile(path, "w") as held:
        for place, content in (files or {f"{name}/__init__.py": b"x = 1\n"}).items():
            held.writestr(place, content)
        held.writestr(
            f"{name}-{version}.dist-info/entry_points.txt", f"[console_scripts]\n{scripts}" if scripts else ""
        )
    return path


def fake_apt(folder: Path, packages: Sequence[Path], *, update: int = 0) -> Path:
    """An apt-get that would install exactly these; its calls are in `calls` beside it."""
    archive = folder / "archive"
    archive.mkdir(parents=True, exist_ok=True)
    lines = ["Reading package lists..."]
    for package in packages:
        (archive / package.name).write_bytes(package.read_bytes())
        name, version, _ = package.stem.split("_")
        lines.append(f"Inst {name} ({version} Debian:13.7/stable [all]) []")
    (archive / "answer").write_text("\n".join(lines))
    program = folder / "apt-get"
    program.write_text(_APT.format(log=folder / "calls", archive=archive, update=update))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def _member(name: str, content: bytes) -> bytes:
    header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode()
    return header + content + b"\n" * (len(content) % 2)


def _tar(files: Content) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for number, (name, content) in enumerate(files.items()):
            entry = tarfile.TarInfo(name)
            entry.mtime, entry.mode = 1_700_000_000 + number, 0o755
            if isinstance(content, str) and content.startswith("-> "):
                entry.type, entry.linkname = tarfile.SYMTYPE, content.removeprefix("-> ")
                tar.addfile(entry)
            else:
                held = content.encode() if isinstance(content, str) else content
                entry.size = len(held)
                tar.addfile(entry, io.BytesIO(held))
    return buffer.getvalue()
