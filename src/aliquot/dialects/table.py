"""The table of dialects."""

from aliquot.dialects.gpushare import GpuShare
from aliquot.dialects.protocol import Dialect
from aliquot.errors import BadDemand
from aliquot.model import Pod

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (GpuShare(),)}


def dialect_of(pod: Pod) -> Dialect | None:
    """The dialect whose resources a pod asks for; None for a pod without GPU. Two in one pod are refused."""
    speaking = [dialect for dialect in DIALECTS.values() if dialect.speaks(pod)]
    if len(speaking) > 1:
        names = ", ".join(dialect.name for dialect in speaking)
        raise BadDemand(f"the pod asks for resources of several dialects ({names}); use one of them")
    return speaking[0] if speaking else None
