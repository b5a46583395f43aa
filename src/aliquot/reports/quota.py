"""Quotas and what is used of them; and how to change them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aliquot.engine import QuotaLine, quota_usage
from aliquot.engine.quotas.quota_map import FIELDS, Measure, read_quotas
from aliquot.errors import BadInput
from aliquot.reports.report import Report
from aliquot.reports.view import ClusterView


class QuotaLimit(Report, frozen=True, kw_only=True):
    model: str
    measure: str
    """`cards`, `MiB` or `% of cores`."""
    used: float | None
    """None if the reader does not see the nodes, or the pods of the namespace."""
    limit: int


class NamespaceQuotaReport(Report, frozen=True, kw_only=True):
    namespace: str
    pools: tuple[str, ...]
    """The node pools that it may use; empty for any."""
    limits: list[QuotaLimit]


class QuotaReport(Report, frozen=True, kw_only=True):
    trouble: str
    """Why the quotas cannot be used."""
    namespaces: list[NamespaceQuotaReport]


def quota_report(view: ClusterView, namespace: str = "") -> QuotaReport:
    return QuotaReport(trouble=view.cluster.quotas.trouble, namespaces=list(quotas_in_order(view, namespace)))


def quotas_in_order(view: ClusterView, namespace: str = "") -> Iterator[NamespaceQuotaReport]:
    """The same namespace by namespace, for a caller with other work in between."""
    quotas, usage = view.cluster.quotas, view.cluster.totals.usage
    sees_cards, only = not view.lacks("nodes"), view.only_namespace
    for name in sorted(quotas.entries):
        if namespace in ("", name):
            lines = quota_usage(quotas, usage, name)
            is_known = sees_cards and only in ("", name)
            limits = [_limit(line, is_known=is_known) for line in lines]
            pools = tuple(sorted(quotas.entries[name].pools))
            yield NamespaceQuotaReport(namespace=name, pools=pools, limits=limits)


def _limit(line: QuotaLine, *, is_known: bool) -> QuotaLimit:
    used = round(float(line.used), 4) if is_known else None
    return QuotaLimit(model=line.model, measure=line.measure.value, used=used, limit=line.limit)


def changed_quotas(
    text: str | None,
    namespace: str,
    limits: Mapping[Measure, Mapping[str, str | int | None]],
    pools: Sequence[str] | None = None,
) -> str:
    """The map with these limits of a namespace; None removes one. A namespace without limits loses its entry, and is
    not limited any more. `pools` replaces its pools. Raises BadInput if the map is or would be unusable."""
    read_quotas(text or "{}")
    document: dict[str, dict[str, Any]] = json.loads(text or "{}")
    entry = document.setdefault(namespace, {})
    for measure, by_model in limits.items():
        own = entry.setdefault(FIELDS[measure], {})
        for model, limit in by_model.items():
            if limit is None:
                own.pop(model, None)
            else:
                own[model] = limit
        if not own:
            del entry[FIELDS[measure]]
    if pools is not None:
        entry["pool"] = list(pools)
    if not entry.get("pool", True):
        del entry["pool"]
    if not entry:
        del document[namespace]
    changed = json.dumps(document, indent=2)
    try:
        read_quotas(changed)
    except BadInput as error:
        raise BadInput(f"this would make the quotas unusable: {error}") from error
    return changed
