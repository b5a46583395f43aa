"""The rules of the API on top of the store. HTTP requests, hollow nodes and tests all use it.

Nothing awaits, so every method is atomic. Each raises `StatusError` for what a real API server would refuse.
"""

from collections.abc import Callable
from contextlib import suppress
from copy import copy
from random import Random
from typing import Self

import structlog

from aliquot.apiserver.eventlog import Stored
from aliquot.apiserver.objects import Key, Now, Object, key_of, now, text_at, with_metadata
from aliquot.apiserver.statuses import AlreadyExists, BadRequest, Conflict, Forbidden, NotFound, PolicyRefusal
from aliquot.embedded.api import deletion, ownership
from aliquot.embedded.api.admission import Admission, AdmissionRequest
from aliquot.embedded.api.creation import new_object, readable, refuse_other_uid
from aliquot.embedded.api.deletion import DeleteRequest, Propagation
from aliquot.embedded.api.owning_store import OwningStore
from aliquot.embedded.api.patches import Patch
from aliquot.embedded.api.priorities import prioritized
from aliquot.embedded.api.quotas import refuse_beyond_quota
from aliquot.embedded.api.resources import BY_COLLECTION, NAMESPACES, PODS, WritableResource
from aliquot.embedded.api.updates import STALE, refuse_unconditional, successor

_log = structlog.get_logger()

PERMANENT_NAMESPACES = ("default", "kube-public", "kube-system")


class Registry:
    """Creates, reads, updates and deletes objects by the API's rules."""

    def __init__(self, store: OwningStore, clock: Now = now, random: Random | None = None) -> None:
        self.store = store
        self.clock = clock
        self._random = random or Random()
        self.admit: Callable[[AdmissionRequest], None] = lambda _: None
        """Raises StatusError for a write that a policy refuses. The server's own writes are not checked."""

    def admitting(self, admit: Callable[[AdmissionRequest], None]) -> Self:
        """The same registry for a user's requests."""
        theirs = copy(self)
        theirs.admit = admit
        return theirs

    def get(self, resource: WritableResource, namespace: str, name: str) -> Stored:
        stored = self.store.get(resource.collection, (namespace, name))
        if stored is None:
            raise NotFound(resource.group, resource.plural, name)
        return stored

    def create(self, resource: WritableResource, namespace: str, body: Object, *, dry_run: bool = False) -> Stored:
        obj = readable(resource, body, namespace)
        self._refuse_unknown_namespace(resource, namespace, text_at(obj, "metadata", "name"))
        if resource is PODS:
            obj = prioritized(self.store, obj)
        created = with_metadata(new_object(resource, obj, self.clock(), self._random), managedFields=None)
        self.admit(AdmissionRequest("CREATE", resource, new=created))
        if resource is PODS:
            refuse_beyond_quota(self.store, created)
        if self.store.get(resource.collection, key_of(created)) is not None:
            raise AlreadyExists(resource.group, resource.plural, text_at(created, "metadata", "name"))
        return self._write(resource, created, dry_run)

    def replace(
        self,
        resource: WritableResource,
        namespace: str,
        name: str,
        body: Object,
        *,
        part: str = "",
        dry_run: bool = False,
    ) -> Stored:
        """PUT: the whole object, or with `part="status"` its status."""
        obj = readable(resource, body, namespace)
        if text_at(obj, "metadata", "name") != name:
            raise BadRequest(f"the name of the object does not match the name on the URL ({name})")
        if self.store.get(resource.collection, (namespace, name)) is None and self._may_create(resource, part):
            return self.create(resource, namespace, body, dry_run=dry_run)
        current = self.get(resource, namespace, name)
        refuse_other_uid(resource, current.obj, text_at(obj, "metadata", "uid"))
        refuse_unconditional(resource, obj)
        return self._update(resource, current, obj, part, dry_run)

    def patch(
        self,
        resource: WritableResource,
        namespace: str,
        name: str,
        patch: Patch,
        *,
        part: str = "",
        dry_run: bool = False,
    ) -> Stored:
        current = self.get(resource, namespace, name)
        proposed = patch(current.obj)
        return self._update(resource, current, proposed, part, dry_run)

    def rewrite(
        self,
        resource: WritableResource,
        namespace: str,
        name: str,
        change: Callable[[Object], Object],
        *,
        dry_run: bool = False,
    ) -> Stored:
        """A change by the server itself, which may change what clients may not."""
        current = self.get(resource, namespace, name)
        return self._succeed(resource, current, change(current.obj), dry_run)

    def delete(self, resource: WritableResource, namespace: str, name: str, request: DeleteRequest) -> Stored:
        """Delete an object. Returns its last state, removed or terminating."""
        current = self.get(resource, namespace, name)
        refuse_other_uid(resource, current.obj, request.uid)
        if request.resource_version not in ("", str(current.revision)):
            raise Conflict(resource.group, resource.plural, name, STALE)
        self.admit(AdmissionRequest("DELETE", resource, old=current.obj))
        if resource is NAMESPACES:
            return self._delete_namespace(name, current, request)
        marked = deletion.marked(resource, current.obj, request.grace_seconds, self.clock())
        if request.dry_run:
            return self._succeed(resource, current, marked, dry_run=True)
        if resource.strategy.returned_when_deleted and marked != current.obj and deletion.is_over(marked):
            # watchers see a pod terminate even if it goes at once
            current = self._write(resource, marked, dry_run=False)
            marked = current.obj
        return self._delete_with_dependents(resource, current, marked, request.propagation)

    def _update(
        self,
        resource: WritableResource,
        current: Stored,
        proposed: Object,
        part: str,
        dry_run: bool,
    ) -> Stored:
        new = successor(resource, current.obj, proposed, part)
        self.admit(AdmissionRequest("UPDATE", resource, part, new, current.obj))
        return self._succeed(resource, current, new, dry_run)

    def _may_create(self, resource: WritableResource, part: str) -> bool:
        return resource.strategy.created_by_update and not part

    def _refuse_unknown_namespace(self, resource: WritableResource, namespace: str, name: str) -> None:
        if not resource.namespaced:
            return
        held = self.get(NAMESPACES, "", namespace)
        if "deletionTimestamp" in held.obj["metadata"]:
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise Forbidden(resource.group, resource.plural, name, why)

    def _succeed(self, resource: WritableResource, current: Stored, new: Object, dry_run: bool) -> Stored:
        if deletion.is_over(new) and resource is not NAMESPACES:
            return self._remove(resource, current, new, dry_run)
        if new == current.obj:
            return current
        return self._write(resource, new, dry_run)

    def _write(self, resource: WritableResource, obj: Object, dry_run: bool) -> Stored:
        return self.store.preview(obj) if dry_run else self.store.put(resource.collection, obj)

    def _remove(self, resource: WritableResource, current: Stored, final: Object, dry_run: bool) -> Stored:
        if dry_run:
            return self.store.preview(final)
        removed = self.store.remove(resource.collection, key_of(current.obj))
        self._delete_dependents(text_at(removed.obj, "metadata", "uid"))
        self._end_awaiting_owners(removed.obj)
        self._end_namespace_if_empty(key_of(current.obj)[0])
        return removed

    def _delete_with_dependents(
        self, resource: WritableResource, current: Stored, marked: Object, how: Propagation
    ) -> Stored:
        uid = text_at(current.obj, "metadata", "uid")
        dependents = list(self.store.dependents(uid))
        if how is Propagation.ORPHAN:
            for collection, held in dependents:
                self.rewrite(
                    BY_COLLECTION[collection], *key_of(held.obj), lambda obj: ownership.without_owner(obj, uid)
                )
        if how is not Propagation.FOREGROUND or not dependents:
            return self._succeed(resource, current, marked, dry_run=False)
        awaiting = self._succeed(resource, current, ownership.awaiting_dependents(marked), dry_run=False)
        for collection, held in dependents:
            self._clear_away(collection, key_of(held.obj), how)
        return self.store.get(resource.collection, key_of(current.obj)) or awaiting

    def _delete_dependents(self, uid: str) -> None:
        for collection, held in list(self.store.dependents(uid)):
            others = ownership.owner_uids(held.obj)
            if all(self.store.find(other) is None for other in others):
                self._clear_away(collection, key_of(held.obj))

    def _clear_away(self, collection: str, key: Key, how: Propagation = Propagation.BACKGROUND) -> None:
        """Delete a dependent. If a policy forbids it, the dependent stays and its owner still goes."""
        collecting = self.admitting(Admission.of_controller(self.store, "generic-garbage-collector"))
        try:
            collecting.delete(BY_COLLECTION[collection], *key, DeleteRequest(propagation=how))
        except PolicyRefusal as error:
            _log.warning("cannot delete a dependent", object=key, error=error.message)

    def _end_awaiting_owners(self, gone: Object) -> None:
        for uid in ownership.owner_uids(gone):
            place = self.store.find(uid)
            stored = self.store.get(*place) if place is not None else None
            if place is None or stored is None or not ownership.awaits_dependents(stored.obj):
                continue
            if next(self.store.dependents(uid), None) is None:
                self.rewrite(BY_COLLECTION[place[0]], *place[1], ownership.released)

    def _delete_namespace(self, name: str, current: Stored, request: DeleteRequest) -> Stored:
        if name in PERMANENT_NAMESPACES:
            raise Forbidden("", "namespaces", name, "this namespace may not be deleted")
        ending = self._write(NAMESPACES, deletion.terminating_namespace(current.obj, self.clock()), request.dry_run)
        if request.dry_run:
            return ending
        with suppress(PolicyRefusal):  # it stays Terminating
            self.empty_namespace(name)
        return ending

    def empty_namespace(self, name: str) -> None:
        """Delete the content of a terminating namespace, and then the namespace.

        Raises PolicyRefusal if a policy keeps an object, after deleting all others.
        """
        emptying = self.admitting(Admission.of_controller(self.store, "namespace-controller"))
        refusals = []
        for collection, key in list(self.store.namespaced_keys(name)):
            try:
                if self.store.get(collection, key) is not None:  # it may be gone with its owner
                    emptying.delete(BY_COLLECTION[collection], *key, DeleteRequest())
            except PolicyRefusal as refusal:
                refusals.append(refusal)
        self._end_namespace_if_empty(name)
        if refusals:
            raise refusals[0]

    def _end_namespace_if_empty(self, name: str) -> None:
        held = self.store.get(NAMESPACES.collection, ("", name))
        if held is None or "deletionTimestamp" not in held.obj["metadata"]:
            return
        if next(iter(self.store.namespaced_keys(name)), None) is None:
            self.store.remove(NAMESPACES.collection, ("", name))
