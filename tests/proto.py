"""Generates the messages of src/aliquot/agent/proto, or, in a test, says whether they are up to date."""

import sys
from pathlib import Path

from grpc_tools import protoc

FOLDER = Path(__file__).parent.parent / "src" / "aliquot" / "agent" / "proto"


def generate(into: Path) -> list[Path]:
    """Generate every module into a folder; returns the files written, by name."""
    sources = sorted(FOLDER.glob("*.proto"))
    arguments = [f"-I{FOLDER}", f"--python_out={into}", f"--pyi_out={into}", *map(str, sources)]
    if protoc.main(["protoc", *arguments]) != 0:
        sys.exit("protoc failed")
    return sorted([*into.glob("*_pb2.py"), *into.glob("*_pb2.pyi")])


if __name__ == "__main__":
    for written in generate(FOLDER):
        print(written.relative_to(Path.cwd()))
