"""The smallest sufficient card, as gpushare has it: least memory free, then lowest index. It looks at nothing else."""

from aliquot.engine.view import GpuPolicy, Ranks, View


class TightestCard(GpuPolicy):
    name = "tightest"

    def rank(self, view: View) -> Ranks:
        return view.free_mib
