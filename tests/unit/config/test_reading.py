"""From texts, variables and flags to one configuration."""

from pathlib import Path

import pytest
import yaml

from aliquot.config import rendering
from aliquot.config.agent_tree import AGENT
from aliquot.config.checks import doubts
from aliquot.config.declaration import Given
from aliquot.config.sections.endpoints import ENDPOINTS
from aliquot.config.server import SERVER
from aliquot.config.server_tree import ServerConfig
from aliquot.errors import BadConfig
from aliquot.model.bounds import LARGEST_CONFIG


def test_an_empty_text_is_the_defaults() -> None:
    found = SERVER.read("", "f.yaml", {})
    assert found.tree == ServerConfig()
    assert set(found.origins.values()) == {"default"}


def test_a_flag_or_a_variable_counts_before_the_file_and_that_before_the_default() -> None:
    text = "commit: {budget: 1, look: 0.5}\nlog: {level: debug}"
    given = {"commit.budget": Given(2.0, "--commit-budget"), "log.level": Given("error", "$ALIQUOT_LOG_LEVEL")}
    found = SERVER.read(text, "f.yaml", given)
    assert (found.tree.commit.budget, found.tree.commit.look, found.tree.commit.act_limit) == (2.0, 0.5, 70.0)
    assert found.tree.log.level == "error"
    origins = {path: found.origins[path] for path in ("commit.budget", "commit.look", "commit.actLimit", "log.level")}
    assert list(origins.values()) == ["--commit-budget", "f.yaml", "default", "$ALIQUOT_LOG_LEVEL"]


def test_what_is_shown_can_be_read_again() -> None:
    text = "prefixes: {tencent: gpu.example.com}\ndecisionLog: {file: /tmp/log}\npolicies: {gpu: {hami: binpack}}"
    found = SERVER.read(text, "f.yaml", {"mode": Given("observe", "--mode")})
    again = SERVER.read(rendering.effective(found), "f.yaml", {})
    assert again.tree == found.tree


def test_what_is_shown_names_the_origin_beside_each_value() -> None:
    shown = rendering.effective(
        SERVER.read("endpoints: {native: {port: 9500}}", "f.yaml", {"mode": Given("observe", "--mode")})
    )
    assert "mode: observe  # --mode\n" in shown
    assert "\n  native:\n    enabled: true  # default\n    port: 9500  # f.yaml\n" in shown
    assert "\n  gpushare:\n    enabled: true  # default\n" in shown


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param(
            "endpoints: {gpushare: {prot: 1}}",
            "endpoints.gpushare.prot (f.yaml): unknown key; valid keys in endpoints.gpushare are enabled, port",
            id="an unknown key",
        ),
        pytest.param(
            "colour: red",
            "colour (f.yaml): unknown key; valid keys at the top level are mode, log, kubernetes",
            id="at the top",
        ),
        pytest.param(
            "log: loud",
            "log (f.yaml): 'loud' is not a mapping of keys; valid keys are level",
            id="a section without keys",
        ),
        pytest.param("- a", "f.yaml: ['a'] is not a mapping of keys", id="a list"),
        pytest.param(
            "log: {level: loud}",
            "log.level (f.yaml): 'loud' is not one of debug, info, warning, error",
            id="no choice",
        ),
        pytest.param(
            "endpoints: {native: {port: 70000}}",
            "endpoints.native.port (f.yaml): 70000 is not an integer from 0 to 65535",
            id="a number beyond",
        ),
        pytest.param(
            "endpoints: {native: {port: 94.5}}", "94.5 is not an integer from 0 to 65535", id="no whole number"
        ),
        pytest.param("endpoints: {gpushare: {enabled: 7}}", "7 is not true or false", id="no truth"),
        pytest.param("commit: {budget: 0}", "0 is not a number above 0 and at most 86400", id="no time"),
        pytest.param("commit: {budget: .inf}", "inf is not a number above 0", id="endless"),
        pytest.param("commit: {budget: .nan}", "nan is not a number above 0", id="not a number"),
        pytest.param("lease: {name: A B}", "'A B' is not a valid name of a Kubernetes object", id="no name"),
        pytest.param(
            "listen: {address: not an address}",
            "listen.address (f.yaml): 'not an address' is not an IP address or a host name",
            id="no address",
        ),
        pytest.param("replicas: {address: 'http://a'}", "'http://a' is not an IP address", id="a URL"),
        pytest.param("listen: {address: 10.0.0.300}", "'10.0.0.300' is not an IP address", id="half an address"),
        pytest.param("listen: {address: ''}", "'' is not an IP address", id="no address at all"),
        pytest.param("prefixes: [a]", "['a'] is not a mapping of dialect to prefix", id="no mapping"),
        pytest.param("prefixes: {a: 1}", "{'a': 1} is not a mapping of dialect to prefix", id="a mapping to numbers"),
        pytest.param("prefixes: {nobody: a.b}", "prefixes: unknown dialect nobody", id="no dialect"),
        pytest.param("policies: {gpu: {nobody: spread}}", "policies.gpu: unknown dialect nobody", id="nobody's"),
        pytest.param("policies: {node: {hami: best}}", "policies.node.hami", id="no policy"),
        pytest.param(
            "lease: {duration: 5}",
            "lease.duration, lease.renew, lease.retry: lease duration 5 s must be longer than renew 10 s",
            id="a short Lease",
        ),
        pytest.param(
            "endpoints: {gpushare: {port: 12340}}",
            "endpoints.gpushare.port and endpoints.native.port are both 12340: each endpoint needs its own port",
            id="equal ports",
        ),
        pytest.param(
            "log: {level: info}\nlog: {}",
            "f.yaml cannot be read as YAML: line 2: log is a duplicate key",
            id="a key twice",
        ),
        pytest.param("log: [", "f.yaml cannot be read as YAML: line 1: ", id="no YAML"),
        pytest.param("mode: 2026-02-30", "f.yaml cannot be read as YAML: day is out of range", id="a day that is none"),
        pytest.param("mode: !!int x", "f.yaml cannot be read as YAML: invalid literal", id="a number that is none"),
        pytest.param("[" * 3000, "f.yaml cannot be read as YAML: ", id="brackets without end"),
        pytest.param("? [a]\n: 1", "f.yaml cannot be read as YAML: line 1: ", id="an odd key"),
        pytest.param(
            "listen: {limits: {bodyMb: 100, bodiesMb: 50}}",
            "listen.limits.bodiesMb is 50, less than listen.limits.bodyMb, 100",
            id="less for all bodies than for one",
        ),
    ],
)
def test_a_mistake_is_named_with_its_key_and_what_is_allowed(text: str, error: str) -> None:
    with pytest.raises(BadConfig) as raised:
        SERVER.read(text, "f.yaml", {})
    assert error in str(raised.value)


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:1234", "unix://cri.sock", "npipe:////./pipe/c", ""])
def test_a_runtime_endpoint_that_is_no_socket_is_named(endpoint: str) -> None:
    given = {"nodeName": Given("n1", "--node-name"), "runtimeEndpoint": Given(endpoint, "--runtime-endpoint")}
    with pytest.raises(BadConfig, match=f"'{endpoint}' is not the absolute path of a socket, with unix:// before it"):
        AGENT.read("", "", given)


@pytest.mark.parametrize("endpoint", ["unix:///run/c.sock", "/run/c.sock"])
def test_a_runtime_endpoint_is_a_socket(endpoint: str) -> None:
    given = {"nodeName": Given("n1", "--node-name"), "runtimeEndpoint": Given(endpoint, "--runtime-endpoint")}
    assert AGENT.read("", "", given).tree.runtime_socket == Path("/run/c.sock")


@pytest.mark.parametrize("verdicts", [{"79": "kill"}, {"bus": "drain"}], ids=["no verdict", "no code"])
def test_a_wrong_verdict_is_told_with_the_verdicts_that_there_are(verdicts: dict[str, str]) -> None:
    given = {"nodeName": Given("n1", "--node-name"), "xids": Given(verdicts, "--xid-verdict")}
    with pytest.raises(BadConfig, match="is not a mapping of XID codes to ignore, cordon or drain"):
        AGENT.read("", "", given)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param("# " + "x" * LARGEST_CONFIG, "f.yaml has more than 65536 bytes", id="bytes"),
        pytest.param("a: " + "[" * 17 + "]" * 17, "brackets are more than 16 levels deep", id="brackets"),
        pytest.param("a: " + "{a: " * 900, "brackets are more than 16 levels deep", id="braces"),
        pytest.param("".join(" " * n + f"a{n}:\n" for n in range(200)), "line 17: more than 1024", id="levels"),
        pytest.param("- " * 5000, "line 1: more than 1024 keys and values, or 16 levels", id="lists in lists"),
        pytest.param("prefixes:\n" + "".join(f"  a{n}: b\n" for n in range(600)), "more than 1024", id="keys"),
        pytest.param("a: [" + "1," * 5000 + "1]", "line 1: more than 1024 keys and values", id="values"),
        pytest.param(
            "prefixes: &a {tencent: b}\ncompat: *a", "line 2: aliases (*name) are not supported", id="an alias"
        ),
    ],
)
def test_what_is_larger_or_deeper_than_any_configuration_is_refused(text: str, error: str) -> None:
    with pytest.raises(BadConfig) as raised:
        SERVER.read(text, "f.yaml", {})
    assert error in str(raised.value)


def test_every_mistake_is_named_at_once() -> None:
    with pytest.raises(BadConfig) as raised:
        SERVER.read("log: {level: loud}\ncolour: red", "f.yaml", {"commit.look": Given(-1.0, "--commit-look")})
    for part in ("log.level (f.yaml)", "colour", "commit.look (--commit-look): -1.0"):
        assert part in str(raised.value)


def test_mistakes_of_every_kind_are_named_together() -> None:
    text = """
    mode: fast
    log: {levle: debug}
    listen: {address: a b}
    endpoints: {gpushare: {port: 12340}, native: {port: 12340}}
    lease: {duration: 5}
    prefixes: {tencent: A B, nobody: a.b, keti: -}
    policies: {gpu: {hami: best, nobody: spread}, node: {gpushare: worst}}
    """
    with pytest.raises(BadConfig) as raised:
        SERVER.read(text, "f.yaml", {})
    for part in (
        "mode (f.yaml): 'fast'",
        "log.levle (f.yaml): unknown key",
        "listen.address (f.yaml): 'a b'",
        "endpoints.gpushare.port and endpoints.native.port are both 12340",
        "lease.duration, lease.renew, lease.retry: ",
        "prefix of dialect tencent: 'A B'",
        "prefixes: unknown dialect nobody",
        "prefix of dialect keti: '-'",
        "policies.gpu: unknown dialect nobody",
        "policies.gpu.hami",
        "policies.node.gpushare",
    ):
        assert part in str(raised.value)


def test_a_default_in_the_place_of_a_bad_value_is_no_second_mistake() -> None:
    with pytest.raises(BadConfig) as raised:
        SERVER.read("lease: {duration: long, renew: 20}", "f.yaml", {})
    assert str(raised.value) == "lease.duration (f.yaml): 'long' is not an integer from 1 to 86400"


@pytest.mark.parametrize(
    "address", ["0.0.0.0", "::", "fd00::3", "fe80::1%eth0", "localhost", "gpu-1.example.com", "3g"]
)
def test_addresses_and_host_names_can_be_listened_on(address: str) -> None:
    text = f"listen: {{address: '{address}', tls: {{certFile: c, keyFile: k}}}}"
    assert SERVER.read(text, "f.yaml", {}).tree.listen.address == address


ANYONE = ", ".join(f"{endpoint}: {{callers: anyone}}" for endpoint in ENDPOINTS)
NOT_NATIVE = ", ".join(
    f"{endpoint}: {'{enabled: false}' if endpoint == 'native' else '{callers: anyone}'}" for endpoint in ENDPOINTS
)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="loopback"),
        pytest.param("listen: {address: 0.0.0.0, tls: {certFile: c, keyFile: k}}", id="TLS"),
        pytest.param(f"listen: {{address: 0.0.0.0}}\nendpoints: {{{ANYONE}}}", id="anyone, as said"),
        pytest.param(f"listen: {{address: 0.0.0.0, healthPort: 0}}\nendpoints: {{{NOT_NATIVE}}}", id="no health port"),
    ],
)
def test_callers_can_prove_who_they_are_or_need_not(text: str) -> None:
    SERVER.read(text, "f.yaml", {})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param(
            "listen: {address: 0.0.0.0}",
            "endpoints.nvidia.callers, endpoints.native.callers: other machines can reach 0.0.0.0",
            id="no TLS",
        ),
        pytest.param(
            f"listen: {{address: 0.0.0.0}}\nendpoints: {{{NOT_NATIVE}}}",
            "endpoints.native.callers, which also applies to listen.healthPort: other machines can reach 0.0.0.0",
            id="the health port",
        ),
        pytest.param(
            "listen: {profiling: true}\nendpoints: {admission: {debugAddress: 0.0.0.0}}",
            "endpoints.admission.callers: other machines can reach 0.0.0.0",
            id="debug",
        ),
        pytest.param("callers: {users: {jane: boss}}", "callers.users.jane: unknown kind boss", id="a user"),
        pytest.param("callers: {groups: {team: boss}}", "callers.groups.team: unknown kind boss", id="a group"),
        pytest.param("schedulers: ' ,'", "schedulers: name at least one", id="no scheduler"),
        pytest.param(
            "replicas: {tokenFile: t}",
            "replicas.tokenFile: needs TLS, so set listen.tls.certFile",
            id="a token in clear",
        ),
    ],
)
def test_callers_that_cannot_be_known_are_found_before_the_start(text: str, why: str) -> None:
    with pytest.raises(BadConfig) as raised:
        SERVER.read(text, "f.yaml", {})
    assert why in str(raised.value)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        pytest.param("", 0, id="the defaults"),
        pytest.param("commit: {budget: 4, look: 1}", 0, id="just kube-scheduler's time-out"),
        pytest.param("commit: {budget: 8, look: 5}", 1, id="beyond it"),
        pytest.param("listen: {limits: {seconds: 5}}", 1, id="an answer that comes too late"),
        pytest.param(
            f"endpoints: {{{', '.join(f'{endpoint}: {{enabled: false}}' for endpoint in ENDPOINTS)}}}",
            1,
            id="no endpoint",
        ),
    ],
)
def test_what_is_hardly_meant_is_doubted_and_allowed(text: str, count: int) -> None:
    assert len(doubts(SERVER.read(text, "f.yaml", {}).tree)) == count


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("endpoints: {gpushare: {port: 0}, native: {port: 0}}", id="both take a free one"),
        pytest.param("endpoints: {gpushare: {port: 12340, enabled: false}}", id="an endpoint that is closed"),
    ],
)
def test_ports_that_cannot_clash_are_no_mistake(text: str) -> None:
    SERVER.read(text, "f.yaml", {})


@pytest.mark.parametrize("setting", SERVER.settings.values(), ids=lambda setting: setting.path)
def test_every_default_is_allowed_and_survives_the_file(setting: object) -> None:
    (path,) = (path for path, one in SERVER.settings.items() if one is setting)
    one = SERVER.settings[path]
    tree: object = one.default
    for name in reversed(path.split(".")):
        tree = {name: tree}
    assert SERVER.read(yaml.safe_dump(tree), "f.yaml", {}).values[path] == one.default
