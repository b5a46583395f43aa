"""Where this machine's own apt gets Debian from."""

import re
from dataclasses import dataclass
from pathlib import Path

from image.errors import ImageError

APT = Path("/etc/apt")
_ARCHIVE = re.compile(r"\bhttps?://\S+?/debian(?=/?(?:\s|$))")
_SECURITY = re.compile(r"\bhttps?://\S+?/debian-security(?=/?(?:\s|$))")


@dataclass(frozen=True)
class Sources:
    """Addresses of Debian's archive, and of its security updates."""

    archive: str
    security: str

    @classmethod
    def at(cls, mirror: str) -> "Sources":
        """Both of one mirror."""
        base = mirror.rstrip("/")
        return cls(f"{base}/debian", f"{base}/debian-security")


def configured(folder: Path = APT) -> Sources:
    """As the files say that apt itself reads. Raises ImageError where they name no Debian."""
    files = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]
    lines = [line for file in files if file.is_file() for line in file.read_text().splitlines()]
    said = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    archive, security = _ARCHIVE.search(said), _SECURITY.search(said)
    if archive is None:
        raise ImageError(f"{folder} names no archive of Debian: say where there is one with --mirror")
    return Sources(archive[0], security[0] if security else f"{archive[0]}-security")
