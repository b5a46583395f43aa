"""`kubectl gpu doctor`."""

import argparse
from pathlib import Path

from aliquot.dialects import standard_dialects
from aliquot.kubectl.gpu.output import Style, show
from aliquot.kubectl.gpu.session import Session, print_missing
from aliquot.reports.archive import DOCTOR, read_file, read_json
from aliquot.reports.doctor import ERROR, OK, UNKNOWN, WARNING, DoctorReport, Facts, examine
from aliquot.reports.doctor_reading import read_facts
from aliquot.reports.objects import Extra
from aliquot.reports.view import ClusterView

EPILOG = """examples:
  kubectl gpu doctor            # exit code 1 if anything is wrong
  kubectl gpu doctor -o wide    # also what is in order
"""

_COLORS = {ERROR: "red", WARNING: "yellow", UNKNOWN: "cyan", OK: "green"}


def add_options(_: argparse.ArgumentParser) -> None:
    """There are no further options."""


def run(options: argparse.Namespace) -> int:
    session = Session(options)
    view = session.view(*Extra)
    if options.archive:
        report = _archived_report(view, Path(options.archive))
    else:
        report = examine(view, session.call(lambda client: read_facts(client, standard_dialects())))
    show(report, options, lambda style: _text(report, style, is_wide=options.output == "wide"))
    print_missing(view)
    return 1 if report.worst == ERROR else 0


def _archived_report(view: ClusterView, path: Path) -> DoctorReport:
    """What doctor found when the archive was written; it could read more then. Raises BadInput."""
    written = read_file(path, DOCTOR)
    return examine(view, Facts.unknown()) if written is None else read_json(path, written, DoctorReport)


def _text(report: DoctorReport, style: Style, *, is_wide: bool) -> str:
    lines = []
    for finding in report.findings:
        if finding.level != OK or is_wide:
            lines.append(
                f"{style.painted(finding.level.upper(), _COLORS[finding.level])} {finding.check}: {finding.text}"
            )
            lines += [f"  remedy: {finding.remedy}"] if finding.remedy else []
    counts = [f"{sum(f.level == level for f in report.findings)} {level}" for level in (ERROR, WARNING, UNKNOWN, OK)]
    return "\n".join([*lines, ", ".join(counts), ""])
