"""The table of XID errors."""

import pytest

from aliquot.agent.devices import Verdict
from aliquot.agent.nvidia import NvidiaDevices, xids
from aliquot.agent.nvidia.xids import CATALOGUE, judge


@pytest.mark.parametrize("code", [13, 31, 43, 45, 68, 109])
def test_what_nvidia_s_own_plugin_ignores_is_ignored(code: int) -> None:
    assert judge(code, {}).verdict is Verdict.IGNORE


_RESTART_APP = [
    *(8, 11, 13, 25, 31, 32, 39, 40, 41, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86, 88, 89, 94),
    *range(96, 106),
    *range(126, 136),
    139,
]
_NO_ACTION = [14, 37, 38, 43, 44, 63, 66, 67, 92, 93, 106, 107, 108, 121, 137, 141, 152, 153, 157, 160, 161]
_RESET_OR_RESTART = [46, 62, 64, 79, 95, 110, 119, 120, 136, 140, 143, 151, 155, 156, 158]
_SOMETHING_ELSE = [54, 74, 78, 142, *range(144, 151), 159]
_WITHOUT_AN_ACTION = [12, 16, 18, 24, 42, 56, 57, 58, 59, 65, 73, 81, 122, 123, 124, 125, *range(166, 171), 9999]


@pytest.mark.parametrize(
    ("codes", "verdict"),
    [
        (_RESTART_APP, Verdict.IGNORE),
        (_NO_ACTION, Verdict.IGNORE),
        (_RESET_OR_RESTART, Verdict.DRAIN),
        (_SOMETHING_ELSE, Verdict.CORDON),
        (_WITHOUT_AN_ACTION, Verdict.CORDON),
    ],
)
def test_the_verdict_follows_from_the_catalogue_s_immediate_action(codes: list[int], verdict: Verdict) -> None:
    assert [code for code in codes if judge(code, {}).verdict is not verdict] == []


@pytest.mark.parametrize(
    ("code", "verdict"),
    [(48, Verdict.DRAIN), (61, Verdict.DRAIN), (154, Verdict.IGNORE), (163, Verdict.IGNORE), (171, Verdict.DRAIN)],
)
def test_verdicts_of_our_own_judgement(code: int, verdict: Verdict) -> None:
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
