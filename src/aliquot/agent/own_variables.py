"""The variables that a pod's own spec brings in.

kubelet adds them after those of a device plugin's answer, so they win. Those of a CDI spec are added later still. So
without a CDI device of ours, a container could choose its devices itself by a variable that something on the node
obeys, or get more of the driver than we give. `envFrom` names a ConfigMap or a Secret, which the agent has no right to
read, and only perhaps a prefix of the variables in it.
"""

from collections.abc import Iterable, Mapping, Sequence
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
    value: str | None = None
    """None if the value comes from elsewhere."""


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
    """A container's own variables, and the prefixes of those that `envFrom` brings in."""

    variables: tuple[_Variable, ...] = ()
    prefixes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Rules:
    """What a container's own variables must not do."""

    container: str
    forbidden: frozenset[str]
    """Variables that it must not set at all."""
    obeyed: frozenset[str]
    """Those of them that nobody may hide from us, either."""
    limits: Mapping[str, str]
    """Variables that it may set to a part of this list."""


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
        rules = [each for grant in new if (each := self._rules(grant)) is not None]
        own = await _read(self._client, pod) if rules else {}
        for each in rules:
            _refuse(f"container {each.container} of pod {pod.key}", own.get(each.container, _Own()), each)
        self._checked |= set(map(_key, new))

    def _rules(self, grant: Grant) -> _Rules | None:
        """None if no variable matters: a CDI device of ours brings the cards, or nobody obeys any. What another plugin
        gave besides cards is its business."""
        names, obeyed = self._store.variables_naming_cards(grant), self._devices.decisive_variables
        if not (names or (grant.answer and obeyed)):
            return None
        answered = grant.edits.environment if grant.answer else {}
        limits = {name: answered[name] for name in self._devices.limited_variables & answered.keys()}
        return _Rules(grant.container, names | obeyed, obeyed | limits.keys(), limits)

    def forget(self) -> None:
        """Forget pods that the store has forgotten."""
        self._checked = {key for key in self._checked if key[0] in self._store}


def _key(grant: Grant) -> tuple[str, str, str]:
    return grant.pod_uid, grant.container, grant.resource


def _refuse(whose: str, own: _Own, rules: _Rules) -> None:
    if forged := rules.forbidden & {variable.name for variable in own.variables}:
        raise Refused(
            f"{whose} sets {_listed(forged)} itself, and without a CDI device of ours that wins over the cards of its "
            "placement: remove it from the pod's spec"
        )
    for name, limit in rules.limits.items():
        if any(variable.name == name and not _is_part(variable.value, limit) for variable in own.variables):
            raise Refused(
                f"{whose} sets {name} itself to something else than a part of {limit}, and without a CDI device of "
                "ours that widens what it gets: remove it from the pod's spec, or enable CDI in the container runtime "
                "of the node"
            )
    if open_to := {name for name in rules.obeyed if name.startswith(own.prefixes)}:
        raise Refused(
            f"{whose} takes variables from a ConfigMap or Secret (envFrom), which may set {_listed(open_to)}, and "
            "without a CDI device of ours that wins over the cards of its placement: enable CDI in the container "
            "runtime of the node, name the variables one by one (env), or give envFrom a prefix"
        )


def _is_part(value: str | None, limit: str) -> bool:
    return value is not None and {word.strip() for word in value.split(",")} <= set(limit.split(","))


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
            tuple(each.env or ()),
            tuple(source.prefix for source in each.env_from or ()),
        )
        for each in containers
    }
