"""What components read from the server's configuration."""

import socket
from collections.abc import Mapping

import pytest

from aliquot.app.server.transport import advertised_urls
from aliquot.config.configured_dialects import configured_dialects, set_policies
from aliquot.config.sections.placement import AuditSection, CommitSection, LateSection, PoliciesSection
from aliquot.config.sections.replicas import LeaseSection
from aliquot.config.server import SERVER
from aliquot.config.server_tree import ServerConfig
from aliquot.dialects.gpushare import GpuShare
from aliquot.errors import BadConfig


def tree(text: str) -> ServerConfig:
    return SERVER.read(text, "f.yaml", {}).tree


def test_every_time_and_name_reaches_its_section() -> None:
    text = """
    mode: observe
    lease: {enabled: false, namespace: a, name: b, duration: 9, renew: 6, retry: 1}
    commit: {budget: 1.5, look: 0.5, actLimit: 33, claimsPerNamespace: 66}
    audit: {seconds: 44}
    late: {seconds: 55}
    schedulers: my-scheduler, other
    """
    config = tree(text)
    assert config == ServerConfig(
        mode="observe",
        lease=LeaseSection(enabled=False, namespace="a", name="b", duration=9, renew=6.0, retry=1.0),
        commit=CommitSection(budget=1.5, look=0.5, act_limit=33.0, claims_per_namespace=66),
        audit=AuditSection(seconds=44.0),
        late=LateSection(seconds=55.0),
        schedulers="my-scheduler, other",
    )
    assert config.scheduler_names == {"my-scheduler", "other"}


@pytest.mark.parametrize("text", ["'*'", "default-scheduler,*"])
def test_every_scheduler_can_be_served(text: str) -> None:
    assert tree(f"schedulers: {text}").scheduler_names == frozenset()


TLS = "tls: {certFile: c, keyFile: k}"
MUTUAL = "tls: {certFile: c, keyFile: k, clientCaFile: a}"


@pytest.mark.parametrize(
    ("listen", "answered", "address", "known"),
    [
        pytest.param("", "auto", "127.0.0.1", False, id="loopback"),
        pytest.param("", "auto", "::1", False, id="loopback of IPv6"),
        pytest.param("", "auto", "localhost", False, id="loopback by name"),
        pytest.param(MUTUAL, "auto", "127.0.0.1", True, id="loopback, with an authority of clients"),
        pytest.param(f"address: 0.0.0.0, {TLS}", "auto", "0.0.0.0", True, id="every address"),
        pytest.param(f"address: gpu.example, {TLS}", "auto", "gpu.example", True, id="a name"),
        pytest.param("", "known", "127.0.0.1", True, id="loopback, as said"),
        pytest.param(f"address: 0.0.0.0, {TLS}", "anyone", "0.0.0.0", False, id="every address, as said"),
    ],
)
def test_only_known_callers_are_answered_elsewhere_than_on_loopback(
    listen: str, answered: str, address: str, known: bool
) -> None:
    assert tree(f"listen: {{{listen}}}").listen.knows_callers(answered, address) is known


def test_policies_and_prefixes_reach_the_dialects() -> None:
    text = "prefixes: {tencent: gpu.example.com}\npolicies: {gpu: {gpushare: spread}, node: {hami: spread}}"
    made = configured_dialects(tree(text))
    assert made["tencent"].prefix == "gpu.example.com"
    assert (made["gpushare"].gpu_policy, made["gpushare"].node_policy) == ("spread", GpuShare.node_policy)
    assert made["hami"].node_policy == "spread"


def test_a_policy_that_is_said_no_more_is_the_dialects_own_again() -> None:
    made = configured_dialects(tree("policies: {gpu: {gpushare: spread}}"))
    set_policies(made, PoliciesSection())
    assert made["gpushare"].gpu_policy == GpuShare.gpu_policy


def test_of_policies_that_cannot_all_be_used_none_is() -> None:
    made = configured_dialects(ServerConfig())
    bad = PoliciesSection(gpu={"gpushare": "spread", "hami": "best"})
    with pytest.raises(BadConfig, match=r"policies\.gpu\.hami"):
        set_policies(made, bad)
    assert made["gpushare"].gpu_policy == GpuShare.gpu_policy


@pytest.mark.parametrize(
    ("text", "environment", "url"),
    [
        pytest.param("", {}, "http://127.0.0.1:7", id="where it listens"),
        pytest.param(
            f"listen: {{address: 0.0.0.0, {TLS}}}", {"POD_IP": "10.0.0.3"}, "https://10.0.0.3:7", id="a pod's"
        ),
        pytest.param("replicas: {address: gpu.example}", {"POD_IP": "10.0.0.3"}, "http://gpu.example:7", id="as said"),
        pytest.param("", {"POD_IP": "fd00::3"}, "http://[fd00::3]:7", id="IPv6"),
        pytest.param("listen: {tls: {certFile: a, keyFile: b}}", {}, "https://127.0.0.1:7", id="with TLS"),
        pytest.param(
            f"listen: {{address: '::', {TLS}}}", {}, f"https://{socket.gethostname()}:7", id="the machine's name"
        ),
    ],
)
def test_other_replicas_are_told_an_address_that_they_can_reach(
    monkeypatch: pytest.MonkeyPatch, text: str, environment: Mapping[str, str], url: str
) -> None:
    monkeypatch.delenv("POD_IP", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert advertised_urls(tree(text), {"gpushare": 7}) == {"gpushare": url}
