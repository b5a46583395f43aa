"""`kubectl gpu dump`."""

import argparse
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import yaml

import aliquot
from aliquot.dialects import standard_dialects
from aliquot.errors import BadInput
from aliquot.kube.client import Client
from aliquot.kube.resources import ConfigMap
from aliquot.kubectl.gpu.output import say
from aliquot.kubectl.gpu.session import Session, print_missing
from aliquot.plain import why
from aliquot.reports.archive import DOCTOR, read_file, write_archive
from aliquot.reports.decisions import decisions_report
from aliquot.reports.doctor import Facts, examine
from aliquot.reports.doctor_reading import read_facts
from aliquot.reports.nodes import nodes_report
from aliquot.reports.objects import ClusterObjects, Extra
from aliquot.reports.pods import pods_report
from aliquot.reports.queue import queue_report
from aliquot.reports.quota import quota_report
from aliquot.reports.redaction import redacted, without_secrets
from aliquot.reports.report import Report
from aliquot.reports.server_config import READ_CONFIG, read_server_config, server_config
from aliquot.reports.view import view_of

EPILOG = """examples:
  kubectl gpu dump                             # writes gpu-dump-<time>.tar.gz
  kubectl gpu dump incident.tar.gz             # what you see, for people without access to your cluster
  kubectl gpu nodes --from incident.tar.gz     # look at it; every command that only reads takes --from

The file has nodes, pods, Leases of agents, quotas, events, the last decisions, what `doctor` found, and the
configurations of schedulers and of the server. It has no Secrets, no tokens and no environment of containers, and no
annotation that Aliquot does not read. Names of nodes, namespaces, pods and images of yours are in it.
"""

_SCHEDULERS, _SERVER = "schedulers.yaml", "server.yaml"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", default="", metavar="FILE", help="the file to write")


def run(options: argparse.Namespace) -> int:
    session, dialects = Session(options), standard_dialects()
    objects = redacted(session.objects(*Extra), dialects)
    view = view_of(objects, dialects)

    async def read(client: Client) -> tuple[Facts, list[ConfigMap] | None]:
        return await read_facts(client, dialects), await read_server_config(client)

    reports: dict[str, Report] = {
        "nodes": nodes_report(view),
        "pods": pods_report(view),
        "queue": queue_report(view),
        "quotas": quota_report(view),
        "decisions": decisions_report(view),
    }
    files = {f"{name}.json": _json(report) for name, report in reports.items()}
    files["version.txt"] = f"{aliquot.__version__}\n".encode()
    if options.archive:
        archive = Path(options.archive)
        copied = {name: read_file(archive, name) for name in (DOCTOR, _SCHEDULERS, _SERVER)}
        files |= {name: content for name, content in copied.items() if content is not None}
    else:
        facts, maps = session.call(read)
        files[DOCTOR] = _json(examine(view, facts))
        files[_SCHEDULERS] = _schedulers(facts)
        files[_SERVER] = yaml.safe_dump(server_config(maps or ()), sort_keys=False).encode()
        if maps is None:
            say(f"note: with one more right you would see {READ_CONFIG.without}: {READ_CONFIG.rule()}")
    path = Path(options.file or f"gpu-dump-{datetime.fromtimestamp(objects.at, UTC):%Y%m%d-%H%M%S}.tar.gz")
    _write(path, objects, files)
    say(f"{path} has {len(objects.nodes)} nodes, {len(objects.pods)} pods and {len(objects.events)} events")
    print_missing(view)
    return 0


def _json(report: Report) -> bytes:
    return msgspec.json.format(msgspec.json.encode(report), indent=2)


def _schedulers(facts: Facts) -> bytes:
    documents = [{"where": config.where, **without_secrets(config.document)} for config in facts.schedulers or ()]
    return yaml.safe_dump_all(documents, sort_keys=False).encode()


def _write(path: Path, objects: ClusterObjects, files: dict[str, bytes]) -> None:
    """Whole or not at all, and readable by no other user: it tells much about the cluster. Raises BadInput."""
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            try:
                write_archive(file, objects, files)
                file.flush()
                os.replace(file.name, path)  # noqa: PTH105  # the same for Path and str
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {why(error)}") from error
