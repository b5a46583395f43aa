"""The engine: a decision is a pure function of the Fleet and a request.

Its names are imported when they are first used: whoever only counts what is held needs no arrays.
"""

from typing import TYPE_CHECKING

from aliquot.lazy_names import lazy

if TYPE_CHECKING:
    from aliquot.engine.all_nodes.refusals import FITS, NUMBERED
    from aliquot.engine.arrays import Bools, Floats, Ints, Ranks
    from aliquot.engine.effort import FULL_EFFORT, Effort, endless, on_each, within
    from aliquot.engine.fleet import Fleet
    from aliquot.engine.holder import Holder
    from aliquot.engine.judging import Judgement, Standings, check_policies, judge, uses_load
    from aliquot.engine.lookup import NameBlock, NameTable
    from aliquot.engine.needs import needs_text
    from aliquot.engine.preempting import Preemption, VictimSet, complete, fits_without, preempt
    from aliquot.engine.quotas.quota import QuotaCheck, QuotaLine, check_quota, quota_usage
    from aliquot.engine.quotas.quota_map import Quotas
    from aliquot.engine.quotas.usage import Census, Usage
    from aliquot.engine.shape_counts import CountsRecord, ShapeCounts
    from aliquot.engine.state import NodeState
    from aliquot.engine.view import GpuPolicy, NodePolicy, PodPolicy, PolicyOutcome, PolicySettings, View
    from aliquot.engine.why.explain import Explanation, Group, explain
    from aliquot.engine.why.findings import NodeFinding, explain_node, node_reason
    from aliquot.engine.why.hopes import fits_once_healthy, has_room_in_sum
    from aliquot.engine.why.relax import Relaxation, RelaxationKind
else:
    __getattr__ = lazy(
        __name__,
        {
            "all_nodes.refusals": "FITS NUMBERED",
            "arrays": "Bools Floats Ints Ranks",
            "effort": "FULL_EFFORT Effort endless on_each within",
            "fleet": "Fleet",
            "holder": "Holder",
            "judging": "Judgement Standings check_policies judge uses_load",
            "lookup": "NameBlock NameTable",
            "needs": "needs_text",
            "preempting": "Preemption VictimSet complete fits_without preempt",
            "quotas.quota": "QuotaCheck QuotaLine check_quota quota_usage",
            "quotas.quota_map": "Quotas",
            "quotas.usage": "Census Usage",
            "shape_counts": "CountsRecord ShapeCounts",
            "state": "NodeState",
            "view": "GpuPolicy NodePolicy PodPolicy PolicyOutcome PolicySettings View",
            "why.explain": "Explanation Group explain",
            "why.findings": "NodeFinding explain_node node_reason",
            "why.hopes": "fits_once_healthy has_room_in_sum",
            "why.relax": "Relaxation RelaxationKind",
        },
    )
