"""Writes the tables of keys into docs/configuration.md: `python -m tests.unit.config.tables`."""

import re
from pathlib import Path

from aliquot.config import rendering
from aliquot.config.agent_tree import AGENT
from aliquot.config.server import SERVER

_GUIDE = Path(__file__).parents[3] / "docs" / "configuration.md"


def main() -> None:
    text = _GUIDE.read_text()
    for table in (rendering.key_table(SERVER.settings.values()), rendering.flag_table(AGENT.settings.values())):
        header = re.escape(table.splitlines()[0])
        text = re.sub(rf"^{header}\n(\|.*\n)*", table.replace("\\", r"\\"), text, flags=re.MULTILINE)
    _GUIDE.write_text(text)


if __name__ == "__main__":
    main()
