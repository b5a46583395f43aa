"""When a card is full: the one rule that engine, ledger and agent share.

The engine has it a second time, for all cards at once: `Fleet` keeps which cards are open for which kind of part,
`engine.all_nodes.room` compares sizes, `engine.all_nodes.refusing` names the mode. tests/unit/engine/test_agreement.py
keeps them equal, and test_explain.py the reasons.
"""

from collections.abc import Mapping

from aliquot.model.charge import Charge
from aliquot.model.gpu import CORES, Gpu, Mode


def left_of(gpu: Gpu, used: Charge) -> Charge:
    """What is left of a card; nothing at all of one that was sold beyond its size, so that nobody makes it worse.
    `shares` has no limit, so none are left or taken."""
    if is_oversold(gpu, used):
        return Charge()
    return Charge(CORES - used.cores, gpu.mib - used.mib, gpu.slots - used.slots)


def is_oversold(gpu: Gpu, used: Charge) -> bool:
    """More was sold than the card has, or in two modes at once."""
    beyond = used.cores > CORES or used.mib > gpu.mib or used.slots > gpu.slots
    return beyond or bool(used.slots and used.shares)


def mode_allows(gpu: Gpu, asked: Charge) -> bool:
    """Whether a card is ever sold in this way, were it empty and large enough."""
    return not _against_mode(gpu, asked)


def _against_mode(gpu: Gpu, asked: Charge) -> str:
    if asked.slots and gpu.mode not in (Mode.ANY, Mode.MPS):
        return f"is {gpu.mode.value}, not for MPS"
    if asked.slots and not gpu.slots:
        return "is not cut into MPS slots"
    if asked.shares and gpu.mode is Mode.MPS:
        return "is for MPS only"
    if asked.shares and gpu.mode is Mode.EXCLUSIVE and asked != Charge(CORES, gpu.mib, shares=asked.shares):
        return "is only given whole"
    return ""


def modes_meet(used: Charge, asked: Charge) -> bool:
    """Whether what is taken of a card is not shared in another way than is asked for."""
    return not (asked.slots and used.shares) and not (asked.shares and used.slots)


def is_shut(gpu: Gpu, used: Mapping[str, Charge]) -> bool:
    """Whether a MIG instance cannot be sold because a pod holds the card that it was cut from: the pod was placed
    there before the card was cut."""
    return bool(gpu.parent) and used.get(gpu.parent, Charge()) != Charge()


def conflict(gpu: Gpu, used: Charge, asked: Charge) -> str:
    """Why a part cannot be taken of a card of which `used` is taken; "" if it can.

    A card whose cores are sold out takes nobody, not even who names no cores."""
    if asked.slots and asked.shares:
        return "cannot be shared with and without MPS at once"
    if not modes_meet(used, asked):
        return "is shared without MPS now" if asked.slots else "is shared by MPS now"
    if why := _against_mode(gpu, asked):
        return why
    left = left_of(gpu, used)
    if asked.slots > left.slots:
        return f"has {left.slots} MPS slots left, not {asked.slots}"
    if asked.mib > left.mib or asked.cores > left.cores or not left.cores:
        return f"has {left.mib} MiB and {left.cores} % of cores left, not {asked.mib} MiB and {asked.cores} %"
    return ""
