"""Validation of every object: name, labels, and immutable fields."""

import re

from aliquot.apiserver.objects import Object, dig, text_at
from aliquot.apiserver.statuses import FieldError, forbidden, invalid, required

_LABEL_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"(?:([^/]+)/)?([A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)")
_LABEL_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_LONGEST_NAME = 253
_MAX_ANNOTATION_BYTES = 256 * 1024


def is_label_name(text: str) -> bool:
    return _LABEL_NAME.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    return len(text) <= _LONGEST_NAME and _SUBDOMAIN.fullmatch(text) is not None


def metadata_errors(obj: Object) -> list[FieldError]:
    name = text_at(obj, "metadata", "name")
    found = []
    if not name:
        found.append(required("metadata.name", "name or generateName is required"))
    elif not is_subdomain(name):
        found.append(invalid("metadata.name", name, "must be a lowercase RFC 1123 subdomain"))
    found += _label_errors(dig(obj, "metadata", "labels") or {})
    found += _annotation_errors(dig(obj, "metadata", "annotations") or {})
    return found


def metadata_update_errors(old: Object, new: Object) -> list[FieldError]:
    uid = text_at(new, "metadata", "uid")
    found = []
    if uid and uid != text_at(old, "metadata", "uid"):
        found.append(invalid("metadata.uid", uid, "field is immutable"))
    before = dig(old, "metadata", "finalizers") or []
    added = [item for item in dig(new, "metadata", "finalizers") or [] if item not in before]
    if added and dig(old, "metadata", "deletionTimestamp"):
        detail = "no new finalizers can be added if the object is being deleted"
        found.append(forbidden("metadata.finalizers", detail))
    return found


def _is_qualified(text: str) -> bool:
    match = _QUALIFIED.fullmatch(text)
    return match is not None and (match[1] is None or is_subdomain(match[1]))


def _label_errors(labels: dict[str, str]) -> list[FieldError]:
    found = []
    for name, value in labels.items():
        if not _is_qualified(name):
            found.append(invalid("metadata.labels", name, "the key must be <domain>/<name> or <name>"))
        if _LABEL_VALUE.fullmatch(value) is None:
            found.append(invalid("metadata.labels", value, f"must be a label value of 63 characters ({name})"))
    return found


def _annotation_errors(annotations: dict[str, str]) -> list[FieldError]:
    found = [
        invalid("metadata.annotations", name, "the key must be <domain>/<name> or <name>")
        for name in annotations
        if not _is_qualified(name.lower())
    ]
    size = sum(len(name.encode()) + len(value.encode()) for name, value in annotations.items())
    if size > _MAX_ANNOTATION_BYTES:
        problem = f"Too long: may not be more than {_MAX_ANNOTATION_BYTES} bytes"
        found.append(FieldError("metadata.annotations", "FieldValueTooLong", problem))
    return found
