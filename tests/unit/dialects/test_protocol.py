"""What every dialect has of its base: requests, sample pods, plain numbers, and the cards that are offered."""

from dataclasses import replace

import msgspec
import pytest

from aliquot.dialects import Dialect, cards_of, equal_cards, plain_number, sample, standard_dialects
from aliquot.dialects.table import OURS
from aliquot.errors import BadDemand, BadRecord
from aliquot.model import ContainerRequest, NodeGpus, Part, Pod, Reason
from aliquot.model.bounds import MAX_CARDS
from tests.factories import make_cards, make_gpu, make_node, make_pod

DIALECTS = {kind.name: standard_dialects()[kind.name] for kind in OURS}
NO_NODE = "elastic gpu scheduler get node failed"
SERVED = [
    pytest.param(dialect, resource.name, id=resource.name)
    for dialect in DIALECTS.values()
    for resource in dialect.resources
    if resource.socket
]


def cut_up() -> NodeGpus:
    """A card, and one that is cut into an instance."""
    cards = make_cards(mib=(1024, 1024))
    instance = make_gpu(2, uuid="MIG-1", parent="GPU-n1-1", profile="1g.5gb", mib=512)
    return replace(cards, gpus=(*cards.gpus, instance))


def test_a_request_is_the_pod_s_with_its_priority() -> None:
    pod = make_pod(priority=7)
    asked = ContainerRequest("main", Part(cores=10))
    for dialect in DIALECTS.values():
        request = dialect.request(pod, iter([asked]), together=True)
        assert (request.uid, request.pod, request.dialect) == (pod.metadata.uid, "default/p", dialect.name)
        assert (request.containers, request.together, request.priority) == ((asked,), True, 7)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
def test_a_pod_that_asks_for_nothing_is_told_what_to_ask_for(dialect: Dialect) -> None:
    with pytest.raises(BadDemand, match=f"no container of the pod asks for more than 0 of {dialect.resource}"):
        dialect.request(make_pod(), ())


@pytest.mark.parametrize(("dialect", "resource"), SERVED)
def test_a_card_that_is_cut_into_instances_is_not_offered_and_these_only_where_they_can_be_asked_for(
    dialect: Dialect, resource: str
) -> None:
    offered = {uuid for _, uuid in dialect.device_ids(resource, cut_up())}
    instances = {"MIG-1"} if dialect.name == "aliquot" or resource == "nvidia.com/mig-1g.5gb" else set()
    cards = set() if resource.startswith("nvidia.com/mig-") else {"GPU-n1-0"}
    assert offered == cards | instances


@pytest.mark.parametrize(
    ("count", "mib", "found"),
    [
        pytest.param(2, 0, 0, id="cards of nothing"),
        pytest.param(0, 1, 0, id="no cards"),
        pytest.param(1, 1, 1, id="the least"),
        pytest.param(MAX_CARDS, 2**24, MAX_CARDS, id="the most"),
    ],
)
def test_cards_that_only_kubelet_counts(count: int, mib: int, found: int) -> None:
    cards = equal_cards(make_node(), count, mib)
    assert len(cards.gpus if cards else ()) == found


@pytest.mark.parametrize(("count", "mib"), [(MAX_CARDS + 1, 1), (100_000, 1), (2, 2**24 + 1)])
def test_more_cards_or_memory_than_any_node_has_is_no_record(count: int, mib: int) -> None:
    with pytest.raises(BadRecord, match=rf"status.capacity counts {count} cards of {mib} MiB"):
        equal_cards(make_node(), count, mib)


HUGE = {
    "gpushare": {"aliyun.com/gpu-count": "100000", "aliyun.com/gpu-mem": "8000000"},
    "tencent": {"tencent.com/vcuda-core": "10000000", "tencent.com/vcuda-memory": "8000000"},
    "elastic": {"elasticgpu.io/gpu-core": "10000000", "elasticgpu.io/gpu-memory": "8000000"},
    "nvidia": {"nvidia.com/gpu": "1E"},
}


@pytest.mark.parametrize("name", HUGE)
def test_a_huge_capacity_of_one_dialect_is_refused_unless_another_tells_of_cards(name: str) -> None:
    with pytest.raises(BadRecord, match=r"status\.capacity counts"):
        cards_of(make_node(capacity=HUGE[name]), standard_dialects())
    fine = {"aliyun.com/gpu-count": "2", "aliyun.com/gpu-mem": "30", "tencent.com/vcuda-core": "200"}
    fine |= {"tencent.com/vcuda-memory": "60", "elasticgpu.io/gpu-core": "200"}
    assert len(cards_of(make_node(capacity=fine | HUGE[name]), standard_dialects()).gpus) == 2


@pytest.mark.parametrize("name", ["gpushare", "tencent", "hami", "elastic", "keti", "aliquot", "nvidia"])
@pytest.mark.parametrize("state", ["running", "terminated"])
def test_a_pod_that_runs_has_its_cards_whatever_became_of_the_mark(name: str, state: str) -> None:
    dialect = DIALECTS[name]
    manifest = {**dialect.sample_pod(), "status": {}}
    assert not dialect.handed_over(msgspec.convert(manifest, Pod))
    (container,) = manifest["spec"]["containers"]
    statuses = [{"name": container["name"], "state": {state: {}}}]
    for kind in ("containerStatuses", "initContainerStatuses"):
        assert dialect.handed_over(msgspec.convert({**manifest, "status": {kind: statuses}}, Pod))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        pytest.param("0", 0, id="zero"),
        pytest.param("007", 7, id="leading zeros"),
        pytest.param("999999999", 999999999, id="the largest"),
        pytest.param("1000000000", None, id="absurd"),
        pytest.param("", None, id="empty"),
        pytest.param("-1", None, id="a sign"),
        pytest.param(" 1", None, id="a space"),
        pytest.param("1e3", None, id="an exponent"),
        pytest.param("\u0663", None, id="digits of another script"),
    ],
)
def test_a_plain_number_has_digits_only(text: str, number: int | None) -> None:
    assert plain_number(text) == number


def test_a_sample_pod_has_no_labels_or_annotations_unless_they_are_given() -> None:
    assert sample("a", {"x/y": "1"})["metadata"] == {"name": "a", "namespace": "default"}
    assert sample("a", {"x/y": "1"}, labels={"b": "c"})["metadata"]["labels"] == {"b": "c"}


@pytest.mark.parametrize(
    ("dialect", "reason", "words"),
    [
        pytest.param("gpushare", Reason.NO_GPUS, "The node n1 is not for GPU share, need skip", id="gpushare, no GPU"),
        pytest.param("gpushare", Reason.UNKNOWN_NODE, 'node "n1" not found', id="gpushare, no such node"),
        pytest.param("gpushare", Reason.NO_CARD_FITS, "Insufficient GPU Memory in one device", id="gpushare, no room"),
        pytest.param("gpushare", Reason.TOO_LARGE, "Insufficient GPU Memory in one device", id="gpushare, too large"),
        pytest.param("tencent", Reason.NO_GPUS, "no GPU device", id="tencent, no GPU"),
        pytest.param("tencent", Reason.NO_CARD_FITS, "pod u-1 does not match with this node", id="tencent, no room"),
        pytest.param("tencent", Reason.OVER_QUOTA, "ExceedsGPUQuota", id="tencent, quota"),
        pytest.param("elastic", Reason.NO_GPUS, f"{NO_NODE}: no gpu available on node n1", id="elastic, no GPU"),
        pytest.param(
            "elastic", Reason.NOT_SELLABLE, f"{NO_NODE}: no gpu available on node n1", id="elastic, none allocatable"
        ),
        pytest.param("elastic", Reason.TOO_LARGE, "no enough resource to allocate", id="elastic, too large"),
        pytest.param(
            "elastic",
            Reason.UNKNOWN_NODE,
            f'{NO_NODE}: nodes "n1" not found',
            id="elastic, no such node",
        ),
        pytest.param("nvidia", Reason.NO_GPUS, Reason.NO_GPUS.value, id="an original that told nobody why"),
        pytest.param("gpushare", Reason.WRONG_MODEL, Reason.WRONG_MODEL.value, id="what the original does not know"),
    ],
)
def test_a_refusal_can_be_worded_exactly_as_the_original_words_it(dialect: str, reason: Reason, words: str) -> None:
    assert DIALECTS[dialect].exact_words(reason, "n1", "u-1") == words


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@pytest.mark.parametrize("reason", list(Reason))
def test_words_name_neither_node_nor_pod_unless_they_are_to_be_exact(dialect: Dialect, reason: Reason) -> None:
    assert "{" not in dialect.words(reason)
    dialect.exact_words(reason, "n1", "u-1")
