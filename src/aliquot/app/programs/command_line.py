"""Command lines as Go programs read them.

Two packages of Go are in use: `flag` (one dash or two, and whatever follows the first other word is left alone) and
`pflag` (two dashes, a letter after one, other words anywhere).
"""

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from aliquot.app.programs.values import BOOL, TEXT, Kind

_WIDEST = 110
_ASKS_FOR_HELP = ("h", "help")


class WrongUsage(Exception):
    """In the words of Go's package."""


class HelpWanted(Exception):
    """The usage was asked for, and nothing else."""


@dataclass(frozen=True)
class Flag:
    name: str
    help: str
    kind: Kind = TEXT
    default: str = ""
    letter: str = ""


@dataclass(frozen=True)
class Parsed:
    """Every flag's value; those that were `said`, each as it was written; and the words that are no flags."""

    values: dict[str, Any]
    said: dict[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


@dataclass(frozen=True)
class CommandLine:
    """`about` is what the usage begins with; `_` in a flag's name is the same as `-`."""

    program: str
    about: str
    flags: Sequence[Flag] = ()
    gnu: bool = False
    """Read as pflag does."""

    def parse(self, words: Sequence[str]) -> Parsed:
        """Raises WrongUsage, or HelpWanted."""
        values = {flag.name: flag.kind.read(flag.default or flag.kind.absent) for flag in self.flags}
        said: dict[str, str] = {}
        others: list[str] = []
        left = list(words)
        while left:
            word = left.pop(0)
            if word == "--":
                others += left
                break
            if not word.startswith("-") or word == "-":
                others.append(word)
                if not self.gnu:
                    others += left
                    break
                continue
            flag, written, text = self._one(word, left)
            try:
                values[flag.name] = flag.kind.read(text)
            except ValueError as error:
                raise WrongUsage(self._invalid(flag, text, str(error))) from error
            said[flag.name] = written
        return Parsed(values, said, tuple(others))

    def _one(self, word: str, left: list[str]) -> tuple[Flag, str, str]:
        """The flag that a word names, how it is written there, and the text that it is given."""
        dashes = "--" if word.startswith("--") else "-"
        name, equals, text = word[len(dashes) :].partition("=")
        if not name or name.startswith("-"):
            raise WrongUsage(f"bad flag syntax: {word}")
        if self.gnu and dashes == "-":
            flag = self._by_letter(name[0], word)
            attached = name[1:]
            equals, text = ("=", attached + equals + text) if attached else (equals, text)
            name = name[0]
        else:
            flag = self._by_name(name, dashes)
        written = f"{dashes}{name}"
        if equals:
            return flag, written, text
        if flag.kind.bare is not None:
            return flag, written, flag.kind.bare
        if not left:
            raise WrongUsage(f"flag needs an argument: {written}")
        return flag, written, left.pop(0)

    def _by_letter(self, letter: str, word: str) -> Flag:
        for flag in self.flags:
            if flag.letter == letter:
                return flag
        if letter in _ASKS_FOR_HELP:
            raise HelpWanted
        raise WrongUsage(f"unknown shorthand flag: '{letter}' in {word}")

    def _by_name(self, name: str, dashes: str) -> Flag:
        for flag in self.flags:
            if flag.name == name.replace("_", "-"):
                return flag
        if name in _ASKS_FOR_HELP:
            raise HelpWanted
        raise WrongUsage(f"unknown flag: {dashes}{name}" if self.gnu else f"flag provided but not defined: -{name}")

    def _invalid(self, flag: Flag, text: str, why: str) -> str:
        if not self.gnu:
            return f'invalid value "{text}" for flag -{flag.name}: {why}'
        names = f"-{flag.letter}, --{flag.name}" if flag.letter else f"--{flag.name}"
        return f'invalid argument "{text}" for "{names}" flag: {why}'

    def usage(self) -> str:
        width = min(shutil.get_terminal_size((_WIDEST, 24)).columns, _WIDEST)
        lines = [self.about.strip(), "", f"Usage of {self.program}:"]
        for flag in (*self.flags, Flag("help", "Print this and end.", BOOL, letter="h")):
            lines += self._described(flag, width)
        return "\n".join(lines)

    def _described(self, flag: Flag, width: int) -> Iterator[str]:
        letter = f"-{flag.letter}, " if self.gnu and flag.letter else ""
        word = "" if flag.kind is BOOL else f" {flag.kind.word}"
        yield f"  {letter}{'--' if self.gnu else '-'}{flag.name}{word}"
        default = f" (default {flag.default})" if flag.default else ""
        yield from textwrap.wrap(flag.help + default, width, initial_indent=" " * 8, subsequent_indent=" " * 8)
