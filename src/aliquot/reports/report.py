"""What every report is: a value with camelCase names in JSON and YAML."""

from collections.abc import Sequence

import msgspec


class Report(msgspec.Struct, rename="camel", frozen=True):
    pass


class Use(Report, frozen=True, kw_only=True):
    """What was measured, of a card or of a pod on its cards. None: it is unknown."""

    cores: float | None = None
    """Of a card, from 0 to 1; of several cards, their sum."""
    memory_bytes: int | None = None
    watts: float | None = None
    estimated: bool = False
    """Whether `cores` is an estimate."""


NO_USE = Use()


def total_use(uses: Sequence[Use]) -> Use:
    """The sum of what is known."""
    cores = [use.cores for use in uses if use.cores is not None]
    memory = [use.memory_bytes for use in uses if use.memory_bytes is not None]
    watts = [use.watts for use in uses if use.watts is not None]
    return Use(
        cores=round(sum(cores), 4) if cores else None,
        memory_bytes=sum(memory) if memory else None,
        watts=round(sum(watts), 1) if watts else None,
        estimated=any(use.estimated for use in uses),
    )
