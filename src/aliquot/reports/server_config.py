"""The ConfigMaps of the server's namespace, without what may be secret."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from aliquot.kube.client import Client
from aliquot.kube.errors import Forbidden
from aliquot.kube.resources import CONFIG_MAPS, ConfigMap
from aliquot.kube.reviews import Action
from aliquot.kube.rights import Right
from aliquot.model.installed_names import SERVER_NAMESPACE
from aliquot.reports.scheduler_config import without_secrets

_OF_EVERYSERVER_NAMESPACE = "kube-root-ca.crt"
_SECRET_TEXT = re.compile(r"PRIVATE KEY|(password|secret|token)\s*=", re.IGNORECASE)
_REMOVED = "(removed)"
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


def shown_data(data: Mapping[str, str]) -> Any:
    """What a ConfigMap has, without private keys, tokens and passwords, also within a text that is YAML."""
    return without_secrets({key: _shown(text) for key, text in data.items()})


def _shown(text: str) -> Any:
    """A text with a structure is shown as that structure. One that only looks like it may have anything."""
    if _SECRET_TEXT.search(text):
        return _REMOVED
    if ":" not in text:
        return text
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError):
        return _REMOVED
    return document if isinstance(document, Mapping | list) else text
