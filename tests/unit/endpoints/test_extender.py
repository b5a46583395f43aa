"""Extender requests, including keys spelled differently than schedulers spell them."""

import msgspec
import pytest

from aliquot.endpoints.extender import BadCall, read_filter, read_preempt
from aliquot.model.bounds import LARGEST_NAMES, LARGEST_POD, MAX_CONTAINERS, MAX_OBJECTS

POD = {"metadata": {"name": "p", "namespace": "default", "uid": "u-1"}}


@pytest.mark.parametrize("metadata", ["metadata", "Metadata", "METADATA"])
@pytest.mark.parametrize("name", ["name", "Name"])
@pytest.mark.parametrize("items", ["items", "Items"])
def test_whole_nodes_are_keyed_by_name(items: str, metadata: str, name: str) -> None:
    nodes = [{metadata: {name: called, "labels": {"name": "x"}}} for called in ("n1", "n2")]
    call = read_filter(msgspec.json.encode({"Pod": POD, "Nodes": {items: nodes}}))
    assert (list(call.names), list(call.nodes or ())) == (["n1", "n2"], ["n1", "n2"])


@pytest.mark.parametrize("uid", ["uid", "UID", "Uid"])
def test_whole_victims_are_read_by_uid(uid: str) -> None:
    victims = {"n1": {"Pods": [{"metadata": {"name": "v", uid: "u-2"}}]}}
    call = read_preempt(msgspec.json.encode({"Pod": POD, "NodeNameToVictims": victims}))
    assert call.victims["n1"].uids == ["u-2"]


def test_many_bytes_without_a_name_are_refused_early() -> None:
    nodes = [{"metadata": {}, "padding": "x" * 2**20} for _ in range(5)]
    with pytest.raises(BadCall, match=r"cannot decode Nodes: too many bytes without metadata\.name"):
        read_filter(msgspec.json.encode({"Pod": POD, "Nodes": {"items": nodes}}))


def test_whole_nodes_need_only_a_name() -> None:
    nodes = [{"metadata": {"name": f"n{number}"}, "padding": "x" * 2**20} for number in range(5)]
    assert len(read_filter(msgspec.json.encode({"Pod": POD, "Nodes": {"items": nodes}})).names) == 5


# -- hostile sizes


def filter_body(pod: str = "", names: str = "[]", **others: str) -> bytes:
    """From pieces of JSON."""
    fields = {"Pod": pod or msgspec.json.encode(POD).decode(), "NodeNames": names, **others}
    return ("{" + ",".join(f'"{name}":{text}' for name, text in fields.items()) + "}").encode()


def pod_of(containers: int, padding: int = 0) -> str:
    metadata, several = msgspec.json.encode(POD["metadata"]).decode(), ",".join(['{"name":"a"}'] * containers)
    return f'{{"metadata":{metadata},"spec":{{"containers":[{several}],"padding":"{"x" * padding}"}}}}'


def pod_with(part: str, key: str, items: int) -> str:
    return msgspec.json.encode({**POD, part: {key: {str(number): "" for number in range(items)}}}).decode()


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        pytest.param(pod_of(1, LARGEST_POD), "Pod has more than 2097152 bytes", id="large"),
        pytest.param(pod_of(4_000_000), "Pod has more than 2097152 bytes", id="of four million containers"),
        pytest.param(pod_of(100_000), "cannot decode Pod: .* has 100000 items", id="of 100,000 containers"),
        pytest.param(
            pod_with("metadata", "annotations", 5000), "cannot decode Pod: .* 5000 items", id="of 5,000 annotations"
        ),
        pytest.param(
            pod_with("spec", "nodeSelector", 5000), "cannot decode Pod: .* 5000 items", id="of 5,000 selectors"
        ),
        pytest.param(
            pod_with("spec", "of later times", 5000), "cannot decode Pod: .* 5000 items", id="of 5,000 unknown fields"
        ),
        pytest.param(pod_of(1).replace("[", "[" * 10**5), "cannot decode the body: maximum recursion", id="deep"),
    ],
)
def test_a_pod_too_large_for_any_api_server_is_refused(pod: str, why: str) -> None:
    with pytest.raises(BadCall, match=why):
        read_filter(filter_body(pod))


def test_a_pod_as_large_as_the_api_server_accepts_is_read() -> None:
    assert len(read_filter(filter_body(pod_of(MAX_CONTAINERS, 1_500_000))).pod.spec.containers) == MAX_CONTAINERS


MANY = MAX_OBJECTS + 1
PADDED = '"%s":{}' % ("x" * LARGEST_POD)
"""Makes any body a large one."""


@pytest.mark.parametrize("spelled", ["Pod", "pod"])
@pytest.mark.parametrize("key", ["NodeNames", "nodenames", "nodeNames"])
def test_a_large_body_may_use_the_spelling_of_any_scheduler_version(spelled: str, key: str) -> None:
    pod = msgspec.json.encode(POD).decode()
    body = f'{{"{spelled}":{pod},"{key}":["n1"],{PADDED}}}'.encode()
    call = read_filter(body)
    assert (call.pod.metadata.name, list(call.names)) == ("p", ["n1"])


@pytest.mark.parametrize(
    ("names", "fields", "why"),
    [
        pytest.param("[" + ",".join(['"a"'] * MANY) + "]", {}, "NodeNames has more than 100000 names", id="names"),
        pytest.param('["' + "a" * LARGEST_NAMES + '"]', {}, "NodeNames has more than 100000 names", id="a long name"),
        pytest.param("null", {"Nodes": '{"items":[' + "{}," * MANY + "{}]}"}, "more than 100000 nodes", id="nodes"),
        pytest.param("null", {"Nodes": '{"items":[' + "0," * MANY + "0]}"}, "cannot decode Nodes", id="no nodes"),
        pytest.param("null", {"Nodes": '{"Items":[' + "{}," * 9 + "{}]," + PADDED + "}"}, "without items", id="odd"),
        pytest.param("null", {"Nodes": "{" + ",".join(f'"{n}":0' for n in range(300_000)) + "}"}, "items", id="keys"),
    ],
)
def test_a_body_with_more_nodes_than_any_cluster_is_refused(names: str, fields: dict[str, str], why: str) -> None:
    with pytest.raises(BadCall, match=why):
        read_filter(filter_body(names=names, **fields))


def preempt_body(key: str, nodes: str) -> bytes:
    return f'{{"Pod":{msgspec.json.encode(POD).decode()},"{key}":{{{nodes}}}}}'.encode()


VICTIM = {"NodeNameToMetaVictims": '{"UID":"u"}', "NodeNameToVictims": '{"metadata":{"uid":"u"}}'}


@pytest.mark.parametrize("key", VICTIM)
@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        pytest.param('"n":{"Pods":[' + "VICTIM," * MANY + "VICTIM]}", "more than 100000 nodes", id="victims"),
        pytest.param(",".join(f'"{n}":{{"Pods":null}}' for n in range(MANY + 1)), "more than 100000", id="nodes"),
        pytest.param('"n":{"Pods":[{}]},' + PADDED, "a victim has no UID", id="without a uid"),
        pytest.param('"n":null,' + PADDED, "cannot decode", id="null"),
    ],
)
def test_more_victims_than_any_cluster_has_pods_are_refused(key: str, nodes: str, why: str) -> None:
    with pytest.raises(BadCall, match=why):
        read_preempt(preempt_body(key, nodes.replace("VICTIM", VICTIM[key])))


@pytest.mark.parametrize("key", VICTIM)
def test_many_victims_are_read(key: str) -> None:
    pod = VICTIM[key].replace('"u"', '"u","pad":"%s"' % ("x" * 1000))
    nodes = ",".join(f'"n{n}":{{"Pods":[{pod}],"NumPDBViolations":{n}}}' for n in range(3000))
    victims = read_preempt(preempt_body(key, nodes)).victims
    assert len(victims) == 3000
    assert (victims["n7"].uids, victims["n7"].pdb_violations) == (["u"], 7)
