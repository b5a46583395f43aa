"""What a client accepts: the `Accept` header, by preference."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

JSON = "application/json"
_ANYTHING = (JSON, "application/*", "*/*")
_META = "meta.k8s.io"


class Form(Enum):
    """How objects are presented."""

    OBJECT = "object"
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"


@dataclass(frozen=True, slots=True)
class Offer:
    """A media type that JSON satisfies, with its parameters."""

    parameters: dict[str, str]

    def asks(self, kind: str, group: str, version: str) -> bool:
        """Whether it asks for JSON `as` this kind."""
        wanted = {"as": kind, "g": group, "v": version}
        return {name: self.parameters.get(name) for name in wanted} == wanted

    @property
    def is_plain(self) -> bool:
        return "as" not in self.parameters


def offers(accept: str) -> Iterator[Offer]:
    """The media types that JSON satisfies, the preferred first. Without a header, anything will do."""
    parsed = []
    for text in accept.split(",") if accept.strip() else [JSON]:
        media, *rest = (part.strip() for part in text.split(";"))
        parameters = {name: value for name, _, value in (part.partition("=") for part in rest)}
        if media in _ANYTHING:
            parsed.append((_quality(parameters.pop("q", "1")), Offer(parameters)))
    parsed.sort(key=lambda item: -item[0])
    return (offer for quality, offer in parsed if quality > 0)


def accepted_form(accept: str, *, is_list: bool) -> Form | None:
    """The preferred form among those that we know; None if there is none."""
    metadata = f"{Form.METADATA.value}List" if is_list else Form.METADATA.value
    for offer in offers(accept):
        if offer.is_plain:
            return Form.OBJECT
        if offer.asks(Form.TABLE.value, _META, "v1"):
            return Form.TABLE
        if offer.asks(metadata, _META, "v1"):
            return Form.METADATA
    return None


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
