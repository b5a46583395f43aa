"""Parses command lines as Go programs do.

Go programs use one of two packages. `flag` accepts one dash or two, and stops at the first argument that is not a flag.
`pflag` accepts two dashes, or one dash and a letter, and arguments anywhere.
"""

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from aliquot.app.programs.values import BOOL, TEXT, ValueKind

_MAX_WIDTH = 110
_HELP = ("h", "help")


class WrongUsage(Exception):
    """The command line is wrong. The text is that of Go's package."""


class HelpWanted(Exception):
    """A flag asks for the usage."""


@dataclass(frozen=True)
class Flag:
    name: str
    help: str
    kind: ValueKind = TEXT
    default: str = ""
    letter: str = ""
    idle: str = ""
    """Why it has no effect."""


def idle_flag(name: str, why: str, kind: ValueKind = TEXT, default: str = "") -> Flag:
    """A flag of the original that has no effect here."""
    return Flag(name, f"Has no effect: {why}.", kind, default, idle=why)


@dataclass(frozen=True)
class Parsed:
    """The values of all flags, the flags that were given, each as it was `written`, and the other arguments."""

    values: dict[str, Any]
    written: dict[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    """The flags that were given and have no effect, each with the reason."""

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


@dataclass(frozen=True)
class CommandLine:
    """The flags of a program. `about` is the start of its usage. In a flag's name, `_` is the same as `-`."""

    program: str
    about: str
    flags: Sequence[Flag] = ()
    gnu: bool = False
    """Whether to parse as pflag does."""

    def parse(self, words: Sequence[str]) -> Parsed:
        """Raises WrongUsage, or HelpWanted."""
        values = {flag.name: flag.kind.read(flag.default or flag.kind.absent) for flag in self.flags}
        given: dict[str, str] = {}
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
            flag, written, text = self._flag(word, left)
            try:
                values[flag.name] = flag.kind.read(text)
            except ValueError as error:
                raise WrongUsage(self._invalid(flag, text, str(error))) from error
            given[flag.name] = written
        idle = (f"{given[flag.name]}: {flag.idle}" for flag in self.flags if flag.idle and flag.name in given)
        return Parsed(values, given, tuple(others), tuple(idle))

    def _flag(self, word: str, left: list[str]) -> tuple[Flag, str, str]:
        """The flag that a word names, how the word writes it, and its value."""
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
        if letter in _HELP:
            raise HelpWanted
        raise WrongUsage(f"unknown shorthand flag: '{letter}' in {word}")

    def _by_name(self, name: str, dashes: str) -> Flag:
        for flag in self.flags:
            if flag.name == name.replace("_", "-"):
                return flag
        if name in _HELP:
            raise HelpWanted
        raise WrongUsage(f"unknown flag: {dashes}{name}" if self.gnu else f"flag provided but not defined: -{name}")

    def _invalid(self, flag: Flag, text: str, why: str) -> str:
        if not self.gnu:
            return f'invalid value "{text}" for flag -{flag.name}: {why}'
        names = f"-{flag.letter}, --{flag.name}" if flag.letter else f"--{flag.name}"
        return f'invalid argument "{text}" for "{names}" flag: {why}'

    def usage(self) -> str:
        width = min(shutil.get_terminal_size((_MAX_WIDTH, 24)).columns, _MAX_WIDTH)
        lines = [self.about.strip(), "", f"Usage of {self.program}:"]
        for flag in (*self.flags, Flag("help", "Print this help and exit.", BOOL, letter="h")):
            lines += self._described(flag, width)
        return "\n".join(lines)

    def _described(self, flag: Flag, width: int) -> Iterator[str]:
        letter = f"-{flag.letter}, " if self.gnu and flag.letter else ""
        word = "" if flag.kind is BOOL else f" {flag.kind.word}"
        yield f"  {letter}{'--' if self.gnu else '-'}{flag.name}{word}"
        default = f" (default {flag.default})" if flag.default else ""
        yield from textwrap.wrap(flag.help + default, width, initial_indent=" " * 8, subsequent_indent=" " * 8)
