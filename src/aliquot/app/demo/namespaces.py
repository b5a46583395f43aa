"""Creates the namespaces that the demo needs."""

from contextlib import suppress

from aliquot.kube import AlreadyExists, Client
from aliquot.kube.resources import ApiResource
from aliquot.model import Object

_NAMESPACES = ApiResource("api/v1", "namespaces", Object, namespaced=False)


async def ensure(client: Client, name: str) -> None:
    with suppress(AlreadyExists):
        await client.create(_NAMESPACES, {"metadata": {"name": name}})
