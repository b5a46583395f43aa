"""A cluster's objects in one file, as `kubectl gpu dump` writes it and `--from` reads it."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from aliquot.errors import BadInput
from aliquot.model.bounds import LARGEST_ANSWER
from aliquot.plain import why
from aliquot.reports.objects import ClusterObjects

OBJECTS = "objects.json"
DOCTOR = "doctor.json"
_Read = TypeVar("_Read")


def write_archive(file: IO[bytes], objects: ClusterObjects, more: Mapping[str, bytes]) -> None:
    """`more` are further files for people, by name."""
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in {OBJECTS: msgspec.json.encode(objects), **more}.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), int(objects.at)
            archive.addfile(member, io.BytesIO(content))


def read_archive(path: Path) -> ClusterObjects:
    """Raises BadInput."""
    content = read_file(path, OBJECTS)
    if content is None:
        raise BadInput(f"{path} has no {OBJECTS}; `kubectl gpu dump` writes such files")
    return read_json(path, content, ClusterObjects)


def read_file(path: Path, name: str) -> bytes | None:
    """A file of an archive; None if it is not there. Raises BadInput."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            member = archive.extractfile(name)
            return member.read(LARGEST_ANSWER) if member else b""
    except KeyError:
        return None
    except (OSError, EOFError, UnicodeDecodeError, tarfile.TarError) as error:
        raise _unreadable(path, error) from error


def read_json(path: Path, content: bytes, kind: type[_Read]) -> _Read:
    """What a file of an archive says. Raises BadInput."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> BadInput:
    return BadInput(f"{path} cannot be read as an archive of `kubectl gpu dump`: {why(error)}")
