"""The table of XID errors."""

import pytest

from aliquot.agent.devices import Verdict
from aliquot.agent.nvidia import NvidiaDevices, xids
from aliquot.agent.nvidia.xids import CATALOGUE, judge


@pytest.mark.parametrize("code", [13, 31, 43, 45, 68, 109])
def test_what_nvidia_s_own_plugin_ignores_is_ignored(code: int) -> None:
    assert judge(code, {}).verdict is Verdict.IGNORE


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (48, Verdict.DRAIN),
        (63, Verdict.IGNORE),
        (64, Verdict.DRAIN),
        (74, Verdict.CORDON),
        (79, Verdict.DRAIN),
        (94, Verdict.IGNORE),
        (95, Verdict.DRAIN),
        (119, Verdict.DRAIN),
        (140, Verdict.DRAIN),
        (9999, Verdict.CORDON),
    ],
)
def test_codes_have_the_verdict_of_their_remedy(code: int, verdict: Verdict) -> None:
    assert judge(code, {}).verdict is verdict


def test_the_configuration_comes_before_the_table() -> None:
    devices = NvidiaDevices(verdicts={"13": Verdict.DRAIN, "9999": Verdict.IGNORE})
    assert devices.judge(13).verdict is Verdict.DRAIN
    assert devices.judge(13).meaning == CATALOGUE[13].meaning
    assert devices.judge(9999).verdict is Verdict.IGNORE
    assert devices.judge(79) == CATALOGUE[79]


def test_every_code_is_judged_once() -> None:
    tables = [xids._IGNORED, xids._CORDONED, xids._DRAINED]
    assert sum(map(len, tables)) == len(CATALOGUE)
