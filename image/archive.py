"""One file that is both an OCI layout and what `docker save` writes: containerd, skopeo, podman and docker read it."""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from image.flavours import ENVIRONMENT, Flavour
from image.tree import TIME, Layer

_OCI = "application/vnd.oci.image"
_LAYER = f"{_OCI}.layer.v1.tar+gzip"

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Image:
    """One flavour in one version; `layers` from the bottom up."""

    flavour: Flavour
    registry: str
    version: str
    architecture: str
    created: int
    layers: Sequence[Layer]

    @property
    def name(self) -> str:
        return f"{self.registry}{self.flavour.repository}:{self.version}"

    @property
    def full_name(self) -> str:
        """As kubelet and containerd write a name without a registry."""
        first = self.name.split("/", 1)[0]
        if "/" in self.name and ("." in first or ":" in first or first == "localhost"):
            return self.name
        return f"docker.io/{self.name}" if "/" in self.name else f"docker.io/library/{self.name}"

    @property
    def configuration(self) -> bytes:
        environment = ENVIRONMENT | dict(self.flavour.environment)
        when = _written(self.created)
        config: Json = {
            "Env": [f"{name}={value}" for name, value in environment.items()],
            "Entrypoint": list(self.flavour.entrypoint) or None,
            "Cmd": list(self.flavour.command) or None,
            "WorkingDir": "/",
            "Labels": {
                "org.opencontainers.image.title": self.flavour.repository.rpartition("/")[2],
                "org.opencontainers.image.version": self.version,
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        }
        if self.flavour.port:
            config["ExposedPorts"] = {f"{self.flavour.port}/tcp": {}}
        return _json(
            {
                "architecture": self.architecture,
                "os": "linux",
                "created": when,
                "config": {key: value for key, value in config.items() if value is not None},
                "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in self.layers]},
                "history": [{"created": when, "created_by": "make image"} for _ in self.layers],
            }
        )

    @property
    def manifest(self) -> bytes:
        return _json(
            {
                "schemaVersion": 2,
                "mediaType": f"{_OCI}.manifest.v1+json",
                "config": _descriptor(self.configuration, f"{_OCI}.config.v1+json"),
                "layers": [_descriptor(layer.blob, _LAYER) for layer in self.layers],
            }
        )

    @property
    def digest(self) -> str:
        return _digest(self.manifest)


def write(images: Sequence[Image], path: Path) -> None:
    """Write the archive; what is there appears at once or not at all."""
    part = path.with_name(f"{path.name}.part")
    with tarfile.open(part, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in sorted(dict(_files(images)).items()):
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = len(content), TIME, 0o644
            tar.addfile(info, io.BytesIO(content))
    part.rename(path)


def _files(images: Sequence[Image]) -> Iterator[tuple[str, bytes]]:
    """Blobs that images share have one name, and are there once."""
    yield "oci-layout", _json({"imageLayoutVersion": "1.0.0"})
    yield "index.json", _json({"schemaVersion": 2, "mediaType": f"{_OCI}.index.v1+json", "manifests": _index(images)})
    yield "manifest.json", _json([_as_docker_saves(image) for image in images])
    for image in images:
        for blob in (image.manifest, image.configuration, *(layer.blob for layer in image.layers)):
            yield _place(blob), blob


def _index(images: Sequence[Image]) -> list[Json]:
    return [
        _descriptor(image.manifest, f"{_OCI}.manifest.v1+json")
        | {
            "platform": {"architecture": image.architecture, "os": "linux"},
            "annotations": {
                "io.containerd.image.name": image.full_name,
                "org.opencontainers.image.ref.name": image.full_name,
            },
        }
        for image in images
    ]


def _as_docker_saves(image: Image) -> Json:
    layers = [_place(layer.blob) for layer in image.layers]
    return {"Config": _place(image.configuration), "RepoTags": [image.name], "Layers": layers}


def _descriptor(content: bytes, kind: str) -> Json:
    return {"mediaType": kind, "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _place(content: bytes) -> str:
    return f"blobs/{_digest(content).replace(':', '/')}"


def _json(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _written(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
