"""What the machines really have, whatever their annotations say at the moment."""

import json
from dataclasses import dataclass, field
from typing import Any

INVENTORY = "aliquot.io/inventory"
SERVES = "dialect.aliquot.io/"
UNIT_MIB = 1024
_BLOCK_MIB = 256
_IDS_PER_CARD = 64


@dataclass(frozen=True)
class Card:
    uuid: str
    minor: int
    mib: int
    slots: int = 0
    """Into so many parts MPS cuts it, if somebody asks for one."""


@dataclass
class Machine:
    """A node and its cards, in the order of their indexes.

    `agent` tells whose agent runs there: `ours` publishes an inventory, `gpushare`, `tencent` and `nvidia` are the
    originals'.
    """

    name: str
    cards: list[Card]
    dialects: tuple[str, ...]
    agent: str = "ours"
    is_shown: bool = True
    """Whether the Node has its inventory now."""
    dead: set[str] = field(default_factory=set)
    """Cards that the driver does not list now."""
    is_cordoned: bool = False
    is_there: bool = True

    @property
    def is_ours(self) -> bool:
        return self.agent == "ours"

    def hands_over(self, dialect: str) -> bool:
        """Whether our agent gives cards to pods of a dialect there; where it serves hami, whole cards, too."""
        return self.is_ours and (dialect in self.dialects or (dialect == "nvidia" and "hami" in self.dialects))

    @property
    def may_hide(self) -> bool:
        """Whether its cards can be told without an inventory: they are all there, and equal."""
        return self.is_ours and not self.dead and len({card.mib for card in self.cards}) == 1

    @property
    def listed(self) -> list[Card]:
        """The cards that the driver lists, by their indexes."""
        return [card for card in self.cards if card.uuid not in self.dead]

    def card(self, written: str) -> Card | None:
        """The card that a record names now: by uuid, or by index where nobody has told uuids."""
        node, _, index = written.rpartition("/")
        if node == self.name and index.isdigit() and int(index) < len(self.listed):
            return self.listed[int(index)]
        return next((card for card in self.cards if card.uuid == written), None)

    def inventory(self) -> str:
        gpus = [
            {
                "uuid": card.uuid,
                "index": index,
                "minor": card.minor,
                "model": "Tesla T4",
                "mib": card.mib,
                "slots": card.slots,
            }
            for index, card in enumerate(self.listed)
        ]
        return json.dumps({"v": 1, "unitMiB": UNIT_MIB, "gpus": gpus})

    def annotations(self) -> dict[str, str]:
        return {INVENTORY: self.inventory()} if self.is_ours and self.is_shown else {}

    def manifest(self) -> dict[str, Any]:
        ours = {f"{SERVES}{name}": "true" for name in self.dialects}
        labels = ours if self.is_ours else _LABELS[self.agent]
        offered = {"cpu": "64", **{k: v for name in self.dialects for k, v in _offered(name, self.cards).items()}}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels, "annotations": self.annotations()},
            "spec": {"unschedulable": True} if self.is_cordoned else {},
            "status": {
                "capacity": offered,
                "allocatable": offered,
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }


_LABELS = {
    "gpushare": {"gpushare": "true"},
    "tencent": {"nvidia-device-enable": "enable"},
    "nvidia": {"nodeinfo": "gpu"},
}


def _offered(dialect: str, cards: list[Card]) -> dict[str, str]:
    """What kubelet offers for a dialect."""
    count, mib = len(cards), sum(card.mib for card in cards)
    amounts = {
        "aliquot": {"aliquot.io/gpu": count * _IDS_PER_CARD},
        "gpushare": {"aliyun.com/gpu-mem": mib // UNIT_MIB, "aliyun.com/gpu-count": count},
        "tencent": {"tencent.com/vcuda-core": 100 * count, "tencent.com/vcuda-memory": mib // _BLOCK_MIB},
        "elastic": {
            "elasticgpu.io/gpu-core": 100 * count,
            "elasticgpu.io/gpu-memory": mib,
            "elastic-gpu/gpu-percent": 100 * count,
        },
        "nvidia": {"nvidia.com/gpu": count},
        "hami": {"nvidia.com/gpu": 10 * count},
        "keti": {"keti.com/mpsgpu": sum(card.slots for card in cards)},
    }
    return {name: str(amount) for name, amount in amounts[dialect].items()}
