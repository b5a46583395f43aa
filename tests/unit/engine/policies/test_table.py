"""Policies that other packages bring."""

from pathlib import Path

import pytest

from aliquot.engine import GpuPolicy
from aliquot.engine.policies import PolicyTable
from aliquot.engine.policies.binpack import BinpackCards
from aliquot.errors import BadConfig

GROUP = "aliquot.gpu_policies"
GOOD = """
from aliquot.engine import GpuPolicy

class Last(GpuPolicy):
    name = "last"

    def rank(self, view):
        return -view.free_mib

class Twin(Last):
    name = "binpack"

class TwoWords(Last):
    name = "a,b"

class Half(GpuPolicy):
    name = "half"

nothing = 3
"""


def table() -> PolicyTable[GpuPolicy]:
    return PolicyTable(GpuPolicy, (BinpackCards,), GROUP)  # type: ignore[type-abstract]


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, *targets: str) -> None:
    """A package with entry points, as pip leaves it behind."""
    (folder / "somebodys_policies.py").write_text(GOOD)
    installed = folder / "somebodys-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys\nVersion: 1.0\n")
    lines = [f"entry{place} = {target}" for place, target in enumerate(targets)]
    (installed / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]))
    monkeypatch.syspath_prepend(str(folder))


def test_a_policy_of_another_package_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "somebodys_policies:Last")
    assert list(table()) == ["binpack", "last"]
    assert table()["last"].name == "last"
    assert len(table()) == 2


@pytest.mark.parametrize(
    ("target", "why"),
    [
        pytest.param("somebodys_policies:Missing", "cannot be loaded", id="missing"),
        pytest.param("no_such_module_anywhere:Last", "cannot be loaded", id="no-module"),
        pytest.param("somebodys_policies:Half", "cannot be loaded", id="abstract"),
        pytest.param("somebodys_policies:nothing", "is not a subclass of GpuPolicy", id="no-policy"),
        pytest.param("somebodys_policies:Twin", "policy binpack already exists", id="name-taken"),
        pytest.param("somebodys_policies:TwoWords", "'a,b' is not a valid policy name", id="comma-in-name"),
    ],
)
def test_one_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, why: str
) -> None:
    install(tmp_path, monkeypatch, target)
    with pytest.raises(BadConfig, match=why) as refused:
        len(table())
    assert f"entry0 = {target}" in str(refused.value)


def test_two_of_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, "somebodys_policies:Last", "somebodys_policies:Last")
    with pytest.raises(BadConfig, match="policy last already exists"):
        len(table())
