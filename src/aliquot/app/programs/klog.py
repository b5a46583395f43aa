"""klog's flags, lines and files put together."""

from collections.abc import Iterator
from contextlib import contextmanager

from aliquot import logs
from aliquot.app.programs.command_line import Parsed
from aliquot.app.programs.klog_files import KlogFiles
from aliquot.app.programs.klog_flags import klog_settings
from aliquot.app.programs.klog_lines import klog_form
from aliquot.config import Given


@contextmanager
def form(program: str, parsed: Parsed) -> Iterator[logs.Form]:
    """The form of log lines that the flags ask for, for as long as the block lasts. Raises BadConfig."""
    settings = klog_settings(parsed)
    with KlogFiles(program, settings) as files:
        yield klog_form(settings, files)


def given(parsed: Parsed) -> dict[str, Given]:
    """The level as a key of the configuration, where a flag says it."""
    said = [parsed.said[name] for name in ("v", "vmodule") if name in parsed.said]
    return {"log.level": Given(klog_settings(parsed).log_level, ", ".join(said))} if said else {}
