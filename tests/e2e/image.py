"""`make image` for the tests that run it."""

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import aliquot

_TREE = Path(__file__).parents[2]


def name(program: str) -> str:
    """Under which the archive's image of a program is used in a pod."""
    return f"aliquot/{program}:{aliquot.__version__}"


def make(folder: Path, progress: Callable[[str], None]) -> Path:
    """The archive, made now unless $ALIQUOT_IMAGE names one."""
    if ready := os.environ.get("ALIQUOT_IMAGE"):
        return Path(ready)
    archive = folder / "images.tar"
    command = [sys.executable, "-m", "image", "--output", str(archive)]
    with subprocess.Popen(command, cwd=_TREE, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as making:
        assert making.stderr is not None
        said = []
        for line in making.stderr:
            said.append(line)
            progress(f"image: {line.rstrip()}")
    assert making.returncode == 0, "".join(said)
    return archive


def with_more(archive: Path, program: str, files: Mapping[str, Path], environment: Mapping[str, str]) -> bytes:
    """An archive with one image: that of a program, under another name, with more files and variables."""
    layer = _packed({name: path.read_bytes() for name, path in files.items()})
    with tarfile.open(archive) as tar:

        def read(name: str) -> bytes:
            held = tar.extractfile(name)
            assert held is not None
            return held.read()

        (found,) = (each for each in json.loads(read("manifest.json")) if name(program) in each["RepoTags"])
        config = json.loads(read(found["Config"]))
        config["config"]["Env"] += [f"{key}={value}" for key, value in environment.items()]
        config["rootfs"]["diff_ids"].append(f"sha256:{hashlib.sha256(layer).hexdigest()}")
        config["history"].append({"created_by": "a test"})
        saved = {
            "Config": "config.json",
            "RepoTags": [with_more_name(program)],
            "Layers": [*found["Layers"], "more.tar"],
        }
        return _packed(
            {
                "manifest.json": json.dumps([saved]).encode(),
                "config.json": json.dumps(config).encode(),
                "more.tar": layer,
                **{blob: read(blob) for blob in found["Layers"]},
            }
        )


def with_more_name(program: str) -> str:
    return f"docker.io/local/{program}:1"


def _packed(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
