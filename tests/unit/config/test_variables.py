"""Variables that nobody reads."""

import pytest

from aliquot.config.agent_tree import AGENT
from aliquot.config.variables import unknown_variables


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        pytest.param("ALIQUOT_NATIVE_PORT", "1", [], id="a key of the configuration"),
        pytest.param("ALIQUOT_CONFIG_MAP", "a/b", [], id="where the configuration is"),
        pytest.param("ALIQUOT_FAULT", "after-claim", [], id="a fault point"),
        pytest.param("HOME", "/root", [], id="somebody else's"),
        pytest.param("ALIQUOT_PORT", "tcp://10.0.0.1:12340", [], id="a Service"),
        pytest.param("ALIQUOT_SERVICE_HOST", "10.0.0.1", [], id="a Service's address"),
        pytest.param("ALIQUOT_SERVICE_PORT_NATIVE", "12340", [], id="a Service's named port"),
        pytest.param("ALIQUOT_PORT_12340_TCP_ADDR", "10.0.0.1", [], id="a Service, in pieces"),
        pytest.param(
            "ALIQUOT_GPUSHRE_PORT",
            "1",
            ["$ALIQUOT_GPUSHRE_PORT: unknown variable; did you mean $ALIQUOT_GPUSHARE_PORT?"],
            id="mistyped",
        ),
        pytest.param("ALIQUOT_X", "1", ["$ALIQUOT_X: unknown variable"], id="like nothing"),
    ],
)
def test_what_nobody_reads_is_told(name: str, value: str, said: list[str]) -> None:
    assert list(unknown_variables({name: value})) == said


def test_the_variables_of_the_agent_are_known() -> None:
    names = {setting.variable: "x" for setting in AGENT.settings.values()}
    assert "ALIQUOT_DIALECT" in names
    assert list(unknown_variables(names)) == []
