"""`aliquot server --check-config`, and what it says of a configuration that cannot be used."""

from pathlib import Path

import pytest
import yaml

from aliquot.embedded.api import resources
from tests.fakes import ScriptedApi
from tests.integration.cli.servers import NAMESPACE, add_namespace, check, kubeconfig


async def test_what_is_in_effect_is_printed_with_its_origin(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("log: {level: debug}\ncommit: {budget: 1, look: 0.5}\nlate: {seconds: 20}")
    ended = await check(
        "--config", str(path), "--commit-budget", "2", ALIQUOT_COMMIT_BUDGET="3", ALIQUOT_LATE_SECONDS="40"
    )
    assert (ended.code, ended.err) == (0, "")
    found = yaml.safe_load(ended.out)
    assert (found["log"], found["commit"], found["late"]) == (
        {"level": "debug"},
        {"budget": 2.0, "look": 0.5, "actLimit": 70.0, "claimsPerNamespace": 500},
        {"seconds": 40.0, "hold": 30.0},
    )
    lines = {line.strip() for line in ended.out.splitlines()}
    assert {
        f"level: debug  # {path}",
        "budget: 2.0  # --commit-budget",
        "actLimit: 70.0  # default",
        "seconds: 40.0  # $ALIQUOT_LATE_SECONDS",
    } <= lines


async def test_the_flags_and_variables_of_mappings_are_pairs() -> None:
    ended = await check("--gpu-policy", "gpushare=spread", ALIQUOT_PREFIX="tencent=a.example keti=b.example")
    assert ended.code == 0, ended
    found = yaml.safe_load(ended.out)
    assert found["prefixes"] == {"tencent": "a.example", "keti": "b.example"}
    assert found["policies"]["gpu"] == {"gpushare": "spread"}


@pytest.mark.parametrize(
    ("text", "flags", "error"),
    [
        pytest.param("log: {level: loud}", (), "log.level ({path}): 'loud' is not one of debug", id="a bad value"),
        pytest.param(
            "endpoint: {}",
            (),
            "endpoint ({path}): unknown key; valid keys at the top level are mode, log",
            id="an unknown key",
        ),
        pytest.param(
            "",
            ("--gpushare-port", "12340", "--native-port", "12340"),
            "endpoints.gpushare.port and endpoints.native.port are both 12340",
            id="equal ports",
        ),
        pytest.param("", ("--gpu-policy", "spread"), "--gpu-policy spread: write DIALECT=POLICY", id="no pair"),
        pytest.param(
            "", ("--lease-name", "A B"), "lease.name (--lease-name): 'A B' is not a valid name", id="a bad flag"
        ),
        pytest.param("", ("--config", "/gone"), "/gone cannot be read: no such file", id="no file"),
        pytest.param("listen: {address: a b}", (), "'a b' is not an IP address or a host name", id="no address"),
        pytest.param(
            "decisionLog: {file: /gone/decisions}",
            (),
            "decisionLog.file: /gone/decisions cannot be written: there is no folder /gone",
            id="a decision log without a folder",
        ),
        pytest.param("", ("--config-map", "a/b"), "--config and --config-map cannot be combined", id="two sources"),
    ],
)
async def test_a_configuration_that_cannot_be_used_ends_with_1_and_one_line(
    tmp_path: Path, text: str, flags: tuple[str, ...], error: str
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    ended = await check("--config", str(path), *flags)
    assert (ended.code, ended.out) == (1, "")
    (line,) = ended.err.splitlines()
    assert line.startswith("aliquot: ")
    assert error.format(path=path) in line


async def test_a_commit_that_outlasts_kube_scheduler_is_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("commit: {budget: 8, look: 5}")
    ended = await check("--config", str(path))
    assert ended.code == 0
    assert yaml.safe_load(ended.out)["commit"]["budget"] == 8.0
    (line,) = ended.err.splitlines()
    assert line.startswith("aliquot: warning: commit.budget plus commit.look is 13 s")


async def test_a_variable_that_there_is_not_is_warned_of() -> None:
    ended = await check(ALIQUOT_NATIV_PORT="12341")
    assert ended.code == 0
    assert "aliquot: warning: $ALIQUOT_NATIV_PORT: unknown variable; did you mean $ALIQUOT_NATIVE_PORT?" in (
        ended.err.splitlines()
    )


@pytest.mark.parametrize(
    ("data", "error"),
    [
        pytest.param({"config.yaml": "mode: observe"}, "", id="a good one"),
        pytest.param({"config.yml": ""}, "has no entry config.yaml; its entries are config.yml", id="no such entry"),
        pytest.param({"config.yaml": "mode: sleep"}, "'sleep' is not one of active, observe", id="a bad value"),
        pytest.param(
            {"config.yaml": "kubernetes: {context: a}"}, "kubernetes.context: not allowed in ConfigMap", id="a circle"
        ),
        pytest.param(None, f"ConfigMap {NAMESPACE}/settings cannot be read: ", id="none at all"),
    ],
)
async def test_a_config_map_is_checked_through_the_api_server(
    tmp_path: Path, scripted: ScriptedApi, data: dict[str, str] | None, error: str
) -> None:
    add_namespace(scripted)
    if data is not None:
        scripted.registry.create(resources.CONFIG_MAPS, NAMESPACE, {"metadata": {"name": "settings"}, "data": data})
    flags = ("--kubeconfig", kubeconfig(tmp_path, scripted.url), "--config-map", f"{NAMESPACE}/settings")
    ended = await check(*flags)
    if error:
        assert ended.code == 1
        assert error in ended.err
    else:
        assert ended.code == 0, ended
        assert f"mode: observe  # ConfigMap {NAMESPACE}/settings" in ended.out


async def test_a_config_map_is_named_by_its_namespace_and_name(tmp_path: Path, scripted: ScriptedApi) -> None:
    ended = await check("--kubeconfig", kubeconfig(tmp_path, scripted.url), "--config-map", "settings")
    assert ended.code == 1
    assert "--config-map settings: write NAMESPACE/NAME" in ended.err
