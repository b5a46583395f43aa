"""From a file's text, variables and flags to one configuration: flag before variable before file before default."""

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import yaml

from aliquot.config.checking import clashes
from aliquot.config.tree import SETTINGS, Configuration
from aliquot.errors import BadConfig
from aliquot.model.bounds import DEEPEST_CONFIG, LARGEST_CONFIG, MAX_CONFIG_VALUES, require_size
from aliquot.plain import why

DEFAULT = "default"

_SECTIONS = {path.rpartition(".")[0] for path in SETTINGS} | {"endpoints"}
_LONGEST = 60
_BRACKET = re.compile(r"[\[\]{}]")


@dataclass(frozen=True)
class Given:
    """A value and who gave it: a flag, a variable or a file."""

    value: Any
    origin: str


@dataclass(frozen=True)
class Effective:
    """The configuration in effect: as a tree for programs, and by path with its origins for people."""

    tree: Configuration
    values: Mapping[str, Any]
    origins: Mapping[str, str]


def read(text: str, origin: str, given: Mapping[str, Given]) -> Effective:
    """`given` are the flags and variables, by path. Raises BadConfig with every problem, each with its key."""
    problems: list[str] = []
    leaves = _leaves(_parse(text, origin), origin, problems)
    said = {path: Given(value, origin) for path, value in leaves.items()}
    chosen = {path: Given(setting.default, DEFAULT) for path, setting in SETTINGS.items()} | said | dict(given)
    wrong: set[str] = set()
    values = {}
    for path, one in chosen.items():
        values[path], problem = _typed(path, one)
        if problem:
            wrong.add(path)
            problems.append(problem)
    tree = tree_of(values)
    problems += clashes(tree, wrong)
    if problems:
        raise BadConfig("; ".join(dict.fromkeys(problems)))
    return Effective(tree, values, {path: one.origin for path, one in chosen.items()})


def tree_of(values: Mapping[str, Any]) -> Configuration:
    nested: dict[str, Any] = {}
    for path, value in values.items():
        *sections, name = path.split(".")
        place = nested
        for section in sections:
            place = place.setdefault(section, {})
        place[name] = value
    return msgspec.convert(nested, Configuration)


class _Loader(yaml.SafeLoader):
    """YAML in which a key that is said twice is an error, not a surprise, and which ends where no configuration goes
    on: it is read on the event loop."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = self._values = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(problem="aliases (*name) are not read", problem_mark=mark)
        self._values += 1
        if self._values > MAX_CONFIG_VALUES or self._depth > DEEPEST_CONFIG:
            bounds = f"more than {MAX_CONFIG_VALUES} keys and values, or {DEEPEST_CONFIG} levels"
            raise yaml.composer.ComposerError(problem=bounds, problem_mark=mark)
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Any] = set()
        for name in [name for name, _ in node.value if isinstance(name, yaml.ScalarNode)]:
            if name.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"{name.value} is said twice", problem_mark=name.start_mark
                )
            seen.add(name.value)
        return super().construct_mapping(node, deep)


def _parse(text: str, origin: str) -> Any:
    require_size(origin, text, LARGEST_CONFIG, BadConfig)
    _require_shallow(text, origin)
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise BadConfig(f"{origin} cannot be read as YAML: {why(error)}") from error
    except (ValueError, RecursionError) as error:  # a date that is none, a number that is none, brackets without end
        raise BadConfig(f"{origin} cannot be read as YAML: {error}") from error


def _require_shallow(text: str, origin: str) -> None:
    """The scanner looks far ahead, and takes the longer for each bracket that is open."""
    depth = 0
    for bracket in _BRACKET.findall(text):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
        if depth > DEEPEST_CONFIG:
            raise BadConfig(f"{origin} cannot be read as YAML: brackets are more than {DEEPEST_CONFIG} levels deep")


def _leaves(tree: Any, origin: str, problems: list[str], path: str = "") -> dict[str, Any]:
    """What a file says, by path; what it may not say goes to the problems."""
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        where = f"{path} ({origin})" if path else origin
        problems.append(f"{where}: {_shown(tree)} is not a mapping of keys; there are {_names(path)}")
        return {}
    found: dict[str, Any] = {}
    for name, value in tree.items():
        here = f"{path}.{name}".lstrip(".")
        if here in SETTINGS:
            found[here] = value
        elif here in _SECTIONS:
            found |= _leaves(value, origin, problems, here)
        else:
            problems.append(f"{here} ({origin}): there is no such key; {path or 'the top'} has {_names(path)}")
    return found


def _names(path: str) -> str:
    below = [key.removeprefix(f"{path}.") for key in SETTINGS if not path or key.startswith(f"{path}.")]
    return ", ".join(dict.fromkeys(name.partition(".")[0] for name in below))


def _typed(path: str, one: Given) -> tuple[Any, str]:
    """The value, or the default and what is wrong."""
    setting = SETTINGS[path]
    try:
        return setting.read(one.value), ""
    except msgspec.ValidationError:
        return setting.default, f"{path} ({one.origin}): {_shown(one.value)} is not {setting.allowed}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
