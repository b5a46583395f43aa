"""Answers access, token and self reviews."""

from aliquot.apiserver.objects import Object, dig, text_at
from aliquot.embedded.api.identity import User, Users, user
from aliquot.embedded.api.rights import Action, Rights

_FIELDS = ("verb", "resource", "group", "subresource", "namespace", "name")


def answer(kind: str, review: Object, sender: User, users: Users, rights: Rights) -> Object:
    """The review with its status."""
    match kind:
        case "TokenReview":
            found = users.by_token(text_at(review, "spec", "token"))
            unknown: Object = {"authenticated": False, "error": "the token is not valid"}
            status = {"authenticated": True, "user": found.info()} if found else unknown
        case "SelfSubjectReview":
            status = {"userInfo": sender.info()}
        case "SelfSubjectAccessReview":
            status = _verdict(rights, sender, review)
        case _:
            asked = user(text_at(review, "spec", "user"), dig(review, "spec", "groups") or [])
            status = _verdict(rights, asked, review)
    return {**review, "status": status}


def _verdict(rights: Rights, asked: User, review: Object) -> Object:
    return {"allowed": rights.allow(asked, _action(review.get("spec") or {}))}


def _action(spec: Object) -> Action:
    if path := text_at(spec, "nonResourceAttributes", "path"):
        return Action(text_at(spec, "nonResourceAttributes", "verb"), path=path)
    attributes = {field: text_at(spec, "resourceAttributes", field) for field in _FIELDS}
    return Action(**attributes)
