"""A cluster's objects in one file, as `kubectl gpu dump` writes it and `--from` reads it."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import msgspec

from aliquot.errors import BadInput
from aliquot.model.bounds import LARGEST_ANSWER
from aliquot.plain import why
from aliquot.reports.objects import ClusterObjects

OBJECTS = "objects.json"


def write_archive(file: IO[bytes], objects: ClusterObjects, more: Mapping[str, bytes]) -> None:
    """`more` are further files for people, by name."""
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in {OBJECTS: msgspec.json.encode(objects), **more}.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), int(objects.at)
            archive.addfile(member, io.BytesIO(content))


def read_archive(path: Path) -> ClusterObjects:
    """Raises BadInput."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            member = archive.extractfile(OBJECTS)
            content = member.read(LARGEST_ANSWER) if member else b""
        return msgspec.json.decode(content, type=ClusterObjects)
    except KeyError as error:
        raise BadInput(f"{path} has no {OBJECTS}; `kubectl gpu dump` writes such files") from error
    except (OSError, EOFError, UnicodeDecodeError, tarfile.TarError, msgspec.DecodeError, RecursionError) as error:
        raise BadInput(f"{path} cannot be read as an archive of `kubectl gpu dump`: {why(error)}") from error
