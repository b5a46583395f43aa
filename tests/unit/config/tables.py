"""Writes the tables of keys into docs/configuration.md: `python -m tests.unit.config.tables`."""

import re
from collections.abc import Iterable
from pathlib import Path

from aliquot.config.agent_tree import AGENT
from aliquot.config.keys import Setting
from aliquot.config.rendering import default
from aliquot.config.server import SERVER

_GUIDE = Path(__file__).parents[3] / "docs" / "configuration.md"


def main() -> None:
    text = _GUIDE.read_text()
    for table in (key_table(SERVER.settings.values()), flag_table(AGENT.settings.values())):
        header = re.escape(table.splitlines()[0])
        text = re.sub(rf"^{header}\n(\|.*\n)*", table.replace("\\", r"\\"), text, flags=re.MULTILINE)
    _GUIDE.write_text(text)


def key_table(settings: Iterable[Setting]) -> str:
    """Keys of a configuration file as a table of the documents."""
    header = "| key | flag | variable | default | allowed | change | what |\n|---|---|---|---|---|---|---|\n"
    rows = (
        [f"`{setting.path}`", *_flag_cells(setting), "live" if setting.key.live else "restart", setting.key.help]
        for setting in settings
    )
    return header + "".join(map(_row, rows))


def flag_table(settings: Iterable[Setting]) -> str:
    """Keys that only flags and variables can set, as a table of the documents."""
    header = "| flag | variable | default | allowed | what |\n|---|---|---|---|---|\n"
    return header + "".join(_row([*_flag_cells(setting), setting.key.help]) for setting in settings)


def _flag_cells(setting: Setting) -> list[str]:
    variables = ", ".join(f"`{variable}`" for variable in setting.variables)
    return [f"`{setting.flag}`", variables, default(setting), setting.allowed]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    main()
