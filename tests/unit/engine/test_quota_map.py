"""Reading the quota map: what is wrong is named, and a bad edit loses nothing."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.engine.quotas.quota_map import Measure, NamespaceQuota, Quotas, read_quotas
from aliquot.errors import BadConfig

GOOD = '{"foo": {"quota": {"M40": 8}, "pool": ["public"]}}'


NAMES = [str(number) for number in range(257)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(GOOD, {"foo": ({"M40": 8}, {}, {}, {"public"})}, id="as gpu-admission's guide has it"),
        pytest.param(
            '{"default":{"pool":["public"],"quota":{"M40":4,"P100":4}},"B":{"pool":["wx"],"quota":{"M40":8,"P100":2}}}',
            {"default": ({"M40": 4, "P100": 4}, {}, {}, {"public"}), "B": ({"M40": 8, "P100": 2}, {}, {}, {"wx"})},
            id="several namespaces",
        ),
        pytest.param("{}", {}, id="nobody"),
        pytest.param(
            '{"a": {"quota": null, "pool": null}}', {"a": ({}, {}, {}, set())}, id="null is the same as left out"
        ),
        pytest.param(
            '{"a": {"memory": {"M40": "640Gi", "T4": 1024, "P4": "0"}, "cores": {"M40": 800}}}',
            {"a": ({}, {"M40": 655360, "T4": 1024, "P4": 0}, {"M40": 800}, set())},
            id="memory as a quantity or in MiB, and cores",
        ),
    ],
)
def test_a_map_is_read(text: str, expected: dict[str, Any]) -> None:
    assert read_quotas(text) == {
        namespace: NamespaceQuota(
            {Measure.CARDS: cards, Measure.MEMORY: memory, Measure.CORES: cores}, frozenset(pools)
        )
        for namespace, (cards, memory, cores, pools) in expected.items()
    }


@pytest.mark.parametrize(
    ("text", "named"),
    [
        pytest.param("", ["gpu_quota", "JSON"], id="empty"),
        pytest.param("{", ["gpu_quota", "JSON"], id="half"),
        pytest.param("[" * 100_000, ["gpu_quota"], id="deep"),
        pytest.param("[]", ["gpu_quota", "[]", "object"], id="a list"),
        pytest.param("null", ["gpu_quota", "None"], id="null"),
        pytest.param('{"a": 3}', ["'a'", "3"], id="a namespace that is a number"),
        pytest.param('{"a": {}, "a": {}}', ["'a'", "twice"], id="a namespace twice"),
        pytest.param('{"": {}}', ["empty"], id="no namespace"),
        pytest.param('{"a": {"quotas": {"M40": 1}}}', ["'a'", "'quotas'", "quota"], id="an unknown field"),
        pytest.param('{"a": {"quota": {"M40": -1}}}', ["'a'", "quota", "'M40'", "-1"], id="negative"),
        pytest.param('{"a": {"quota": {"M40": 1.5}}}', ["'a'", "quota", "'M40'", "1.5"], id="not whole"),
        pytest.param('{"a": {"quota": {"M40": "8"}}}', ["'a'", "quota", "'M40'", "'8'"], id="a text"),
        pytest.param('{"a": {"quota": {"M40": true}}}', ["'a'", "quota", "True"], id="a truth"),
        pytest.param('{"a": {"quota": {"M40": NaN}}}', ["NaN"], id="no number"),
        pytest.param('{"a": {"quota": {"M40": 1' + "0" * 50 + "}}}", ["'a'", "quota"], id="absurd"),
        pytest.param('{"a": {"quota": {"M40": 1' + "0" * 5000 + "}}}", ["gpu_quota"], id="beyond all digits"),
        pytest.param('{"a": {"quota": {"M40": 1, "M40": 2}}}', ["'a'", "quota", "'M40'", "twice"], id="a model twice"),
        pytest.param('{"a": {"memory": {"M40": "12Xi"}}}', ["'a'", "memory", "'M40'", "12Xi"], id="no quantity"),
        pytest.param('{"a": {"memory": {"M40": "-1Gi"}}}', ["'a'", "memory", "negative"], id="negative memory"),
        pytest.param('{"a": {"memory": {"M40": "640"}}}', ["'a'", "memory", "640Gi"], id="bytes where MiB were meant"),
        pytest.param('{"a": {"cores": {"M40": "80%"}}}', ["'a'", "cores", "80%"], id="cores as text"),
        pytest.param('{"a": {"pool": "public"}}', ["'a'", "pool", "'public'"], id="one pool without a list"),
        pytest.param('{"a": {"pool": [1]}}', ["'a'", "pool"], id="a pool that is a number"),
        pytest.param('{"a": {"pool": ["x", "x"]}}', ["'a'", "pool", "twice"], id="a pool twice"),
        pytest.param(json.dumps({"a": {"pool": NAMES}}), ["'a'", "pool", "257", "256"], id="257 pools"),
        pytest.param(json.dumps({"a": {"quota": dict.fromkeys(NAMES, 1)}}), ["'a'", "257", "256"], id="257 models"),
        pytest.param(json.dumps({key: {} for key in range(50_001)}), ["gpu_quota", "50000"], id="50,001 namespaces"),
        pytest.param(" " * 2**20 + "{}", ["gpu_quota", "1048576 bytes"], id="more bytes than a ConfigMap has"),
    ],
)
def test_what_is_wrong_with_a_map_is_named(text: str, named: list[str]) -> None:
    with pytest.raises(BadConfig) as caught:
        read_quotas(text)
    assert [word for word in named if word not in str(caught.value)] == []


def test_a_bad_map_leaves_the_last_good_one_in_force_and_says_so() -> None:
    quotas = Quotas()
    quotas.read(GOOD)
    before = quotas.entries
    quotas.read('{"foo": {"quota": {"M40": -8}}}')
    assert quotas.entries == before
    assert "'foo'" in quotas.trouble
    assert "the last valid quotas stay in force" in quotas.trouble


def test_a_bad_first_map_blocks_nobody() -> None:
    quotas = Quotas()
    quotas.read("nonsense")
    assert quotas.entries == {}
    assert "no quota is in force" in quotas.trouble


def test_a_good_map_ends_the_trouble() -> None:
    quotas = Quotas()
    quotas.read("nonsense")
    quotas.read(GOOD)
    assert (list(quotas.entries), quotas.trouble) == (["foo"], "")


def test_no_map_means_no_quota() -> None:
    quotas = Quotas()
    quotas.read(GOOD)
    quotas.read(None)
    assert (quotas.entries, quotas.trouble) == ({}, "")


@given(st.binary(max_size=200))
def test_random_bytes_are_read_or_refused_by_our_own_error(raw: bytes) -> None:
    _read_or_refuse(raw)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("a", "quota", "pool", "memory", "cores", "M40", "")), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_read_or_refused_by_our_own_error(document: Any) -> None:
    _read_or_refuse(json.dumps(document))


def _read_or_refuse(text: str | bytes) -> None:
    try:
        read = read_quotas(text)
    except BadConfig:
        return
    for entry in read.values():
        assert all(limit >= 0 for limits in entry.limits.values() for limit in limits.values())
