"""The manifests of the originals' own documents, as they are printed there, to be applied with another image."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.rig import Rig

_FOLDER = Path(__file__).parent

Change = Callable[[list[dict[str, Any]]], None]


class Manifest:
    """One file of this folder, or that of another path; nothing of it is changed but what a test names."""

    def __init__(self, name: str | Path) -> None:
        self.documents: list[dict[str, Any]] = [
            document for document in yaml.safe_load_all((_FOLDER / name).read_text()) if document
        ]

    def with_image(self, container: str, image: str) -> "Manifest":
        found = [each for each in self._containers() if each["name"] == container]
        assert found, f"no container {container}"
        for each in found:
            each["image"] = image
        return self

    def of(self, kind: str, name: str) -> dict[str, Any]:
        (found,) = (each for each in self.documents if (each["kind"], each["metadata"]["name"]) == (kind, name))
        return found

    def apply(self, rig: Rig) -> None:
        rig.apply(self._text())

    def delete(self, rig: Rig) -> None:
        rig.kubectl(
            "delete", "--ignore-not-found", "--cascade=foreground", "--timeout=90s", "-f", "-", input=self._text()
        )

    def _text(self) -> str:
        return yaml.safe_dump_all(self.documents)

    def _containers(self) -> list[dict[str, Any]]:
        return [
            container
            for document in self.documents
            if document["kind"] in ("Deployment", "DaemonSet")
            for spec in (document["spec"]["template"]["spec"],)
            for container in (*spec.get("initContainers", ()), *spec["containers"])
        ]
