"""The table of dialects: ours, those that others bring, and their prefixes."""

import copy
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from aliquot.dialects import Dialect, demand_of, make_dialects, standard_dialects
from aliquot.dialects.table import OURS
from aliquot.errors import BadConfig
from aliquot.model import Host, Pod

OUR_DIALECTS = [standard_dialects()[kind.name] for kind in OURS]
ROOT = Path(__file__).parents[3]
Bring = Callable[[str], None]

WHOLE = """
from aliquot.dialects.gpushare import GpuShare
class Theirs(GpuShare):
    name = "theirs"
    standard_prefix = "theirs.example"
"""
INCOMPLETE = """
from aliquot.dialects import Dialect
class Theirs(Dialect):
    standard_prefix = "theirs.example"
"""


@pytest.fixture
def bring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Install a package that brings dialects, as pip would leave it."""

    def install(source: str, *entries: str) -> None:
        name = f"theirs_{tmp_path.name.replace('-', '_')}"
        (tmp_path / f"{name}.py").write_text(source)
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"{entry} = {name}:Theirs" for entry in entries or ("theirs",)]
        (info / "entry_points.txt").write_text("\n".join(["[aliquot.dialects]", *lines, ""]))
        monkeypatch.syspath_prepend(str(tmp_path))

    return install


def test_a_dialect_of_another_package_is_found(bring: Bring) -> None:
    bring(WHOLE)
    assert make_dialects()["theirs"].resource == "theirs.example/gpu-mem"
    assert make_dialects({"theirs": "other.example"})["theirs"].resource == "other.example/gpu-mem"
    with pytest.raises(BadConfig, match="gpushare and theirs would both have the resource aliyun"):
        make_dialects({"theirs": "aliyun.com"})


@pytest.mark.parametrize(
    ("source", "text"),
    [
        pytest.param("1 / 0", "cannot be loaded: division by zero", id="one that cannot be imported"),
        pytest.param("Theirs = 3", "is not a subclass of Dialect", id="no class"),
        pytest.param("class Theirs: pass", "is not a subclass of Dialect", id="a class of something else"),
        pytest.param(
            INCOMPLETE,
            "does not define annotations, demand, device_ids, name, placement_keys, read_back, resources, sample_pod",
            id="one that is not finished",
        ),
        pytest.param(WHOLE.replace('"theirs"', '"gpushare"'), "gpushare already exists", id="a name that is ours"),
    ],
)
def test_a_dialect_that_cannot_be_used_is_named_with_its_package(bring: Bring, source: str, text: str) -> None:
    bring(source)
    with pytest.raises(BadConfig, match=f"entry point theirs_.*:Theirs.*{text}"):
        make_dialects()


def test_two_dialects_of_one_name_are_refused(bring: Callable[..., None]) -> None:
    bring(WHOLE, "one", "two")
    with pytest.raises(BadConfig, match="dialect theirs already exists"):
        make_dialects()


def test_a_prefix_for_a_dialect_that_is_not_there_is_refused() -> None:
    with pytest.raises(BadConfig, match="unknown dialect nobody; valid dialects are aliquot, gpushare"):
        make_dialects({"nobody": "x.example"})


@pytest.mark.parametrize(
    "prefix", ["a/b", "a b", "\u00e4.example", "x.example/", ".", "-", "a..b", "a-.b", "-a", "A.example", "x" * 254]
)
def test_a_prefix_that_makes_no_resource_name_is_refused(prefix: str) -> None:
    with pytest.raises(BadConfig, match="prefix of dialect gpushare"):
        make_dialects({"gpushare": prefix})


def test_the_longest_prefix_is_taken() -> None:
    assert make_dialects({"gpushare": "x" * 253})["gpushare"].prefix == "x" * 253


@pytest.mark.parametrize(
    ("prefixes", "text"),
    [
        pytest.param(
            {"aliquot": "nvidia.com"}, "aliquot and nvidia would both have the resource nvidia.com/gpu", id="another's"
        ),
        pytest.param({"nvidia": "x.example", "hami": "x.example"}, "nvidia and hami .* x.example/gpu", id="a new one"),
    ],
)
def test_a_prefix_that_gives_two_dialects_one_resource_is_refused(prefixes: dict[str, str], text: str) -> None:
    with pytest.raises(BadConfig, match=text):
        make_dialects(prefixes)


def test_dialects_may_share_a_prefix_but_no_resource() -> None:
    assert make_dialects({"gpushare": "x.example", "tencent": "x.example", "hami": "y.example"})


@pytest.mark.parametrize("dialect", OUR_DIALECTS, ids=lambda dialect: dialect.name)
def test_every_dialect_declares_itself(dialect: Dialect) -> None:
    assert dialect.resources
    assert dialect.resource == dialect.resources[0].name
    assert all(resource.name and resource.unit for resource in dialect.resources)
    assert standard_dialects()[dialect.name] is dialect
    assert all(map(dialect.guards, dialect.resource_names)), "who asks in a dialect is found by what it guards"


def test_no_two_resources_use_one_socket() -> None:
    resources = [resource for dialect in OUR_DIALECTS for resource in dialect.resources]
    served = {(resource.name, resource.socket) for resource in resources if resource.socket}
    assert len({socket for _, socket in served}) == len(served)


@pytest.mark.parametrize("dialect", OUR_DIALECTS, ids=lambda dialect: dialect.name)
def test_every_dialect_is_in_the_overview_and_has_a_page_that_shows_its_example(dialect: Dialect) -> None:
    overview = (ROOT / "docs" / "dialects" / "README.md").read_text()
    assert f"[{dialect.name}]({dialect.name}.md)" in overview
    assert f"`{dialect.resource}`" in overview
    example = (ROOT / "examples" / f"{dialect.name}.yaml").read_text()
    assert example in (ROOT / "docs" / "dialects" / f"{dialect.name}.md").read_text()


@pytest.mark.parametrize("dialect", OUR_DIALECTS, ids=lambda dialect: dialect.name)
def test_a_demand_says_what_the_pod_takes_of_cpu_and_memory(dialect: Dialect) -> None:
    manifest = copy.deepcopy(dialect.sample_pod())
    manifest["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1500m", "memory": "3Gi"}
    demand = demand_of(msgspec.convert(manifest, Pod), standard_dialects())
    assert demand is not None
    assert (demand.dialect.name, demand.request.host) == (dialect.name, Host(1500, 3072))
