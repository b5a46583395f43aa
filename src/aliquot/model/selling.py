"""When a card is full: the rule that engine, ledger and agent share.

The engine also applies it to all cards at once: `Fleet` keeps which cards are open for which kind of part,
`engine.all_nodes.room` compares sizes, and `engine.all_nodes.refusals` names the mode.
tests/unit/engine/test_agreement.py keeps the rule and the arrays equal, and test_explain.py the reasons.
"""

from collections.abc import Callable, Mapping
from typing import Any

from aliquot.model.charge import Charge
from aliquot.model.gpu import CORES, Gpu, Mode


def left_of(gpu: Gpu, used: Charge) -> Charge:
    """What is left of a card. Nothing is left of an oversold card, so that no pod makes it worse. `shares` has no
    limit, so it is always 0 here."""
    if is_oversold(gpu, used):
        return Charge()
    return Charge(CORES - used.cores, gpu.mib - used.mib, gpu.slots - used.slots)


def is_oversold(gpu: Gpu, used: Charge) -> bool:
    """Whether more was sold than the card has, or in two modes at once."""
    beyond = used.cores > CORES or used.mib > gpu.mib or used.slots > gpu.slots
    return beyond or bool(used.slots and used.shares)


def share_of(gpu: Gpu, taken: Charge) -> float:
    """The part of a card that is taken, from 0 to 1: in the measure of which most is."""
    return float(share_by(max, (taken.cores, taken.mib, taken.slots), gpu.mib, gpu.slots))


def share_by(larger: Callable[[Any, Any], Any], taken: tuple[Any, Any, Any], mib: Any, slots: Any) -> Any:
    """The rule itself, for numbers and for arrays: `larger` is `max` or `np.maximum`. `taken` are cores, MiB and slots;
    the card has `mib` and `slots`."""
    cores, taken_mib, taken_slots = taken
    return larger(larger(cores / CORES, taken_mib / larger(mib, 1)), taken_slots / larger(slots, 1))


def mode_allows(gpu: Gpu, asked: Charge) -> bool:
    """Whether the card is ever sold in this mode, even if it is empty and large enough."""
    return not _against_mode(gpu, asked)


def _against_mode(gpu: Gpu, asked: Charge) -> str:
    if asked.slots and gpu.mode not in (Mode.ANY, Mode.MPS):
        return f"is {gpu.mode.value}, not for MPS"
    if asked.slots and not gpu.slots:
        return "is not cut into MPS slots"
    if asked.shares and gpu.mode is Mode.MPS:
        return "is for MPS only"
    if asked.shares and gpu.mode is Mode.EXCLUSIVE and asked != Charge(CORES, gpu.mib, shares=asked.shares):
        return "is only sold whole"
    return ""


def modes_meet(used: Charge, asked: Charge) -> bool:
    """Whether the pods on a card share it in the mode that is asked for."""
    return not (asked.slots and used.shares) and not (asked.shares and used.slots)


def is_shut(gpu: Gpu, used: Mapping[str, Charge]) -> bool:
    """Whether a MIG instance cannot be sold because a pod holds the card that it was cut from: the pod was placed
    there before the card was cut."""
    return bool(gpu.parent) and used.get(gpu.parent, Charge()) != Charge()


def conflict(gpu: Gpu, used: Charge, asked: Charge) -> str:
    """Why a card with `used` taken cannot take the part; "" if it can.

    A card whose cores are sold out takes no part, not even a part without cores.
    """
    if asked.slots and asked.shares:
        return "cannot be shared with and without MPS at once"
    if not modes_meet(used, asked):
        return "is shared without MPS now" if asked.slots else "is shared with MPS now"
    if why := _against_mode(gpu, asked):
        return why
    left = left_of(gpu, used)
    if asked.slots > left.slots:
        return f"has {left.slots} MPS slots left; the pod needs {asked.slots}"
    if asked.mib > left.mib or asked.cores > left.cores or not left.cores:
        return _too_little(left, asked)
    return ""


def _too_little(left: Charge, asked: Charge) -> str:
    """Names only the measures that are asked for."""
    if asked.mib <= left.mib and not left.cores:
        return "has 0 % of cores left, so it takes no more pods"
    if not asked.cores:
        return f"has {left.mib} MiB left; the pod needs {asked.mib} MiB"
    if not asked.mib:
        return f"has {left.cores} % of cores left; the pod needs {asked.cores} %"
    return f"has {left.mib} MiB and {left.cores} % of cores left; the pod needs {asked.mib} MiB and {asked.cores} %"
