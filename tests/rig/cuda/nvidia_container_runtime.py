"""Stands in for NVIDIA's container runtime: adds the cards that NVIDIA_VISIBLE_DEVICES names, and goes on as runc.

Runs alone (no imports of the project). The file `cards.json` beside it has the minor number of each card by its UUID.
"""

import json
import os
import sys
from pathlib import Path

_MAJOR = 195


def main(words: list[str]) -> None:
    if "create" in words:
        config = Path(words[words.index("--bundle") + 1]) / "config.json"
        spec = json.loads(config.read_text())
        add_cards(spec, json.loads(Path(__file__).with_name("cards.json").read_text()))
        config.write_text(json.dumps(spec))
    os.execvp("runc", ["runc", *words])


def add_cards(spec: dict, cards: dict) -> None:  # type: ignore[type-arg]
    environment = dict(line.split("=", 1) for line in spec["process"]["env"])
    visible = environment.get("NVIDIA_VISIBLE_DEVICES", "void")
    wanted = cards if visible == "all" else [uuid for uuid in visible.split(",") if uuid in cards]
    linux = spec["linux"]
    for minor in (cards[uuid] for uuid in wanted):
        node = {"path": f"/dev/nvidia{minor}", "type": "c", "major": _MAJOR, "minor": minor, "fileMode": 0o666}
        others = [each for each in linux.get("devices") or [] if each["path"] != node["path"]]
        linux["devices"] = [*others, node]
        allowed = {"allow": True, "type": "c", "major": _MAJOR, "minor": minor, "access": "rwm"}
        linux["resources"]["devices"].append(allowed)


if __name__ == "__main__":
    main(sys.argv[1:])
