"""What is written but not entered in its table would never run: each table has everything of its package."""

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from aliquot import dialects, endpoints, faults
from aliquot.app.server.endpoints import _ENDPOINTS
from aliquot.config.sections.endpoints import EndpointsSection
from aliquot.dialects import standard_dialects
from aliquot.dialects.protocol import Dialect
from aliquot.dialects.table import OURS
from aliquot.endpoints import native
from aliquot.engine import policies
from aliquot.engine.policies.table import GPU_POLICIES, NODE_POLICIES
from aliquot.model import Reason

ROOT = Path(__file__).parents[2]
OWN_WORDS = {
    "gpushare": {"NOT_SERVED", "WRONG_POOL", "NOT_IN_QUOTA", "OVER_QUOTA", "WRONG_MODEL", "WRONG_CARD", "WRONG_MODE"}
    | {"NOT_PROMISED", "NO_TOPOLOGY", "SEARCH_LIMIT"},
    "tencent": {"UNKNOWN_NODE", "NOT_SERVED", "WRONG_MODEL", "WRONG_CARD", "WRONG_MODE", "NO_TOPOLOGY", "SEARCH_LIMIT"}
    | {"NOT_PROMISED"},
    "elastic": {"NOT_SERVED", "WRONG_POOL", "NOT_IN_QUOTA", "OVER_QUOTA", "WRONG_MODEL", "WRONG_CARD", "WRONG_MODE"}
    | {"NOT_PROMISED", "NO_TOPOLOGY", "SEARCH_LIMIT"},
    "hami": {"UNKNOWN_NODE", "NO_GPUS", "NOT_SERVED", "WRONG_POOL", "NOT_PROMISED", "SEARCH_LIMIT"},
}
"""The reasons for which a dialect says our text, because its original has no such refusal."""


def modules_of(package: ModuleType) -> Iterator[ModuleType]:
    for found in pkgutil.iter_modules(package.__path__):
        yield importlib.import_module(f"{package.__name__}.{found.name}")


def classes_in(package: ModuleType, *having: str) -> set[type]:
    """The classes that a package defines, with these attributes of their own."""
    return {
        kind
        for module in modules_of(package)
        for kind in vars(module).values()
        if isinstance(kind, type) and kind.__module__ == module.__name__ and all(name in vars(kind) for name in having)
    }


def test_every_dialect_is_in_the_table() -> None:
    written = {kind for kind in classes_in(dialects, "name") if issubclass(kind, Dialect) and kind is not Dialect}
    assert written == set(OURS)


def test_every_policy_is_in_a_table() -> None:
    entered = {type(policy) for table in (GPU_POLICIES, NODE_POLICIES) for policy in table.values()}
    assert classes_in(policies, "name") <= entered


def test_every_endpoint_can_be_configured_and_is_opened() -> None:
    assert set(_ENDPOINTS) == set(EndpointsSection.__struct_fields__)
    written = {vars(kind)["name"] for kind in classes_in(endpoints, "name", "routes")}
    assert written | {native.NAME} == set(_ENDPOINTS)


@pytest.mark.parametrize("dialect", OWN_WORDS)
def test_every_dialect_with_words_of_its_own_decides_on_every_reason(dialect: str) -> None:
    """A new reason must not take an original's word from a refusal by accident."""
    words = {reason.name for reason in Reason if standard_dialects()[dialect].words(reason) == reason.value}
    assert words == OWN_WORDS[dialect]


def test_contributors_are_told_of_every_fault_point() -> None:
    told = (ROOT / "CONTRIBUTING.md").read_text()
    assert all(f"`{point}`" in told for point in faults.POINTS)
