"""A key of the configuration: declared once; its path, variable, flag and documentation follow."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

ENVIRONMENT = "ALIQUOT_"


class Section(msgspec.Struct, rename="camel", frozen=True):
    """A part of a configuration tree. Its docstring is the title of its options in `--help`."""


@dataclass(frozen=True)
class Key:
    """Annotates a field of a Section."""

    help: str
    live: bool = False
    """Whether a new value takes effect while the server runs. Other keys need a restart."""
    flag: str = ""
    """The flag, if it is not the path."""
    metavar: str = ""
    """What stands for the value in `--help`. An entry of a mapping has the form NAME=VALUE."""
    default: str = ""
    """The default in words, if the value does not show it."""
    allows: Callable[[Any], bool] | None = None
    """A check beyond type and limits. The description of the limits says it in words."""
    is_required: bool = False
    other_variable: str = ""
    """Another environment variable with the same meaning."""


@dataclass(frozen=True)
class Setting:
    """A declared key with everything that follows from its declaration."""

    path: str
    section: type[Section]
    type: Any
    default: Any
    key: Key
    limits: msgspec.Meta

    @property
    def flag(self) -> str:
        return self.key.flag or "--" + _words(self.path, "-")

    @property
    def variable(self) -> str:
        return ENVIRONMENT + self.flag.removeprefix("--").replace("-", "_").upper()

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.variable, self.key.other_variable)))

    @property
    def is_mapping(self) -> bool:
        return get_origin(self.type) is dict

    @property
    def is_list(self) -> bool:
        return get_origin(self.type) is tuple

    @property
    def choices(self) -> tuple[str, ...]:
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    @property
    def allowed(self) -> str:
        """What a value may be, in words that complete "VALUE is not ..."."""
        low, high, above = self.limits.ge, self.limits.le, self.limits.gt
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.is_mapping:
            name, _, value = self.key.metavar.partition("=")
            return self.limits.description or f"a mapping of {name.lower()} to {value.lower()}"
        if self.is_list:
            return self.limits.description or "a list of names"
        if self.type is bool:
            return "true or false"
        if self.type is str:
            return self.limits.description or "a string"
        number = "an integer" if self.type is int else "a number"
        if above is not None:
            return f"{number} above {above} and at most {high}"
        return f"{number} from {low} to {high}"

    def read(self, value: Any) -> Any:
        """Convert a value to the key's type. Raises msgspec.ValidationError."""
        found = msgspec.convert(value, Annotated[self.type, self.limits])
        if self.key.allows is not None and not self.key.allows(found):
            raise msgspec.ValidationError(f"not {self.allowed}")
        return found


def settings_of(root: type[Section], path: str = "") -> Iterator[Setting]:
    """Every key of a tree, in the order of declaration."""
    hints = get_type_hints(root, include_extras=True)
    for field in msgspec.structs.fields(root):
        here = f"{path}.{field.encode_name}".lstrip(".")
        kind, *notes = _parts(hints[field.name])
        if isinstance(kind, type) and issubclass(kind, Section):
            yield from settings_of(kind, here)
            continue
        (key,) = (note for note in notes if isinstance(note, Key))
        limits = next((note for note in notes if isinstance(note, msgspec.Meta)), msgspec.Meta())
        yield Setting(here, root, kind, _default(field), key, limits)


def _parts(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) is Annotated else (hint,)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default


def _words(path: str, between: str) -> str:
    """`commit.actLimit` as commit-act-limit."""
    spaced = "".join(f".{letter.lower()}" if letter.isupper() else letter for letter in path)
    return spaced.replace(".", between)
