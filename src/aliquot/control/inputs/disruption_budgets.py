"""PodDisruptionBudgets, watched if we may: how many victims they protect."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from aliquot.clock import Clock
from aliquot.control.inputs.optional import OptionalInformer
from aliquot.control.leadership.rights import READ_BUDGETS
from aliquot.kube import POD_DISRUPTION_BUDGETS, Client, PodDisruptionBudget
from aliquot.model import Pod

_BY_NAMESPACE = "namespace"
BudgetsIn: TypeAlias = Callable[[str], Sequence[PodDisruptionBudget]]


class Budgets:
    """A server that may not read budgets, or whose API server does not serve them, counts no violations."""

    def __init__(self, client: Client, clock: Clock) -> None:
        by_namespace = {_BY_NAMESPACE: lambda budget: budget.metadata.namespace}
        budgets: OptionalInformer[PodDisruptionBudget] = OptionalInformer(
            client, POD_DISRUPTION_BUDGETS, _nothing, READ_BUDGETS, clock, by_namespace
        )
        self.informer = budgets.informer
        self.run = budgets.run
        self.tried = budgets.tried
        self.notes = budgets.notes

    def violations(self, pods: Iterable[Pod]) -> int:
        return count_violations(pods, lambda namespace: self.informer.having(_BY_NAMESPACE, namespace))


def _nothing(_old: PodDisruptionBudget | None, _new: PodDisruptionBudget | None) -> None:
    """Budgets are looked up on demand."""


def count_violations(pods: Iterable[Pod], budgets_in: BudgetsIn) -> int:
    """How many of the pods may not be evicted, if all are in this order, by kube-scheduler's rule: each pod uses up a
    disruption of every budget that protects it, up to the first exhausted budget."""
    left: dict[str, int] = {}
    return sum(_is_violation(pod, budgets_in(pod.metadata.namespace), left) for pod in pods)


def _is_violation(pod: Pod, budgets: Iterable[PodDisruptionBudget], left: dict[str, int]) -> bool:
    for budget in budgets:
        if _protects(budget, pod):
            left[budget.key] = left.get(budget.key, budget.status.disruptions_allowed) - 1
            if left[budget.key] < 0:
                return True
    return False


def _protects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """Whether a budget protects a pod. Pods without labels, empty selectors and already granted evictions do not
    count."""
    selector, labels = budget.spec.selector, pod.metadata.labels
    if not labels or selector is None or selector.is_empty or not selector.selects(labels):
        return False
    return pod.metadata.name not in (budget.status.disrupted_pods or {})
