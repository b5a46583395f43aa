"""Guides whose commands are run: fenced `sh` blocks, and what they print in the fence without a language after them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMING_FROM = Path(__file__).parents[1] / "docs" / "coming-from"
_FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```\n(?P<gap>\s*)", re.MULTILINE | re.DOTALL)
_ANYTHING = "..."


@dataclass(frozen=True, slots=True)
class Step:
    """Commands that are typed one after the other. `shown` is what the page says they print, "" if it does not say."""

    line: int
    commands: str
    shown: str = ""

    def explains(self, printed: str) -> bool:
        """Whether the page shows what was printed; `...` in it stands for anything, lines included."""
        parts = (re.escape(part) for part in self.shown.strip().split(_ANYTHING))
        return not self.shown or re.fullmatch(".*".join(parts), printed.strip(), re.DOTALL) is not None


def coming_from() -> list[Path]:
    """The pages of one system each."""
    return sorted(path for path in COMING_FROM.glob("*.md") if path.name != "README.md")


def steps(page: Path) -> Iterator[Step]:
    text = page.read_text()
    fences = list(_FENCE.finditer(text))
    for fence, after in zip(fences, [*fences[1:], None], strict=True):
        if fence["language"] == "sh":
            follows = after is not None and after.start() == fence.end() and not after["language"]
            line = text.count("\n", 0, fence.start()) + 1
            yield Step(line, fence["text"], after["text"] if after is not None and follows else "")


def sections(page: Path) -> list[str]:
    return re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE)
