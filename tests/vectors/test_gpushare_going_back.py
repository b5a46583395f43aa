"""What docs/coming-from/gpushare.md says of pods that we placed, when the original extender counts them again."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot.dialects import standard_dialects
from aliquot.dialects.gpushare import DEV, IDX, POD
from aliquot.model import Placement, Pod, cut
from tests.factories import GPU_COUNT, GPU_MEM, container_manifest, make_cards, pod_manifest

pytestmark = pytest.mark.vectors

GPUSHARE = standard_dialects()["gpushare"]
CARDS = make_cards()
UNITS = CARDS.units(CARDS.gpus[0])
PAGE = (Path(__file__).parents[2] / "docs" / "coming-from" / "gpushare.md").read_text()


def placed(name: str, limits: dict[str, str], *indexes: int, **labels: str) -> dict[str, Any]:
    """A manifest with the annotations that a bind of ours writes."""
    container = container_manifest("main", None, resources={"limits": limits})
    manifest = pod_manifest(name, containers=[container], metadata={"labels": labels})
    pod = msgspec.convert(manifest, Pod)
    request = GPUSHARE.demand(pod)
    (asked,) = request.containers
    slices = tuple(cut(asked.part, CARDS.by_index[index], CARDS.unit_mib) for index in indexes)
    placement = Placement(CARDS.node, "gpushare", {"main": slices})
    manifest["metadata"]["annotations"] = dict(GPUSHARE.annotations(pod, request, placement, CARDS, 1))
    return manifest


WHOLE = placed("whole", {GPU_COUNT: "1"}, 1)
PART = placed("part", {GPU_MEM: "3"}, 0)
TWO_CARDS = placed("two-cards", {GPU_MEM: "8"}, 0, 1, **{GPU_COUNT: "2"})


class Original:
    """How the original's extender counts: at its start by the annotation of the whole pod, on the card of an index that
    is one number; later only pods that ask for memory in their limits."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self._pods = {pod["metadata"]["name"]: pod for pod in pods if _amount(pod) > 0 and _index(pod) >= 0}

    def used(self, index: int) -> int:
        return sum(_amount(pod) for pod in self._pods.values() if _index(pod) == index)

    def end(self, pod: dict[str, Any]) -> None:
        if _limits(pod) > 0:
            self._pods.pop(pod["metadata"]["name"], None)


def _amount(pod: dict[str, Any]) -> int:
    return int(pod["metadata"]["annotations"].get(POD, 0))


def _index(pod: dict[str, Any]) -> int:
    text = pod["metadata"]["annotations"].get(IDX, "")
    return int(text) if re.fullmatch(r"[+-]?\d+", text) else -1


def _limits(pod: dict[str, Any]) -> int:
    """Also what `kubectl inspect gpushare` adds up."""
    return sum(int(one["resources"]["limits"].get(GPU_MEM, 0)) for one in pod["spec"]["containers"])


def test_a_whole_card_is_written_as_all_its_units() -> None:
    written = WHOLE["metadata"]["annotations"]
    assert (written[IDX], written[POD], written[DEV]) == ("1", str(UNITS), str(UNITS))


def test_the_original_counts_a_whole_card_at_its_start_and_does_not_free_it_before_the_next() -> None:
    original = Original(WHOLE, PART)
    assert [original.used(index) for index in (0, 1)] == [3, UNITS], "it is not sold again"
    for pod in (WHOLE, PART):
        original.end(pod)
    assert [original.used(index) for index in (0, 1)] == [0, UNITS], "it stays taken"
    assert Original().used(1) == 0, "until the extender is restarted"
    assert _limits(WHOLE) == 0, "kubectl inspect gpushare shows it as free"


def test_the_original_does_not_count_a_pod_on_several_cards() -> None:
    assert TWO_CARDS["metadata"]["annotations"][IDX] == "0,1"
    assert [Original(TWO_CARDS).used(index) for index in (0, 1)] == [0, 0]


def test_the_command_of_the_page_lists_the_pods_that_must_end_first_and_no_others() -> None:
    script = re.search(r"python3 -c '\n(.*?)\n'", PAGE, re.S)
    assert script is not None
    found = subprocess.run(
        [sys.executable, "-c", script[1]],
        input=json.dumps({"items": [WHOLE, PART, TWO_CARDS]}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.splitlines() == ["default whole cards 1", "default two-cards cards 0,1"]


@pytest.mark.parametrize(
    "said",
    [
        "The original counts such a pod at its start, so it does not sell the card",
        "the card stays taken after the pod has ended, until the extender is",
        "`kubectl inspect gpushare` shows these cards as free",
        "the original reads one number in `ALIYUN_COM_GPU_MEM_IDX`, not a list such as `0,2`",
    ],
)
def test_the_page_says_so(said: str) -> None:
    assert said in " ".join(PAGE.split())
