"""What a key of the configuration is: declared once, used for the file, the variable, the flag and the documents."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import msgspec

ENVIRONMENT = "ALIQUOT_"


class Section(msgspec.Struct, rename="camel", frozen=True):
    """A part of the tree; the first line of its docstring is its title."""


@dataclass(frozen=True)
class Key:
    """Stands beside a field's type. `live` keys change under a running server; the others wait for a restart."""

    help: str
    live: bool = False
    flag: str = ""
    """Where the flag is shorter than the path."""
    pair: str = ""
    """What one entry of a mapping looks like, such as DIALECT=PREFIX."""
    default: str = ""
    """In words, where the default is worked out."""
    allows: Callable[[Any], bool] | None = None
    """What neither type nor limits can say; the limits' description says it in words."""


@dataclass(frozen=True)
class Setting:
    """One key, as everybody needs it."""

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
    def is_mapping(self) -> bool:
        return get_origin(self.type) is dict

    @property
    def choices(self) -> tuple[str, ...]:
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    @property
    def allowed(self) -> str:
        """What a value may be, in words that end a sentence."""
        low, high, above = self.limits.ge, self.limits.le, self.limits.gt
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.is_mapping:
            name, _, value = self.key.pair.partition("=")
            return f"a mapping of {name.lower()} to {value.lower()}"
        if self.type is bool:
            return "true or false"
        if self.type is str:
            return self.limits.description or "a text"
        number = "a whole number" if self.type is int else "a number"
        if above is not None:
            return f"{number} above {above}, at most {high}"
        return f"{number} from {low} to {high}"

    def read(self, value: Any) -> Any:
        """A value of the key's type. Raises msgspec.ValidationError."""
        found = msgspec.convert(value, Annotated[self.type, self.limits])
        if self.key.allows is not None and not self.key.allows(found):
            raise msgspec.ValidationError(f"not {self.allowed}")
        return found


def settings_of(root: type[Section], path: str = "") -> Iterator[Setting]:
    """Every key of a tree, in the order in which it is declared."""
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
    """`commit.actLimit` as words: act-limit is two."""
    spaced = "".join(f".{letter.lower()}" if letter.isupper() else letter for letter in path)
    return spaced.replace(".", between)
