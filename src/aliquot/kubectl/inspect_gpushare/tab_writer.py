"""Columns as Go's text/tabwriter aligns them with padding 2: a cell ends with a tab.

Cells of a column in consecutive lines are as wide as the widest of them plus the padding. A line without a cell in
that column ends the run. Text after the last tab of a line is no cell.
"""

_PADDING = 2


def aligned(text: str) -> str:
    lines = [line.split("\t") for line in text.split("\n")]
    widths: list[list[int]] = [[0] * (len(line) - 1) for line in lines]
    _measure(lines, widths, 0, len(lines), 0)
    shown = (
        "".join(cell.ljust(width) for cell, width in zip(line, own, strict=False)) + line[-1]
        for line, own in zip(lines, widths, strict=True)
    )
    return "\n".join(shown)


def _measure(lines: list[list[str]], widths: list[list[int]], begin: int, end: int, column: int) -> None:
    """Set the widths of a column, and of those to its right, for lines from `begin` to `end`."""
    at = begin
    while at < end:
        if len(lines[at]) - 1 <= column:
            at += 1
            continue
        last = at
        while last < end and len(lines[last]) - 1 > column:
            last += 1
        width = max(len(line[column]) for line in lines[at:last]) + _PADDING
        for own in widths[at:last]:
            own[column] = width
        _measure(lines, widths, at, last, column + 1)
        at = last
