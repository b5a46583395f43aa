"""What a scheduler sends, where it is spelled in another way than schedulers do."""

import msgspec
import pytest

from aliquot.doors.extender import BadCall, read_filter, read_preempt

POD = {"metadata": {"name": "p", "namespace": "default", "uid": "u-1"}}


@pytest.mark.parametrize("metadata", ["metadata", "Metadata", "METADATA"])
@pytest.mark.parametrize("name", ["name", "Name"])
@pytest.mark.parametrize("items", ["items", "Items"])
def test_whole_nodes_are_found_by_their_names(items: str, metadata: str, name: str) -> None:
    nodes = [{metadata: {name: called, "labels": {"name": "x"}}} for called in ("n1", "n2")]
    call = read_filter(msgspec.json.encode({"Pod": POD, "Nodes": {items: nodes}}))
    assert (list(call.names), list(call.nodes or ())) == (["n1", "n2"], ["n1", "n2"])


@pytest.mark.parametrize("uid", ["uid", "UID", "Uid"])
def test_whole_victims_are_found_by_their_uids(uid: str) -> None:
    victims = {"n1": {"Pods": [{"metadata": {"name": "v", uid: "u-2"}}]}}
    call = read_preempt(msgspec.json.encode({"Pod": POD, "NodeNameToVictims": victims}))
    assert call.victims["n1"].uids == ["u-2"]


def test_much_that_has_no_name_is_refused_before_it_takes_long() -> None:
    nodes = [{"metadata": {}, "padding": "x" * 2**20} for _ in range(5)]
    with pytest.raises(BadCall, match="Nodes cannot be read: too much without a name"):
        read_filter(msgspec.json.encode({"Pod": POD, "Nodes": {"items": nodes}}))


def test_whole_nodes_need_nothing_but_a_name() -> None:
    nodes = [{"metadata": {"name": f"n{number}"}, "padding": "x" * 2**20} for number in range(5)]
    assert len(read_filter(msgspec.json.encode({"Pod": POD, "Nodes": {"items": nodes}})).names) == 5


def test_a_pod_that_no_api_server_would_take_is_read_as_schedulers_spell_it() -> None:
    pod = {"padding": "x" * 2**22, **POD}
    assert read_filter(msgspec.json.encode({"Pod": pod, "NodeNames": []})).pod.metadata.name == "p"
