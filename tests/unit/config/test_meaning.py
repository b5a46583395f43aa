"""What the configuration means to the rooms that it configures."""

import socket
from collections.abc import Mapping

import pytest

from aliquot.config import Configuration, meaning, read
from aliquot.config.tree import Policies
from aliquot.control import ControlSettings, Mode
from aliquot.dialects.gpushare import GpuShare
from aliquot.errors import BadConfig
from aliquot.kube import Terms


def tree(text: str) -> Configuration:
    return read(text, "f.yaml", {}).tree


def test_the_defaults_of_the_control_plane_and_of_the_configuration_are_the_same() -> None:
    assert meaning.control_settings(Configuration()) == ControlSettings()


def test_every_time_and_name_reaches_the_control_plane() -> None:
    text = """
    mode: observe
    lease: {enabled: false, namespace: a, name: b, duration: 9, renew: 6, retry: 1}
    commit: {budget: 1.5, look: 0.5, actLimit: 33}
    audit: {seconds: 44}
    late: {seconds: 55}
    """
    assert meaning.control_settings(tree(text)) == ControlSettings(
        mode=Mode.OBSERVE,
        alone=True,
        namespace="a",
        lease="b",
        terms=Terms(9, 6.0, 1.0),
        budget=1.5,
        look=0.5,
        act_limit=33.0,
        audit_seconds=44.0,
        late_seconds=55.0,
    )


def test_policies_and_prefixes_reach_the_dialects() -> None:
    text = "prefixes: {tencent: gpu.example.com}\npolicies: {gpu: {gpushare: spread}, node: {hami: spread}}"
    made = meaning.dialects(tree(text))
    assert made["tencent"].prefix == "gpu.example.com"
    assert (made["gpushare"].gpu_policy, made["gpushare"].node_policy) == ("spread", GpuShare.node_policy)
    assert made["hami"].node_policy == "spread"


def test_a_policy_that_is_said_no_more_is_the_dialects_own_again() -> None:
    made = meaning.dialects(tree("policies: {gpu: {gpushare: spread}}"))
    meaning.set_policies(made, Configuration())
    assert made["gpushare"].gpu_policy == GpuShare.gpu_policy


def test_of_policies_that_cannot_all_be_used_none_is() -> None:
    made = meaning.dialects(Configuration())
    bad = Configuration(policies=Policies(gpu={"gpushare": "spread", "hami": "best"}))
    with pytest.raises(BadConfig, match=r"policies\.gpu\.hami"):
        meaning.set_policies(made, bad)
    assert made["gpushare"].gpu_policy == GpuShare.gpu_policy


@pytest.mark.parametrize(
    ("text", "environment", "url"),
    [
        pytest.param("", {}, "http://127.0.0.1:7", id="where it listens"),
        pytest.param("listen: {address: 0.0.0.0}", {"POD_IP": "10.0.0.3"}, "http://10.0.0.3:7", id="the pod's own"),
        pytest.param("replicas: {address: gpu.example}", {"POD_IP": "10.0.0.3"}, "http://gpu.example:7", id="as said"),
        pytest.param("", {"POD_IP": "fd00::3"}, "http://[fd00::3]:7", id="IPv6"),
        pytest.param("listen: {tls: {certFile: a, keyFile: b}}", {}, "https://127.0.0.1:7", id="with TLS"),
        pytest.param("listen: {address: '::'}", {}, f"http://{socket.gethostname()}:7", id="the machine's name"),
    ],
)
def test_other_replicas_are_told_an_address_that_they_can_reach(
    monkeypatch: pytest.MonkeyPatch, text: str, environment: Mapping[str, str], url: str
) -> None:
    monkeypatch.delenv("POD_IP", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert meaning.doors(tree(text), {"gpushare": 7}) == {"gpushare": url}
