"""The files of an image in memory, and the layer that they become.

Nothing is unpacked on disk, so owners and modes are those of the packages without root. Every entry carries the same
time and they are sorted, so that a layer changes only when its files do.
"""

import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from image.errors import ImageError

TIME = 315532800
"""1980-01-01, the first time that a wheel can carry."""

_MERGED = ("bin", "sbin", "lib", "lib64")
"""Folders that are links into /usr, whatever a package says."""


@dataclass(frozen=True, slots=True)
class Entry:
    kind: bytes
    mode: int
    content: bytes = b""
    target: str = ""
    owner: int = 0
    group: int = 0


@dataclass(frozen=True)
class Layer:
    """One layer as a registry keeps it."""

    tar: bytes

    @cached_property
    def blob(self) -> bytes:
        return gzip.compress(self.tar, compresslevel=6, mtime=0)

    @property
    def diff_id(self) -> str:
        return f"sha256:{hashlib.sha256(self.tar).hexdigest()}"


class Tree:
    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    @property
    def entries(self) -> Mapping[str, Entry]:
        return self._entries

    def file(self, path: str, content: bytes | str, mode: int = 0o644) -> None:
        held = content.encode() if isinstance(content, str) else content
        self._put(path, Entry(tarfile.REGTYPE, mode, held))

    def link(self, path: str, target: str) -> None:
        self._put(path, Entry(tarfile.SYMTYPE, 0o777, target=target))

    def folder(self, path: str, mode: int = 0o755) -> None:
        self._put(path, Entry(tarfile.DIRTYPE, mode))

    def add_tar(self, tar: tarfile.TarFile, wanted: Callable[[str], bool] = lambda _: True) -> None:
        """Everything of a package's archive that is wanted."""
        for member in tar:
            path = _normal(member.name)
            if path and wanted(path):
                self._put(path, self._entry(tar, member))

    def write(self, root: Path) -> None:
        """As files below a folder, owned by whoever asks."""
        for path, entry in sorted(self._entries.items()):
            place = root / path
            if entry.kind == tarfile.DIRTYPE:
                place.mkdir(parents=True, exist_ok=True)
            elif entry.kind == tarfile.SYMTYPE:
                place.symlink_to(entry.target)
            else:
                place.write_bytes(entry.content)
                place.chmod(entry.mode | 0o600)

    def layer(self) -> Layer:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for path in sorted(self._entries):
                entry = self._entries[path]
                info = tarfile.TarInfo(path)
                info.type, info.mode, info.linkname, info.mtime = entry.kind, entry.mode, entry.target, TIME
                info.uid, info.gid, info.size = entry.owner, entry.group, len(entry.content)
                tar.addfile(info, io.BytesIO(entry.content))
        return Layer(buffer.getvalue())

    def _put(self, path: str, entry: Entry) -> None:
        path = _normal(path)
        if entry.kind == tarfile.DIRTYPE and path in _MERGED:
            return
        first, _, rest = path.partition("/")
        if first in _MERGED and rest:
            path = f"usr/{path}"
        for parent in PurePosixPath(path).parents[:-1]:
            self._entries.setdefault(str(parent), Entry(tarfile.DIRTYPE, 0o755))
        self._entries[path] = entry

    def _entry(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> Entry:
        owner, group, mode = member.uid, member.gid, member.mode
        if member.isdir():
            return Entry(tarfile.DIRTYPE, mode, owner=owner, group=group)
        if member.issym():
            return Entry(tarfile.SYMTYPE, 0o777, target=member.linkname, owner=owner, group=group)
        if member.isreg() or member.islnk():
            held = tar.extractfile(member)  # of a hard link: what it is a link to
            assert held is not None, f"{member.name} is a file"
            return Entry(tarfile.REGTYPE, mode, held.read(), owner=owner, group=group)
        raise ImageError(f"{member.name} is neither a file nor a folder nor a link")


def _normal(path: str) -> str:
    return path.removeprefix("./").strip("/").removeprefix(".")
