"""What pods ask for, in words."""

from aliquot.model import Part, Request, Unit


def needs_text(request: Request) -> str:
    """What a pod asks for, in one line."""
    parts = [_part_text(container.part) for container in request.containers]
    if len(parts) == 1:
        return parts[0]
    named = (f"{container.name}: {text}" for container, text in zip(request.containers, parts, strict=True))
    return "; ".join(named) + (", all on the same cards" if request.together else "")


def _part_text(part: Part) -> str:
    if part.whole:
        return "1 whole card" if part.cards == 1 else f"{part.cards} whole cards"
    sizes = [f"{part.memory.amount:,} {_UNITS[part.memory.unit]}"] if part.memory.amount else []
    sizes += [f"{part.cores} % of cores"] if part.cores else []
    sizes += ["1 MPS slot" if part.slots == 1 else f"{part.slots} MPS slots"] if part.slots else []
    return f"{' and '.join(sizes) or 'a part'} of {cards_text(part.cards)}"


_UNITS = {Unit.MIB: "MiB", Unit.NODE: "units of memory", Unit.PERCENT: "% of memory", Unit.SLOT: "slots of memory"}


def cards_text(count: int) -> str:
    return "1 card" if count == 1 else f"{count} cards"
