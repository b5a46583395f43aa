"""klog's flags, and what they ask for."""

from dataclasses import dataclass

from aliquot.app.programs.command_line import Flag, Parsed
from aliquot.app.programs.values import BOOL, DURATION, LEVEL, LINE, MODULES, SEVERITY, SIZE
from aliquot.logs import DEBUG_VERBOSITY

KLOG_FLAGS = (
    Flag("logtostderr", "Log to standard error and to no file.", BOOL, "true"),
    Flag("alsologtostderr", "Log to standard error as well as to files.", BOOL),
    Flag("stderrthreshold", "With files: lines of this severity and above go to standard error, too.", SEVERITY, "2"),
    Flag(
        "v",
        "How much to log: 0 what happens, 4 also the arguments and results of calls, 9 also their whole bodies.",
        LEVEL,
        "0",
        letter="v",
    ),
    Flag(
        "vmodule",
        "Another level for files that match a pattern: commit=4,lead*=4; with a /, for paths: endpoints/*=9.",
        MODULES,
    ),
    Flag("log-backtrace-at", "When logging hits this line, such as commit.py:131, add a stack trace.", LINE, ":0"),
    Flag("log-dir", "The folder for log files, one for each severity, with --logtostderr=false (default: $TMPDIR)."),
    Flag("log-file", "One log file for all severities, with --logtostderr=false."),
    Flag("log-file-max-size", "MB at which a log file is changed for a new one; 0 is no limit.", SIZE, "1800"),
    Flag("log-flush-frequency", "The longest time for which lines wait before they are in a log file.", DURATION, "5s"),
    Flag("one-output", "Write a line only to the file of its own severity, not to those of lower ones.", BOOL),
    Flag("skip-headers", "Leave the time, the process and the file out of lines.", BOOL),
    Flag("skip-log-headers", "Begin log files without a heading.", BOOL),
    Flag("add-dir-header", "Name the folder of the file in lines, too.", BOOL),
)


@dataclass(frozen=True)
class KlogSettings:
    to_stderr: bool = True
    also_to_stderr: bool = False
    stderr_threshold: int = 2
    verbosity: int = 0
    modules: tuple[tuple[str, int], ...] = ()
    backtrace_at: tuple[str, int] | None = None
    folder: str = ""
    file: str = ""
    file_mb: int = 1800
    flush_seconds: float = 5.0
    one_output: bool = False
    skip_headers: bool = False
    skip_headings: bool = False
    with_folder: bool = False

    @property
    def log_level(self) -> str:
        """In our own words; which debug lines are written, the verbosity says."""
        most = max(self.verbosity, *(level for _, level in self.modules), 0)
        return "debug" if most >= DEBUG_VERBOSITY else "info"


def klog_settings(parsed: Parsed) -> KlogSettings:
    return KlogSettings(
        to_stderr=parsed["logtostderr"],
        also_to_stderr=parsed["alsologtostderr"],
        stderr_threshold=parsed["stderrthreshold"],
        verbosity=parsed["v"],
        modules=parsed["vmodule"],
        backtrace_at=parsed["log-backtrace-at"],
        folder=parsed["log-dir"],
        file=parsed["log-file"],
        file_mb=parsed["log-file-max-size"],
        flush_seconds=parsed["log-flush-frequency"],
        one_output=parsed["one-output"],
        skip_headers=parsed["skip-headers"],
        skip_headings=parsed["skip-log-headers"],
        with_folder=parsed["add-dir-header"],
    )
