"""Reads YAML with strict limits: a configuration file, which a running server reads on its event loop, and specs that
others write."""

import re
from collections.abc import Hashable
from typing import Any

import yaml

from aliquot.errors import BadConfig
from aliquot.model.bounds import DEEPEST_CONFIG, LARGEST_CONFIG, MAX_CONFIG_VALUES, require_size
from aliquot.plain import why

_BRACKET = re.compile(r"[\[\]{}]")


def parse(text: str, origin: str, largest: int = LARGEST_CONFIG, max_values: int = MAX_CONFIG_VALUES) -> Any:
    """The parsed YAML. Raises BadConfig that names the origin, also if it has more bytes or values than that."""
    require_size(origin, text, largest, BadConfig)
    _require_shallow(text, origin)
    try:
        return _Loader(text, max_values).get_single_data()
    except yaml.YAMLError as error:
        raise BadConfig(f"{origin} cannot be read as YAML: {why(error)}") from error
    except (ValueError, RecursionError) as error:  # an impossible date or number, endless brackets
        raise BadConfig(f"{origin} cannot be read as YAML: {error}") from error


class _Loader(yaml.SafeLoader):
    """Rejects duplicate keys, aliases, and texts that are larger or deeper than any configuration."""

    def __init__(self, stream: str, max_values: int) -> None:
        super().__init__(stream)
        self._max_values = max_values
        self._depth = self._values = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(problem="aliases (*name) are not supported", problem_mark=mark)
        self._values += 1
        if self._values > self._max_values or self._depth > DEEPEST_CONFIG:
            bounds = f"more than {self._max_values} keys and values, or {DEEPEST_CONFIG} levels"
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
                    problem=f"{name.value} is a duplicate key", problem_mark=name.start_mark
                )
            seen.add(name.value)
        return super().construct_mapping(node, deep)


def _require_shallow(text: str, origin: str) -> None:
    """The YAML scanner looks far ahead, and every open bracket slows it down."""
    depth = 0
    for bracket in _BRACKET.findall(text):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
        if depth > DEEPEST_CONFIG:
            raise BadConfig(f"{origin} cannot be read as YAML: brackets are more than {DEEPEST_CONFIG} levels deep")
