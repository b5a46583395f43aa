"""An API server with users of the test's own making, and kubeconfigs for them."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from aliquot.embedded.api import kubeconfig
from tests.fakes import Embedded, ScriptedApi


@pytest.fixture
def embedded() -> Embedded:
    return Embedded()


@pytest.fixture
async def scripted(embedded: Embedded) -> AsyncIterator[ScriptedApi]:
    async with ScriptedApi(embedded) as running:
        yield running


@pytest.fixture
def admin(scripted: ScriptedApi, tmp_path: Path) -> str:
    """The kubeconfig of somebody who may do everything."""
    path = tmp_path / "admin"
    kubeconfig.write(scripted.url, path)
    return str(path)


@pytest.fixture
def user(embedded: Embedded, scripted: ScriptedApi, tmp_path: Path) -> Callable[[Sequence[Mapping[str, Any]]], str]:
    """The kubeconfig of somebody with these rules."""

    def make(rules: Sequence[Mapping[str, Any]]) -> str:
        embedded.cluster.users.add("somebody", token="secret", rules=list(rules))
        path = tmp_path / "somebody"
        kubeconfig.write(scripted.url, path, "secret")
        return str(path)

    return make
