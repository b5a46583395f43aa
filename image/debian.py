"""Packages from Debian's archive by name, through an apt that has folders of its own and touches nothing else."""

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from image.errors import ImageError
from image.sources import Sources

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

_SOURCES = """\
deb [signed-by={keyring}] {archive} {release} main
deb [signed-by={keyring}] {archive} {release}-updates main
deb [signed-by={keyring}] {security} {release}-security main
"""

# Programs that only the packages' install scripts call. We run none of these, so apt is told that they are there.
_PRETENDED = ("debconf", "debianutils", "dpkg", "mawk", "openssl", "perl-base", "tar")

_TO_INSTALL = re.compile(r"^Inst (?P<name>\S+) (?:\[\S+\] )?\((?P<version>\S+) .*\[(?P<architecture>\w+)\]\)", re.M)


@dataclass(frozen=True, slots=True)
class Package:
    name: str
    version: str
    architecture: str

    @property
    def file(self) -> str:
        """The name under which apt stores it."""
        return f"{self.name}_{self.version.replace(':', '%3a')}_{self.architecture}.deb"


class Debian:
    def __init__(
        self,
        folder: Path,
        *,
        release: str,
        architecture: str,
        sources: Sources,
        progress: Callable[[str], None],
        program: str = "apt-get",
        keyring: Path = KEYRING,
    ) -> None:
        found = shutil.which(program)
        if found is None:
            raise ImageError(
                f"{program} is not on PATH. The image is made of Debian packages, which apt finds and checks: "
                "run this on Debian or Ubuntu, or in a container of one"
            )
        if not keyring.exists():
            raise ImageError(f"{keyring} is missing: apt-get install debian-archive-keyring")
        self._program = found
        self._progress = progress
        self._folder = folder / f"{release}-{architecture}"
        self._packages = self._folder / "packages"
        for name in ("packages", "lists/partial", "cache/archives/partial"):
            (self._folder / name).mkdir(parents=True, exist_ok=True)
        lines = _SOURCES.format(keyring=keyring, archive=sources.archive, security=sources.security, release=release)
        (self._folder / "sources.list").write_text(lines)
        (self._folder / "status").write_text("\n".join(_pretended(name, architecture) for name in _PRETENDED))
        self._options = self._private_options(architecture)

    def get(self, names: Sequence[str]) -> list[Path]:
        """The files of these packages and of all that they need, in the order of their names."""
        self._progress("asking Debian for its list of packages")
        self._apt("update", "-qq")
        needed = self._needed(names)
        missing = [package for package in needed if not (self._packages / package.file).exists()]
        if missing:
            self._progress(f"getting {len(missing)} of {len(needed)} Debian packages")
            self._apt("download", "-qq", *(f"{package.name}={package.version}" for package in missing))
        return sorted(self._packages / package.file for package in needed)

    def _needed(self, names: Sequence[str]) -> list[Package]:
        answer = self._apt("install", "--simulate", "--no-install-recommends", *names)
        needed = [Package(**found.groupdict()) for found in _TO_INSTALL.finditer(answer)]
        if not needed:
            raise ImageError(f"apt would install nothing for {' '.join(names)}:\n{answer.strip()}")
        return needed

    def _apt(self, *arguments: str) -> str:
        command = [self._program, *self._options, *arguments]
        done = subprocess.run(command, cwd=self._packages, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ImageError(f"apt-get {arguments[0]} failed:\n{done.stderr.strip()}")
        return done.stdout

    def _private_options(self, architecture: str) -> list[str]:
        settings = {
            "APT::Architecture": architecture,
            "APT::Architectures": architecture,
            # apt would change to a user of its own, who may not write to this folder
            "APT::Sandbox::User": "",
            "Acquire::Languages": "none",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
            "Dir::State": self._folder,
            "Dir::State::status": self._folder / "status",
            "Dir::State::lists": self._folder / "lists",
            "Dir::Cache": self._folder / "cache",
            "Dir::Etc::sourcelist": self._folder / "sources.list",
            "Dir::Etc::sourceparts": "-",
            "Dir::Etc::preferences": "-",
            "Dir::Etc::preferencesparts": "-",
        }
        return [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]


def _pretended(name: str, architecture: str) -> str:
    lines = {
        "Package": name,
        "Status": "install ok installed",
        "Version": "9999",
        "Architecture": architecture,
        "Multi-Arch": "foreign",
        "Provides": "awk" if name == "mawk" else f"{name}-2.0",
        "Maintainer": "none",
        "Description": "not in the image",
    }
    return "".join(f"{key}: {value}\n" for key, value in lines.items())
