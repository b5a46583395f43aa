"""The variables that a pod's own spec sets.

kubelet adds them after those of a device plugin's answer, so they win. Those of a CDI spec are added later still.
`envFrom` names no variables, so what it brings in is not seen here.
"""

import msgspec

from aliquot.errors import Refused
from aliquot.kube import PODS, Client
from aliquot.kube.resources import ApiResource
from aliquot.model import Object, Pod


class _Variable(msgspec.Struct, frozen=True):
    name: str


class _Container(msgspec.Struct, frozen=True):
    name: str
    env: list[_Variable] | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    containers: list[_Container] = []
    init_containers: list[_Container] | None = None


class _Pod(Object, frozen=True):
    spec: _Spec = _Spec()


_VARIABLES = ApiResource(PODS.prefix, PODS.plural, _Pod, PODS.namespaced)
"""Pods with the fields that the informer leaves out, so that decoding stays cheap."""


async def own_variables(client: Client, pod: Pod) -> dict[str, frozenset[str]]:
    """The names of the variables, by container. Raises KubeError, or Refused if the pod is gone."""
    found = await client.get(_VARIABLES, pod.metadata.name, pod.metadata.namespace)
    if found.metadata.uid != pod.metadata.uid:
        raise Refused(f"the API server shows another pod {pod.key}")
    containers = [*found.spec.containers, *(found.spec.init_containers or ())]
    return {each.name: frozenset(variable.name for variable in each.env or ()) for each in containers}
