"""The variables that a pod's own spec brings in.

kubelet adds them after those of a device plugin's answer, so they win. Those of a CDI spec are added later still. So
without a CDI device of ours, a container could choose its devices itself by a variable that something on the node
obeys. `envFrom` names a ConfigMap or a Secret, which the agent has no right to read, and only perhaps a prefix of the
variables in it.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

import msgspec

from aliquot.agent.checkpoint import Grant
from aliquot.agent.devices import DeviceSource
from aliquot.agent.handover_store import HandOverStore
from aliquot.errors import Refused
from aliquot.kube import PODS, Client
from aliquot.kube.resources import ApiResource
from aliquot.model import Object, Pod


class _Variable(msgspec.Struct, frozen=True):
    name: str


class _Source(msgspec.Struct, frozen=True):
    prefix: str = ""


class _Container(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    env: list[_Variable] | None = None
    env_from: list[_Source] | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    containers: list[_Container] = []
    init_containers: list[_Container] | None = None


class _Pod(Object, frozen=True):
    spec: _Spec = _Spec()


_VARIABLES = ApiResource(PODS.prefix, PODS.plural, _Pod, PODS.namespaced)
"""Pods with the fields that the informer leaves out, so that decoding stays cheap."""


@dataclass(frozen=True)
class _Own:
    """The names of a container's own variables, and the prefixes of those that `envFrom` brings in."""

    names: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()


class OwnVariables:
    """Refuses containers that could see other cards by a variable of their own."""

    def __init__(self, client: Client, devices: DeviceSource, store: HandOverStore) -> None:
        self._client = client
        self._devices = devices
        self._store = store
        self._checked: set[tuple[str, str, str]] = set()
        """Pod UID, container and resource of grants that passed. A spec never changes its variables."""

    async def refuse(self, grants: Sequence[Grant], pod: Pod) -> None:
        """Raises Refused if one of these containers may not start, and KubeError."""
        new = [grant for grant in grants if _key(grant) not in self._checked]
        obeyed = self._devices.decisive_variables
        naming = [(grant, self._store.variables_naming_cards(grant)) for grant in new]
        answered = [(grant.container, names | obeyed) for grant, names in naming if names or grant.answer]
        own = await _read(self._client, pod) if any(names for _, names in answered) else {}
        for container, names in answered:
            _refuse(f"container {container} of pod {pod.key}", own.get(container, _Own()), names, obeyed)
        self._checked |= set(map(_key, new))

    def forget(self) -> None:
        """Forget pods that the store has forgotten."""
        self._checked = {key for key in self._checked if key[0] in self._store}


def _key(grant: Grant) -> tuple[str, str, str]:
    return grant.pod_uid, grant.container, grant.resource


def _refuse(whose: str, own: _Own, names: Set[str], obeyed: Set[str]) -> None:
    if forged := names & own.names:
        raise Refused(
            f"{whose} sets {_listed(forged)} itself, and without a CDI device of ours that wins over the cards of its "
            "placement: remove it from the pod's spec"
        )
    if open_to := {name for name in obeyed if name.startswith(own.prefixes)}:
        raise Refused(
            f"{whose} takes variables from a ConfigMap or Secret (envFrom), which may set {_listed(open_to)}, and "
            "without a CDI device of ours that wins over the cards of its placement: enable CDI in the container "
            "runtime of the node, name the variables one by one (env), or give envFrom a prefix"
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


async def _read(client: Client, pod: Pod) -> Mapping[str, _Own]:
    """What each container brings in. Raises KubeError, or Refused if the pod is gone."""
    found = await client.get(_VARIABLES, pod.metadata.name, pod.metadata.namespace)
    if found.metadata.uid != pod.metadata.uid:
        raise Refused(f"the API server shows another pod {pod.key}")
    containers = [*found.spec.containers, *(found.spec.init_containers or ())]
    return {
        each.name: _Own(
            frozenset(variable.name for variable in each.env or ()),
            tuple(source.prefix for source in each.env_from or ()),
        )
        for each in containers
    }
