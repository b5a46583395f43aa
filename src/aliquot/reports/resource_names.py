"""Resources that no node has, and what the user may have meant."""

from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches
from itertools import islice

from aliquot.dialects import Dialect, Dialects
from aliquot.model import Node, Pod

_ALIKE = 0.7
"""`gpu-memory` and `gpu-mem` are, `gpu` and `fpga` are not."""


_MAX_TRIED = 16
"""Strange names of one pod that are compared with ours. Each takes a millisecond, and a hostile pod has 20,000."""


def offered_resources(nodes: Iterable[Node]) -> set[str]:
    """The extended resources of all nodes. A resource whose plugin is gone is still in the capacity."""
    return {name for node in nodes for name in node.status.capacity or () if "/" in name}


def asked_resources(pod: Pod, dialect: Dialect) -> set[str]:
    """The resources of a dialect that a pod asks for and that a node has to offer."""
    named = {name for container, _ in pod.containers() for name in container.requests}
    return {resource.name for resource in dialect.resources if resource.on_nodes and resource.name in named}


def unknown_resources(pod: Pod, dialects: Dialects, offered: Collection[str]) -> list[str]:
    """The resources in a pod's limits that no node has and no dialect knows, if they look like one of ours: a pod may
    also wait for the device of another vendor."""
    named = (name for container, _ in pod.containers() for name in container.requests if "/" in name)
    strange = (name for name in dict.fromkeys(named) if name not in offered and not _is_known(name, dialects))
    prefixes = {dialect.prefix for dialect in dialects.values()}
    few = islice(strange, _MAX_TRIED)
    return [name for name in few if name.partition("/")[0] in prefixes or _close(name, _names(dialects))]


def no_such_resource(pod: Pod, dialects: Dialects, offered: Collection[str]) -> str:
    """That no node has a resource that a pod asks for, and what to write instead; "" if there is none of these."""
    unknown = unknown_resources(pod, dialects, offered)
    if not unknown:
        return ""
    hint = advice(unknown[0], dialects, offered)
    return f"no node has the resource {unknown[0]}" + (f"; {hint}" if hint else "")


def advice(name: str, dialects: Dialects, offered: Collection[str]) -> str:
    """What to write instead of an unknown resource; "" if nothing is near. Resources that a node has come first."""
    if any(name in dialect.size_keys for dialect in dialects.values()):
        return "it is an annotation of the pod, not a resource"
    ours = set(_names(dialects))
    near = _close(name, sorted(ours & set(offered))) or _close(name, sorted(ours | set(offered)))
    return f"did you mean {near}?" if near else ""


def _is_known(name: str, dialects: Dialects) -> bool:
    return any(dialect.guards(name) or name in dialect.resource_names for dialect in dialects.values())


def _names(dialects: Dialects) -> Iterator[str]:
    return (resource.name for dialect in dialects.values() for resource in dialect.resources)


def _close(name: str, known: Iterable[str]) -> str:
    """The nearest name. A name with the same prefix is compared without it, so that long prefixes do not make
    everything alike."""
    prefix, _, own = name.partition("/")
    names = list(known)
    same = {each.partition("/")[2]: each for each in names if each.partition("/")[0] == prefix}
    if near := get_close_matches(own, list(same), n=1, cutoff=_ALIKE - 0.2):
        return same[near[0]]
    found = get_close_matches(name, names, n=1, cutoff=_ALIKE + 0.15)
    return found[0] if found else ""
