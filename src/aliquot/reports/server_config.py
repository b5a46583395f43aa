"""The ConfigMaps of the server's namespace, without what may be secret."""

from collections.abc import Iterable, Mapping
from typing import Any

from aliquot.kube.client import Client
from aliquot.kube.errors import Forbidden
from aliquot.kube.resources import CONFIG_MAPS, ConfigMap
from aliquot.kube.reviews import Action
from aliquot.kube.rights import Right
from aliquot.model.installed_names import SERVER_NAMESPACE
from aliquot.reports.redaction import shown_data

_OF_EVERYSERVER_NAMESPACE = "kube-root-ca.crt"
READ_CONFIG = Right(Action("list", "configmaps", namespace=SERVER_NAMESPACE), "the server's configuration")


async def read_server_config(client: Client) -> list[ConfigMap] | None:
    """None if the caller may not. Raises KubeError."""
    try:
        return (await client.list(CONFIG_MAPS, namespace=SERVER_NAMESPACE)).items
    except Forbidden:
        return None


def server_config(maps: Iterable[ConfigMap]) -> Mapping[str, Any]:
    """The data of each, by name."""
    kept = (found for found in maps if found.metadata.name != _OF_EVERYSERVER_NAMESPACE)
    return {found.metadata.name: shown_data(found.data or {}) for found in kept}
