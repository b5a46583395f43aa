"""`kubectl gpu quota`."""

import argparse
from collections.abc import Mapping, Sequence

from aliquot.engine.quotas.quota_map import Measure
from aliquot.errors import BadInput
from aliquot.kube.client import Client
from aliquot.kube.errors import NotFound
from aliquot.kube.resources import CONFIG_MAPS
from aliquot.kubectl.gpu.output import Cell, Style, percent, say, share_color, show, table
from aliquot.kubectl.gpu.session import Session, add_server_options
from aliquot.reports.objects import Extra
from aliquot.reports.quota import QuotaReport, changed_quotas, quota_report
from aliquot.reports.reading import read_quotas
from aliquot.reports.view import ClusterView, Purpose

EPILOG = """examples:
  kubectl gpu quota                                            # the quota of your namespace, and what is used of it
  kubectl gpu quota -A                                         # all quotas
  kubectl gpu quota set research A100 --cards 8 --memory 640Gi # how much of a model a namespace may use
  kubectl gpu quota set research A100 --cards none             # remove a limit

A namespace without any limit is not limited. `set` changes the ConfigMap kube-system/gpuquota, or the one that --quotas
names (docs/quota.md).
"""

_TITLES = ("NAMESPACE", "MODEL", "MEASURE", "USED", "LIMIT", "SHARE", "POOLS")
_NONE = "none"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", nargs="?", choices=("show", "set"), default="show", help="what to do [default: show]")
    parser.add_argument("target", nargs="?", default="", metavar="NAMESPACE", help="for set: whose quota")
    parser.add_argument("model", nargs="?", default="", metavar="MODEL", help="for set: which model")
    parser.add_argument("--cards", type=_number, metavar="N", help="for set: cards, or none")
    parser.add_argument("--memory", type=_size, metavar="SIZE", help="for set: memory such as 640Gi, or none")
    parser.add_argument("--cores", type=_number, metavar="PERCENT", help="for set: percent of cores, or none")
    parser.add_argument("--pools", metavar="A,B", help="for set: the node pools that it may use; '' for any")
    parser.add_argument("--dry-run", action="store_true", help="for set: only print the new quotas")
    add_server_options(parser)


def _number(text: str) -> int | str:
    if text == _NONE:
        return text
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is neither a whole number nor none")
    return int(text)


def _size(text: str) -> int | str:
    """A plain number is in MiB, as in the ConfigMap."""
    return int(text) if text.isascii() and text.isdigit() else text


def run(options: argparse.Namespace) -> int:
    session = Session(options)
    return _set(session, options) if options.verb == "set" else _show(session, options)


def _show(session: Session, options: argparse.Namespace) -> int:
    def visible(view: ClusterView) -> QuotaReport:
        if view.lacks("configmaps"):
            rule = read_quotas(session.quotas).rule()
            raise BadInput(f"you may not read the quotas in ConfigMap {session.quotas}; ask for {rule}")
        return quota_report(view, session.chosen)

    report = session.report("quota", QuotaReport, visible, Extra.QUOTAS, purpose=Purpose.SHOWING)
    show(report, options, lambda style: _text(report, style))
    if report.trouble:
        say(f"error: {report.trouble}")
    elif not report.namespaces:
        say(f"no quota limits {session.where}")
    session.print_missing()
    return 1 if report.trouble else 0


def _text(report: QuotaReport, style: Style) -> str:
    rows = []
    for entry in report.namespaces:
        for limit in entry.limits:
            share = None if limit.used is None else limit.used / limit.limit if limit.limit else 1.0
            rows.append(
                [
                    Cell(entry.namespace),
                    Cell(limit.model),
                    Cell(limit.measure),
                    Cell("" if limit.used is None else f"{limit.used:g}"),
                    Cell(str(limit.limit)),
                    Cell(percent(share), "" if share is None else share_color(share), bar=share),
                    Cell(",".join(entry.pools)),
                ]
            )
    return table(_TITLES, rows, style) if rows else ""


def _done(
    namespace: str, model: str, limits: Mapping[Measure, Mapping[str, object]], pools: Sequence[str] | None
) -> str:
    if pools is None and all(value is None for of_model in limits.values() for value in of_model.values()):
        measures = " and ".join(measure.name.lower() for measure in limits)
        return f"namespace {namespace} has no limit of {measures} for {model} any more"
    return f"the quota of namespace {namespace} for {model} is set"


def _set(session: Session, options: argparse.Namespace) -> int:
    if not options.target or not options.model:
        raise BadInput("set needs a namespace and a model, as in: kubectl gpu quota set research A100 --cards 8")
    given = {Measure.CARDS: options.cards, Measure.MEMORY: options.memory, Measure.CORES: options.cores}
    limits = {
        measure: {options.model: None if value == _NONE else value}
        for measure, value in given.items()
        if value is not None
    }
    pools = None if options.pools is None else [pool for pool in options.pools.split(",") if pool]
    if not limits and pools is None:
        raise BadInput("name at least one of --cards, --memory, --cores and --pools")

    place = session.quotas

    async def change(client: Client) -> str:
        try:
            found = await client.get(CONFIG_MAPS, place.name, place.namespace)
        except NotFound:
            found = None
        text = (found.data or {}).get(place.key) if found else None
        changed = changed_quotas(text, options.target, limits, pools)
        if options.dry_run:
            return changed
        data = {"data": {place.key: changed}}
        if found is not None:
            version = found.metadata.resource_version
            await client.patch(CONFIG_MAPS, place.name, data, namespace=place.namespace, version=version)
        else:
            metadata = {"name": place.name, "namespace": place.namespace}
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **data}
            await client.create(CONFIG_MAPS, body, place.namespace)
        return ""

    shown = session.call(change)
    say(shown or _done(options.target, options.model, limits, pools))
    return 0
