"""From a file's text, variables and flags to one configuration.

A flag overrides a variable, a variable overrides the file, and the file overrides the default.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from aliquot.config import yaml_text
from aliquot.config.keys import Section, Setting, settings_of
from aliquot.errors import BadConfig

DEFAULT = "default"
_MAX_SHOWN = 60

Tree = TypeVar("Tree", bound=Section)
Check = Callable[[Tree, Collection[str]], Iterator[str]]
"""Finds problems of a tree. Keys in the collection had unusable values; the tree has their defaults."""


@dataclass(frozen=True)
class Given:
    """A value and its origin: a flag, a variable or a file."""

    value: Any
    origin: str


@dataclass(frozen=True)
class Effective(Generic[Tree]):
    """A configuration in effect: as a tree for programs, and by path with origins for people."""

    tree: Tree
    values: Mapping[str, Any]
    origins: Mapping[str, str]


class Declaration(Generic[Tree]):
    """All keys of a program, and how to read them."""

    def __init__(self, root: type[Tree], check: Check[Tree] | None = None) -> None:
        self._root = root
        self._check = check
        self.settings: Mapping[str, Setting] = {setting.path: setting for setting in settings_of(root)}
        """Every key, by its path."""
        self._sections = {section for path in self.settings for section in _sections_of(path)}

    def read(self, text: str, origin: str, given: Mapping[str, Given]) -> Effective[Tree]:
        """`given` are the flags and variables, by path. Raises BadConfig that names every problem with its key."""
        problems: list[str] = []
        leaves = self._leaves(yaml_text.parse(text, origin), origin, problems)
        defaults = {path: Given(setting.default, DEFAULT) for path, setting in self.settings.items()}
        chosen = {**defaults, **{path: Given(value, origin) for path, value in leaves.items()}, **given}
        unusable: set[str] = set()
        values = {}
        for path, candidate in chosen.items():
            values[path], problem = self._typed(path, candidate)
            if problem:
                unusable.add(path)
                problems.append(problem)
        tree = self.tree_of(values)
        if self._check is not None:
            problems += self._check(tree, unusable)
        if problems:
            raise BadConfig("; ".join(dict.fromkeys(problems)))
        return Effective(tree, values, {path: candidate.origin for path, candidate in chosen.items()})

    def tree_of(self, values: Mapping[str, Any]) -> Tree:
        """The tree with these values, given by path."""
        nested: dict[str, Any] = {}
        for path, value in values.items():
            *sections, name = path.split(".")
            place = nested
            for section in sections:
                place = place.setdefault(section, {})
            place[name] = value
        return msgspec.convert(nested, self._root)

    def _leaves(self, tree: Any, origin: str, problems: list[str], path: str = "") -> dict[str, Any]:
        """The values of a file, by path. Appends to `problems` what is not a key."""
        if tree is None:
            return {}
        if not isinstance(tree, dict):
            where = f"{path} ({origin})" if path else origin
            problems.append(f"{where}: {_shown(tree)} is not a mapping of keys; valid keys are {self._names(path)}")
            return {}
        found: dict[str, Any] = {}
        for name, value in tree.items():
            here = f"{path}.{name}".lstrip(".")
            if here in self.settings:
                found[here] = value
            elif here in self._sections:
                found |= self._leaves(value, origin, problems, here)
            else:
                place = f"in {path}" if path else "at the top level"
                problems.append(f"{here} ({origin}): unknown key; valid keys {place} are {self._names(path)}")
        return found

    def _names(self, path: str) -> str:
        below = [key.removeprefix(f"{path}.") for key in self.settings if not path or key.startswith(f"{path}.")]
        return ", ".join(dict.fromkeys(name.partition(".")[0] for name in below))

    def _typed(self, path: str, candidate: Given) -> tuple[Any, str]:
        """The value and no problem, or the default and the problem."""
        setting = self.settings[path]
        try:
            return setting.read(candidate.value), ""
        except msgspec.ValidationError:
            problem = f"{path} ({candidate.origin}): {_shown(candidate.value)} is not {setting.allowed}"
            return setting.default, problem


def _sections_of(path: str) -> Iterator[str]:
    while path := path.rpartition(".")[0]:
        yield path


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
