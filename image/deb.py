"""Reading a Debian package: an `ar` archive with one tar of control files and one of the files themselves."""

import gzip
import io
import lzma
import tarfile
from collections.abc import Iterator
from pathlib import Path

from image.errors import ImageError

_MAGIC = b"!<arch>\n"
_HEADER = 60


def control(package: Path) -> str:
    """The package's own description, as dpkg keeps it of what is installed."""
    with _member(package, "control.tar") as tar:
        for name in ("./control", "control"):
            if name in tar.getnames():
                held = tar.extractfile(name)
                assert held is not None, "the control file is a file"
                return held.read().decode()
    raise ImageError(f"{package.name} has no control file")


def files(package: Path) -> tarfile.TarFile:
    return _member(package, "data.tar")


def _member(package: Path, wanted: str) -> tarfile.TarFile:
    for name, content in _members(package):
        if name.startswith(wanted):
            return tarfile.open(fileobj=io.BytesIO(_decompressed(name, content, package)))
    raise ImageError(f"{package.name} is no Debian package: it has no {wanted}")


def _members(package: Path) -> Iterator[tuple[str, bytes]]:
    data = package.read_bytes()
    if not data.startswith(_MAGIC):
        raise ImageError(f"{package.name} is no Debian package")
    place = len(_MAGIC)
    while place + _HEADER <= len(data):
        header = data[place : place + _HEADER]
        size = int(header[48:58])
        place += _HEADER
        yield header[:16].decode().rstrip(" /"), data[place : place + size]
        place += size + size % 2


def _decompressed(name: str, content: bytes, package: Path) -> bytes:
    if name.endswith(".xz"):
        return lzma.decompress(content)
    if name.endswith(".gz"):
        return gzip.decompress(content)
    if name.endswith(".tar"):
        return content
    raise ImageError(f"{package.name}: {name} is compressed in a way that Debian's own packages are not")
