"""What a pod on a hollow node does, according to its annotation `aliquot-demo/script`.

    runs 30s, uses 60%, then succeeds
    runs 1.5m, then fails with 137
    runs for ever, uses 10%

Clauses come in any order, each at most once. `runs` is how long its containers run (s, m or h). `uses` is the
percentage of each card's time that it uses. `then` is how it ends, whatever its restartPolicy says. Without a script a
pod runs forever. Without `uses` it uses a part of what it was given. Without `then` it succeeds.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from aliquot.errors import BadInput
from aliquot.model import Pod

SCRIPT = "aliquot-demo/script"

_EXAMPLE = "write for example: runs 30s, uses 60%, then succeeds"
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST_SECONDS = 365 * 24 * 3600.0
_CLAUSES = {
    "runs": re.compile(r"runs (?:(?P<amount>\d{1,9}(?:\.\d{1,3})?)(?P<unit>[smh])|for ever)"),
    "uses": re.compile(r"uses (?P<percent>\d{1,3})%"),
    "then": re.compile(r"then (?:succeeds|(?P<fails>fails)(?: with (?P<code>\d{1,3}))?)"),
}


class BadScript(BadInput):
    """An invalid script; the text names the clause and says what to write."""


@dataclass(frozen=True)
class Script:
    seconds: float | None = None
    """How many seconds its containers run; None is forever."""
    uses: int | None = None
    """The percentage of each card's time that the pod uses; None if the script does not say."""
    exit_code: int = 0


def script_of(pod: Pod) -> Script:
    """Raises BadScript."""
    text = pod.metadata.annotations.get(SCRIPT)
    return Script() if text is None else read(text)


def read(text: str) -> Script:
    """Raises BadScript."""
    found: dict[str, Mapping[str, str | None]] = {}
    for clause in (" ".join(part.split()) for part in text.split(",")):
        word = clause.partition(" ")[0]
        if word not in _CLAUSES:
            raise _bad(text, f"{clause[:40]!r} does not begin with one of {', '.join(_CLAUSES)}")
        if word in found:
            raise _bad(text, f"it says {word!r} twice")
        match = _CLAUSES[word].fullmatch(clause)
        if match is None:
            raise _bad(text, f"{clause[:40]!r} is not complete, or says more than it may")
        found[word] = match.groupdict()
    return _script(text, found.get("runs", {}), found.get("uses", {}), found.get("then"))


def _script(
    text: str, runs: Mapping[str, str | None], uses: Mapping[str, str | None], then: Mapping[str, str | None] | None
) -> Script:
    amount, unit, said = runs.get("amount"), runs.get("unit"), uses.get("percent")
    percent = None if said is None else int(said)
    seconds = float(amount) * _UNITS[unit] if amount and unit else None
    if percent is not None and percent > 100:
        raise _bad(text, f"a card cannot be used for {percent}% of the time")
    if seconds is not None and seconds > _LONGEST_SECONDS:
        raise _bad(text, "it runs for more than a year; write `runs for ever`")
    if then is not None and seconds is None:
        raise _bad(text, "it ends, but does not say how long it runs")
    if then is None or not then["fails"]:
        return Script(seconds, percent)
    code = int(then["code"] or 1)
    if not 1 <= code <= 255:
        raise _bad(text, f"{code} is not the exit code of a failure, which is 1 to 255")
    return Script(seconds, percent, code)


def _bad(text: str, why: str) -> BadScript:
    return BadScript(f"annotation {SCRIPT}: {text[:80]!r} cannot be followed: {why}; {_EXAMPLE}")
