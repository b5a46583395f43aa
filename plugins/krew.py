"""A plug-in for krew: an archive, and the manifest that names it."""

import hashlib
import io
import platform
import tarfile
from pathlib import Path

import aliquot

_PROJECT = Path(__file__).parents[1]
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Go's names."""


def write(plugin: Path, url: str) -> Path:
    """Pack a plug-in's file, and write the manifest beside it. Returns the manifest."""
    arch = _ARCHITECTURES.get(platform.machine(), platform.machine())
    archive = plugin.with_name(f"{plugin.name}-linux-{arch}.tar.gz")
    with tarfile.open(archive, "w:gz") as packed:
        for name, content, mode in (
            (plugin.name, plugin.read_bytes(), 0o755),
            ("LICENSE", (_PROJECT / "LICENSE").read_bytes(), 0o644),
        ):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), mode
            packed.addfile(member, io.BytesIO(content))
    short = plugin.name.removeprefix("kubectl-")
    template = (Path(__file__).with_name("manifests") / f"{short}.yaml").read_text()
    manifest = plugin.with_name(f"{short}.yaml")
    manifest.write_text(
        template.format(
            version=f"v{aliquot.__version__}",
            arch=arch,
            uri=f"{url.rstrip('/')}/{archive.name}",
            sha256=hashlib.sha256(archive.read_bytes()).hexdigest(),
        )
    )
    return manifest
