"""Documents that never change while the server runs, with their ETags."""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from aliquot.apiserver.answers import encode
from aliquot.apiserver.media import JSON, Offer, offers
from aliquot.apiserver.objects import Object
from aliquot.apiserver.statuses import NotAcceptable


@dataclass(frozen=True)
class Document:
    body: bytes
    content_type: str = JSON

    @property
    def etag(self) -> str:
        return sha256(self.body).hexdigest()[:32]


def document(value: Object, content_type: str = JSON) -> Document:
    return Document(encode(value), content_type)


@dataclass(frozen=True)
class Variant:
    """A document for those who accept it."""

    suits: Callable[[Offer], bool]
    document: Document


def preferred(variants: tuple[Variant, ...], accept: str) -> Document:
    """The variant that the client prefers. Raises NotAcceptable."""
    for offer in offers(accept):
        for variant in variants:
            if variant.suits(offer):
                return variant.document
    raise NotAcceptable(", ".join(variant.document.content_type for variant in variants))


def plain(only: Document) -> tuple[Variant, ...]:
    """A document without variants."""
    return (Variant(lambda offer: offer.is_plain, only),)
