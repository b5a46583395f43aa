"""From texts, variables and flags to one configuration."""

import pytest
import yaml

from aliquot.config import SETTINGS, Configuration, Given, read, showing
from aliquot.errors import BadConfig


def test_an_empty_text_is_the_defaults() -> None:
    found = read("", "f.yaml", {})
    assert found.tree == Configuration()
    assert set(found.origins.values()) == {"default"}


def test_a_flag_or_a_variable_counts_before_the_file_and_that_before_the_default() -> None:
    text = "commit: {budget: 1, look: 0.5}\nlog: {level: debug}"
    given = {"commit.budget": Given(2.0, "--commit-budget"), "log.level": Given("error", "$ALIQUOT_LOG_LEVEL")}
    found = read(text, "f.yaml", given)
    assert (found.tree.commit.budget, found.tree.commit.look, found.tree.commit.act_limit) == (2.0, 0.5, 70.0)
    assert found.tree.log.level == "error"
    origins = {path: found.origins[path] for path in ("commit.budget", "commit.look", "commit.actLimit", "log.level")}
    assert list(origins.values()) == ["--commit-budget", "f.yaml", "default", "$ALIQUOT_LOG_LEVEL"]


def test_what_is_shown_can_be_read_again() -> None:
    text = "prefixes: {tencent: gpu.example.com}\ndecisionLog: {file: /tmp/log}\npolicies: {gpu: {hami: binpack}}"
    found = read(text, "f.yaml", {"mode": Given("observe", "--mode")})
    again = read(showing.effective(found), "f.yaml", {})
    assert again.tree == found.tree


def test_what_is_shown_names_the_origin_beside_each_value() -> None:
    shown = showing.effective(read("doors: {native: {port: 9500}}", "f.yaml", {"mode": Given("observe", "--mode")}))
    assert "mode: observe  # --mode\n" in shown
    assert "\n  native:\n    port: 9500  # f.yaml\n" in shown
    assert "\n  gpushare:\n    enabled: true  # default\n" in shown


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param(
            "doors: {gpushare: {prot: 1}}",
            "doors.gpushare.prot: there is no such key; doors.gpushare has enabled, port",
            id="an unknown key",
        ),
        pytest.param("colour: red", "colour: there is no such key; the top has mode, log, kubernetes", id="at the top"),
        pytest.param("log: loud", "log: 'loud' is not a mapping of keys; there are level", id="a section without keys"),
        pytest.param("- a", "the file: ['a'] is not a mapping of keys", id="a list"),
        pytest.param(
            "log: {level: loud}",
            "log.level (f.yaml): 'loud' is not one of debug, info, warning, error",
            id="no choice",
        ),
        pytest.param(
            "doors: {native: {port: 70000}}",
            "doors.native.port (f.yaml): 70000 is not a whole number from 0 to 65535",
            id="a number beyond",
        ),
        pytest.param(
            "doors: {native: {port: 94.5}}", "94.5 is not a whole number from 0 to 65535", id="no whole number"
        ),
        pytest.param("doors: {gpushare: {enabled: 7}}", "7 is not true or false", id="no truth"),
        pytest.param("commit: {budget: 0}", "0 is not a number above 0, at most 86400", id="no time"),
        pytest.param("commit: {budget: .inf}", "inf is not a number above 0", id="endless"),
        pytest.param("commit: {budget: .nan}", "nan is not a number above 0", id="not a number"),
        pytest.param("lease: {name: A B}", "'A B' is not a name of a Kubernetes object", id="no name"),
        pytest.param("prefixes: [a]", "['a'] is not a mapping of dialect to prefix", id="no mapping"),
        pytest.param("prefixes: {a: 1}", "{'a': 1} is not a mapping of dialect to prefix", id="a mapping to numbers"),
        pytest.param("prefixes: {nobody: a.b}", "no dialect is called nobody", id="no dialect"),
        pytest.param("policies: {gpu: {nobody: spread}}", "policies.gpu: no dialect is called nobody", id="nobody's"),
        pytest.param("policies: {node: {hami: best}}", "policies.node.hami", id="no policy"),
        pytest.param("lease: {duration: 5}", "lease duration 5 s must be longer than renew 10 s", id="a short Lease"),
        pytest.param(
            "doors: {gpushare: {port: 9400}}",
            "doors.gpushare.port and doors.native.port are both 9400: each door needs a port of its own",
            id="equal ports",
        ),
        pytest.param("log: {level: info}\nlog: {}", "log is said twice", id="a key twice"),
        pytest.param("log: [", "f.yaml is no YAML: ", id="no YAML"),
        pytest.param("? [a]\n: 1", "f.yaml is no YAML: ", id="an odd key"),
    ],
)
def test_a_mistake_is_named_with_its_key_and_what_is_allowed(text: str, error: str) -> None:
    with pytest.raises(BadConfig) as raised:
        read(text, "f.yaml", {})
    assert error in str(raised.value)


def test_every_mistake_is_named_at_once() -> None:
    with pytest.raises(BadConfig) as raised:
        read("log: {level: loud}\ncolour: red", "f.yaml", {"commit.look": Given(-1.0, "--commit-look")})
    for part in ("log.level (f.yaml)", "colour", "commit.look (--commit-look): -1.0"):
        assert part in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("doors: {gpushare: {port: 0}, native: {port: 0}}", id="both take a free one"),
        pytest.param("doors: {gpushare: {port: 9400, enabled: false}}", id="a door that is closed"),
    ],
)
def test_ports_that_cannot_clash_are_no_mistake(text: str) -> None:
    read(text, "f.yaml", {})


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda setting: setting.path)
def test_every_default_is_allowed_and_survives_the_file(setting: object) -> None:
    (path,) = (path for path, one in SETTINGS.items() if one is setting)
    one = SETTINGS[path]
    tree: object = one.default
    for name in reversed(path.split(".")):
        tree = {name: tree}
    assert read(yaml.safe_dump(tree), "f.yaml", {}).values[path] == one.default
