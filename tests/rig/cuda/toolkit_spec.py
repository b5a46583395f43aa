"""The CDI spec that `nvidia-ctk cdi generate` writes, for cards that do not exist.

Nobody recorded it, because that takes a real card. It follows the sources of the toolkit: `V1_20` is what version 1.20
(2026) writes with its default flags, and `V1_17` what version 1.17.4 (2025) writes with
`--format=json --device-name-strategy=uuid`.

- A card is a device under its index and under its UUID, or under its UUID alone. `all` is all cards together.
- From 1.19 on, a device node has its numbers, its mode, its permissions, and its group if that is not root. If only the
  group may use the node, `additionalGids` has the group, too, which needs CDI 0.7.0. Before, a node was only a path.
- Device nodes have a `hostPath` because the cards are not in /dev, as with the flag `--dev-root`.
- All hooks run at `createContainer`. 1.17.5 brought `enable-cuda-compat`, 1.17.8 `disable-device-node-modification` and
  the variable of hooks, 1.20 `update-application-profile`. From 1.18 on there is no `chmod`.
- NVSwitch and IMEX nodes are not in it. The toolkit has modes of their own for them.

The mount of a single card is made up: CDI allows it, but the toolkit writes none.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_READ_ONLY = ("ro", "nosuid", "nodev")
_NOT_EXECUTABLE = ("noexec",)
_IN_SOCKETS = ("nosuid", "nodev")


@dataclass(frozen=True)
class Host:
    """The driver's files on a node. `dev` stands for its /dev."""

    dev: Path
    driver: Path
    hook: Path
    libraries: str
    version: str
    files: Sequence[str]
    sockets: Sequence[str]


@dataclass(frozen=True)
class Card:
    """A card or a MIG instance: its two names, and what containers with it see. `links` are by path."""

    index: str
    uuid: str
    nodes: Sequence[str]
    links: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[str] = ()


@dataclass(frozen=True)
class Toolkit:
    """A version of the toolkit, with its flags."""

    spec_name: str
    has_indices: bool
    describes_nodes: bool
    hooks: Sequence[str]
    """Those of every container, without links."""
    hook_variables: Sequence[str]
    chmod: bool
    bind: Sequence[str]
    """The last options of mounts."""
    names_libcuda: bool

    def write(self, folder: Path, host: Host, cards: Sequence[Card]) -> Path:
        """Write the spec, in one piece."""
        path = folder / self.spec_name
        text = json.dumps(self._spec(host, cards))
        if path.suffix == ".yaml":  # read back, so that parts which occur twice are written twice
            text = "---\n" + yaml.safe_dump(json.loads(text), indent=4, sort_keys=False)
        part = path.with_suffix(".part")
        part.write_text(text)
        return part.rename(path)

    def hook_calls(self, host: Host, cards: Iterable[Card]) -> list[str]:
        """The words of each hook that runs for a container with these cards."""
        own = [words for card in cards for words in self._card_hooks(card)]
        return list(dict.fromkeys([*self._common_hooks(host), *own]))

    def _spec(self, host: Host, cards: Sequence[Card]) -> Mapping[str, Any]:
        edits = [self._card(host, card) for card in cards]
        named = [
            {"name": name, "containerEdits": own}
            for card, own in zip(cards, edits, strict=True)
            for name in ([card.index] if self.has_indices else []) + [card.uuid]
        ]
        return {
            "cdiVersion": "0.7.0" if any("additionalGids" in own for own in edits) else "0.5.0",
            "kind": "nvidia.com/gpu",
            "devices": [*named, {"name": "all", "containerEdits": _together(edits)}],
            "containerEdits": self._common(host),
        }

    def _card(self, host: Host, card: Card) -> Mapping[str, Any]:
        nodes = [self._node(host, path) for path in card.nodes]
        groups = sorted({node["gid"] for node in nodes if "gid" in node and not node["fileMode"] & 0o006})
        return _without_empty(
            deviceNodes=nodes,
            mounts=[self._mount(host, path, _READ_ONLY) for path in card.files],
            hooks=[self._hook(host, words) for words in self._card_hooks(card)],
            additionalGids=groups,
        )

    def _common(self, host: Host) -> Mapping[str, Any]:
        libcuda = [f"NVIDIA_CTK_LIBCUDA_DIR={host.libraries}"] if self.names_libcuda else []
        mounts = [self._mount(host, path, _READ_ONLY) for path in host.files]
        sockets = [self._mount(host, path, _IN_SOCKETS, _NOT_EXECUTABLE) for path in host.sockets]
        return _without_empty(
            env=[*libcuda, "NVIDIA_VISIBLE_DEVICES=void"],
            deviceNodes=[self._node(host, f"/dev/{name}") for name in ("nvidia-uvm-tools", "nvidia-uvm", "nvidiactl")],
            hooks=[self._hook(host, words) for words in self._common_hooks(host)],
            mounts=mounts + sockets,
        )

    def _common_hooks(self, host: Host) -> list[str]:
        link = f"create-symlinks --link libcuda.so.1::{host.libraries}/libcuda.so"
        return [link, *(words.format(host=host) for words in self.hooks)]

    def _card_hooks(self, card: Card) -> list[str]:
        links = "".join(f" --link {target}::{path}" for path, target in card.links.items())
        chmod = ["chmod --mode 755 --path /dev/dri"] if self.chmod and links else []
        return [f"create-symlinks{links}", *chmod] if links else []

    def _hook(self, host: Host, words: str) -> Mapping[str, Any]:
        called = {"hookName": "createContainer", "path": str(host.hook), "args": [host.hook.name, *words.split()]}
        return called | _without_empty(env=list(self.hook_variables))

    def _mount(self, host: Host, path: str, options: Sequence[str], more: Sequence[str] = ()) -> Mapping[str, Any]:
        source = f"{host.driver}{path}"
        return {"hostPath": source, "containerPath": path, "options": [*options, *self.bind, *more]}

    def _node(self, host: Host, path: str) -> Mapping[str, Any]:
        source = host.dev / path.removeprefix("/dev/")
        node: Mapping[str, Any] = {"path": path, "hostPath": str(source)}
        if not self.describes_nodes:
            return node
        seen = source.stat()
        numbers = {"major": os.major(seen.st_rdev), "minor": os.minor(seen.st_rdev)}
        group = {"gid": seen.st_gid} if seen.st_gid else {}
        return {**node, **numbers, "fileMode": seen.st_mode & 0o777, "permissions": "rwm", **group}


def _together(edits: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    merged: dict[str, list[Any]] = {}
    for own in edits:
        for name, values in own.items():
            known = merged.setdefault(name, [])
            known += [value for value in values if value not in known]
    return merged


def _without_empty(**lists: list[Any]) -> dict[str, list[Any]]:
    return {name: values for name, values in lists.items() if values}


V1_20 = Toolkit(
    "nvidia.yaml",
    has_indices=True,
    describes_nodes=True,
    hooks=[
        "enable-cuda-compat --host-driver-version={host.version}",
        "update-ldcache --folder {host.libraries}",
        "disable-device-node-modification",
        "update-application-profile",
    ],
    hook_variables=["NVIDIA_CTK_DEBUG=false"],
    chmod=False,
    bind=["rbind", "rprivate"],
    names_libcuda=True,
)
V1_17 = Toolkit(
    "nvidia.json",
    has_indices=False,
    describes_nodes=False,
    hooks=["update-ldcache --folder {host.libraries}"],
    hook_variables=[],
    chmod=True,
    bind=["bind"],
    names_libcuda=False,
)
