"""What the originals' flags and variables mean as keys of the configuration."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import aliquot
from aliquot.app.programs import elastic_gpu_scheduler, gpu_admission, gpushare_schd_extender, nano_gpu_scheduler
from aliquot.app.programs.addresses import EVERY
from aliquot.app.programs.program import Program
from aliquot.config.declaration import Given
from aliquot.config.live_config import LiveConfig
from aliquot.config.sources import NoSource
from aliquot.errors import BadConfig

ADMISSION, GPUSHARE, ELASTIC, NANO = (
    module.PROGRAM for module in (gpu_admission, gpushare_schd_extender, elastic_gpu_scheduler, nano_gpu_scheduler)
)
PROGRAMS = [pytest.param(program, id=program.line.program) for program in (ADMISSION, GPUSHARE, ELASTIC, NANO)]

ENDPOINTS = ("admission", "gpushare", "elastic", "nvidia", "native")


def wanted(program: Program, words: list[str]) -> dict[str, Given]:
    return dict(program.translate(program.line.parse(words)).given)


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        pytest.param([], {}, id="nothing"),
        pytest.param(
            ["--address=0.0.0.0:3000"], {"listen.address": "0.0.0.0", "endpoints.admission.port": 3000}, id="address"
        ),
        pytest.param(["--address", ":3456"], {"listen.address": EVERY}, id="every address"),
        pytest.param(["--address=[::1]:1"], {"listen.address": "::1", "endpoints.admission.port": 1}, id="IPv6"),
        pytest.param(
            ["--pprofAddress=10.0.0.1:1"],
            {
                "listen.profiling": True,
                "endpoints.admission.debugAddress": "10.0.0.1",
                "endpoints.admission.debugPort": 1,
            },
            id="debug address",
        ),
        pytest.param(["--kubeconfig=/a"], {"kubernetes.kubeconfig": "/a"}, id="kubeconfig"),
        pytest.param(["--master=http://a"], {"kubernetes.server": "http://a"}, id="master"),
        pytest.param(["--incluster-mode=true"], {"kubernetes.asPod": True}, id="in the cluster"),
        pytest.param(["-v", "3"], {"log.level": "info"}, id="a little verbose"),
        pytest.param(["--v=4"], {"log.level": "debug"}, id="verbose"),
        pytest.param(["--vmodule=commit=4"], {"log.level": "debug"}, id="one verbose module"),
    ],
)
def test_gpu_admission_s_flags(words: list[str], keys: dict[str, Any]) -> None:
    found = wanted(ADMISSION, words)
    assert {key: found[key].value for key in keys} == keys
    assert all(one.origin.partition("=")[0] in " ".join(words) for one in found.values()), "each names its flag"


def test_gpu_admission_s_quota_file(tmp_path: Path) -> None:
    file = tmp_path / "quota.json"
    file.write_text(json.dumps({"QuotaConfigMapName": "q", "GPUModelLabel": "m", "GPUPoolLabel": "p", "Other": 1}))
    found = {key: one.value for key, one in wanted(ADMISSION, ["--config", str(file)]).items()}
    expected = {"name": "q", "namespace": "kube-system", "modelLabel": "m", "poolLabel": "p"}
    assert found == {f"quota.{key}": value for key, value in expected.items()}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param("{", "is invalid", id="no JSON"),
        pytest.param('{"QuotaConfigMapName": 1}', "is invalid", id="no text"),
        pytest.param('{"GPUModelLabel": "m"}', "GPUModelLabel and GPUPoolLabel are required", id="a label less"),
    ],
)
def test_a_quota_file_that_cannot_be_used_is_named(tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "quota.json"
    file.write_text(text)
    with pytest.raises(BadConfig, match=error) as raised:
        wanted(ADMISSION, ["--config", str(file)])
    assert str(raised.value).startswith(f"--config {file}")


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("--version", f"GPU-Quota-Admission aliquot-{aliquot.__version__}\n"),
        ("--version=true", f"GPU-Quota-Admission aliquot-{aliquot.__version__}\n"),
        ("--version=raw", f'version.Info{{GitBranch:"aliquot", GitCommit:"{aliquot.__version__}"'),
    ],
)
def test_gpu_admission_tells_its_version_and_ends(flag: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    ADMISSION.main([flag])
    assert capsys.readouterr().out.startswith(text)


def test_a_port_that_there_is_not_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "70000")
    with pytest.raises(BadConfig, match="PORT=70000 is not a valid port"):
        wanted(GPUSHARE, [])


@pytest.mark.parametrize(
    ("variables", "port", "level"),
    [
        pytest.param({}, 39999, "warning", id="none"),
        pytest.param({"PORT": "12345", "LOG_LEVEL": "debug"}, 12345, "debug", id="as the manifest has them"),
        pytest.param({"PORT": "http", "LOG_LEVEL": "DEBUG"}, 39999, "warning", id="what is none counts as unset"),
        pytest.param({"LOG_LEVEL": "error", "THREADNESS": "many"}, 39999, "error", id="error"),
    ],
)
def test_gpushare_s_variables(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], port: int, level: str
) -> None:
    for name in ("PORT", "LOG_LEVEL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    found = wanted(GPUSHARE, [])
    assert (found["endpoints.gpushare.port"].value, found["log.level"].value) == (port, level)


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        pytest.param([], {"endpoints.elastic.port": 39999}, id="nothing"),
        pytest.param(["-kubeconf", "/a", "-v=5"], {"kubernetes.kubeconfig": "/a", "log.level": "debug"}, id="kubeconf"),
    ],
)
def test_elastic_gpu_scheduler_s_flags(words: list[str], keys: dict[str, Any]) -> None:
    found = wanted(ELASTIC, words)
    assert {key: found[key].value for key in keys} == keys


MANIFEST = ["-priority", "binpack", "-mode", "gpushare"]
"""The words of elastic-gpu-scheduler's own manifest, and of nano-gpu-scheduler's in 0.3.0 and 0.4.0."""
MANIFEST_0_3 = ["--priority", "binpack", "--v", "2"]
MANIFEST_0_4 = [
    *("--priority", "binpack", "--policyConfigPath", "/data/policy.yaml"),
    *("--prometheusUrl", "http://10.0.200.47:9090", "--isLoadSchedule", "true"),
]


@pytest.mark.parametrize(
    ("program", "words", "variables", "policies"),
    [
        pytest.param(ELASTIC, MANIFEST, {}, ("elastic-binpack",) * 2, id="elastic-gpu-scheduler's manifest"),
        pytest.param(ELASTIC, [], {}, ("elastic-binpack",) * 2, id="elastic-gpu-scheduler, no flags"),
        pytest.param(ELASTIC, ["-priority=spread"], {}, ("elastic-spread",) * 2, id="elastic-gpu-scheduler, spread"),
        pytest.param(NANO, MANIFEST_0_3, {}, ("elastic-0.3-binpack",) * 2, id="nano-gpu-scheduler 0.3.0's manifest"),
        pytest.param(NANO, MANIFEST_0_4, {}, ("elastic-0.3-binpack",) * 2, id="nano-gpu-scheduler 0.4.0's manifest"),
        pytest.param(NANO, ["-priority=spread"], {}, ("elastic-0.3-spread",) * 2, id="nano-gpu-scheduler, spread"),
        pytest.param(
            ELASTIC, MANIFEST, {"GPU": "elastic=spread"}, ("spread", "elastic-binpack"), id="our variable outranks it"
        ),
        pytest.param(
            NANO, MANIFEST_0_4, {"GPU": "elastic=load", "NODE": "elastic=binpack"}, ("load", "binpack"), id="both do"
        ),
        pytest.param(
            ELASTIC, MANIFEST, {"NODE": "gpushare=spread"}, ("elastic-binpack",) * 2, id="one for another dialect"
        ),
    ],
)
def test_the_manifest_s_priority_keeps_the_original_s_placement_unless_our_variables_say_otherwise(
    monkeypatch: pytest.MonkeyPatch,
    program: Program,
    words: list[str],
    variables: dict[str, str],
    policies: tuple[str, str],
) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(f"ALIQUOT_{name}_POLICY", text)
    given = program.keys(program.translate(program.line.parse(words)))
    tree = asyncio.run(LiveConfig.start(NoSource(), given)).tree
    assert (tree.policies.gpu["elastic"], tree.policies.node["elastic"]) == policies
    assert ("gpushare" in tree.policies.node) is ("gpushare" in variables.get("NODE", ""))


def test_of_nano_gpu_scheduler_s_flags_those_for_load_are_said_to_have_no_effect() -> None:
    parsed = NANO.line.parse(MANIFEST_0_4)
    assert parsed.others == ("true",), "as Go reads a switch"
    told = parsed.idle
    flags = ["--isLoadSchedule", "--policyConfigPath", "--prometheusUrl"]
    why = "Aliquot reads no load from Prometheus and places pods as with -isLoadSchedule=false"
    assert sorted(told) == [f"{flag}: {why}" for flag in flags]
    assert NANO.line.parse(MANIFEST_0_3).idle == ()


def test_a_priority_that_does_nothing_in_the_original_is_told() -> None:
    (told,) = ELASTIC.translate(ELASTIC.line.parse(["-priority=spread"])).remarks
    assert told.startswith("-priority spread: does not spread, as in the original; to spread, set ALIQUOT_GPU_POLICY=")
    assert ELASTIC.translate(ELASTIC.line.parse([])).remarks == ()


@pytest.mark.parametrize(
    ("program", "words", "error"),
    [
        pytest.param(ADMISSION, ["--address", "3456"], "--address 3456: write ADDRESS:PORT", id="no port"),
        pytest.param(ADMISSION, ["--pprofAddress=a:b"], "--pprofAddress a:b: write ADDRESS:PORT", id="no number"),
        pytest.param(ADMISSION, ["--address=:70000"], "write ADDRESS:PORT", id="no such port"),
        pytest.param(ELASTIC, ["-priority=random"], "-priority random: write binpack or spread", id="no priority"),
        pytest.param(NANO, ["-priority=random"], "-priority random: write binpack or spread", id="nor in nano's"),
        pytest.param(
            ELASTIC, ["-mode=pgpu,qgpu"], "without gpushare, the program would serve nothing", id="nothing to serve"
        ),
        pytest.param(
            ELASTIC, ["-mode=mps"], "unknown mode mps; valid modes are pgpu, qgpu, gpushare", id="no such mode"
        ),
    ],
)
def test_what_a_flag_cannot_be_is_told(program: Program, words: list[str], error: str) -> None:
    with pytest.raises(BadConfig, match=error):
        wanted(program, words)


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_a_program_asks_for_is_a_configuration_with_its_endpoint_alone(program: Program) -> None:
    given = program.keys(program.translate(program.line.parse([])))
    tree = asyncio.run(LiveConfig.start(NoSource(), given)).tree
    assert [name for name in ENDPOINTS if getattr(tree.endpoints, name).enabled] == [program.endpoint]
    assert tree.listen.address == program.address
    assert tree.lease.namespace == "kube-system"


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_guide_tells_of_every_flag(program: Program) -> None:
    guide = (Path(__file__).parents[4] / "docs" / "programs.md").read_text()
    assert program.line.program in guide
    assert [flag.name for flag in program.line.flags if f"-{flag.name}" not in guide] == []


@pytest.mark.parametrize("program", PROGRAMS)
def test_whoever_asks_for_help_gets_it_with_every_flag(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        program.main(["--help"])
    told = capsys.readouterr()
    assert told.err == ""
    assert [flag.name for flag in program.line.flags if f"-{flag.name}" not in told.out] == []
    assert "docs/programs.md" in told.out
    with pytest.raises(SystemExit, match="2"):
        program.main(["--nope"])
    assert f"Usage of {program.line.program}:" in capsys.readouterr().err
