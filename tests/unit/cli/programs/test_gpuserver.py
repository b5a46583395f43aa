"""What gpuserver's flags, file and variables mean as keys of the configuration."""

from pathlib import Path
from typing import Any

import pytest
import yaml

import aliquot
from aliquot.app.programs.gpuserver import PROGRAM
from aliquot.config.live_config import LiveConfig
from aliquot.config.server_tree import ServerConfig
from aliquot.config.sources import NoSource
from aliquot.errors import BadConfig


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("MetadataName", "MetadataNamespace"):
        monkeypatch.delenv(variable, raising=False)


async def tree(*words: str) -> ServerConfig:
    return (await LiveConfig.start(NoSource(), PROGRAM.keys(PROGRAM.translate(PROGRAM.line.parse(words))))).tree


def remarks(*words: str) -> tuple[str, ...]:
    parsed = PROGRAM.line.parse(words)
    return (*PROGRAM.translate(parsed).remarks, *parsed.idle)


async def test_without_flags_it_is_the_original_s_port_with_a_certificate_of_its_own() -> None:
    config = await tree()
    assert (config.listen.address, config.endpoints.nvidia.port) == ("0.0.0.0", 8080)
    assert (config.query_api.enabled, config.query_api.verbs) == (True, True)
    assert (config.query_api.service, config.query_api.namespace) == ("nvidia-gpu-scheduler", "kube-system")
    assert config.listen.tls.cert_file == ""
    assert [
        name for name in ("admission", "gpushare", "elastic", "native") if getattr(config.endpoints, name).enabled
    ] == []


@pytest.mark.parametrize(
    ("pod", "service"),
    [("my-gpus-0", "my-gpus"), ("my-gpus-x7k2p", "my-gpus"), ("single", "nvidia-gpu-scheduler")],
)
async def test_the_service_has_the_pod_s_name_without_its_last_part(
    monkeypatch: pytest.MonkeyPatch, pod: str, service: str
) -> None:
    monkeypatch.setenv("MetadataName", pod)
    monkeypatch.setenv("MetadataNamespace", "gpus")
    query = (await tree()).query_api
    assert (query.service, query.namespace, query.host) == (service, "gpus", f"{service}.gpus.svc")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-b", "127.0.0.1", "-p", "8443"], ("127.0.0.1", 8443, True)),
        (["--bind-address=", "--secure-port=1"], ("0.0.0.0", 1, True)),
        (["--enable-scheduler=false"], ("0.0.0.0", 8080, False)),
    ],
)
async def test_flags(words: list[str], expected: tuple[Any, ...]) -> None:
    config = await tree(*words)
    assert (config.listen.address, config.endpoints.nvidia.port, config.query_api.verbs) == expected


async def test_our_variables_count_where_neither_a_flag_nor_the_pod_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable, value in (("SERVICE", "ours"), ("NAMESPACE", "our-space"), ("VERBS", "false")):
        monkeypatch.setenv(f"ALIQUOT_QUERY_API_{variable}", value)
    monkeypatch.setenv("ALIQUOT_NVIDIA_PORT", "1234")
    config = await tree()
    assert (config.query_api.host, config.query_api.verbs) == ("ours.our-space.svc", False)
    assert config.endpoints.nvidia.port == 1234
    monkeypatch.setenv("MetadataName", "theirs-0")
    config = await tree("--enable-scheduler=true", "--secure-port=0")
    assert (config.query_api.host, config.query_api.verbs) == ("theirs.our-space.svc", True)
    assert config.endpoints.nvidia.port == 0


async def test_files_count_without_tls_auto_alone() -> None:
    files = [
        "--tls-config.tls-ca-file=/ca",
        "--tls-config.tls-cert-file=/cert",
        "--tls-config.tls-private-key-file=/key",
    ]
    config = await tree("--tls-auto=false", *files)
    assert (config.listen.tls.cert_file, config.listen.tls.key_file, config.query_api.ca_file) == (
        "/cert",
        "/key",
        "/ca",
    )
    assert (await tree(*files)).listen.tls.cert_file == ""
    assert len(remarks(*files)) == 3
    with pytest.raises(BadConfig, match="--tls-auto=false: needs"):
        await tree("--tls-auto=false")


async def test_a_flag_overrides_a_variable_and_a_variable_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / ".metrics-podresource.yaml"
    file.write_text("secure-port: 1\nbind-address: 127.0.0.9\ntls-auto: true\nscheduler: {parallelism: 3}\n")
    config = await tree()
    assert (config.listen.address, config.endpoints.nvidia.port) == ("127.0.0.9", 1)
    monkeypatch.setenv("SECURE-PORT", "2")
    assert (await tree()).endpoints.nvidia.port == 2
    assert (await tree("--secure-port", "3")).endpoints.nvidia.port == 3
    other = tmp_path / "other"
    other.write_text("tls-auto: false\ntls-config: {tls-cert-file: /c, tls-private-key-file: /k}\n")
    assert (await tree("-c", str(other))).listen.tls.key_file == "/k"


@pytest.mark.parametrize(
    ("text", "error"),
    [("secure-port: many", "'many': it must be a whole number"), ("a: [", "c.yaml")],
)
async def test_a_wrong_file_is_named(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(BadConfig, match=error):
        await tree("-c", str(tmp_path / "c.yaml"))
    with pytest.raises(BadConfig, match="--config /gone"):
        await tree("-c", "/gone")


async def test_the_values_can_be_written_and_read_again(tmp_path: Path) -> None:
    words = ("-p", "9", "--enable-scheduler=false", "--tls-config.tls-ca-file=/ca")
    file = tmp_path / "written.yaml"
    assert PROGRAM.print_only(PROGRAM.line.parse([*words, "--write-config-to", str(file)]))
    assert yaml.safe_load(file.read_text())["tls-config"]["tls-ca-file"] == "/ca"
    assert await tree("-c", str(file)) == await tree(*words)


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert PROGRAM.print_only(PROGRAM.line.parse(["--version"]))
    assert capsys.readouterr().out == f"gpuserver version aliquot-{aliquot.__version__}\n"


def test_what_has_no_effect_is_said() -> None:
    assert remarks("--scheduler.parallelism=3") == ("--scheduler.parallelism: Aliquot judges all nodes at once",)
