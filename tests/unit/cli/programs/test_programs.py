"""What the originals' flags and variables mean as keys of the configuration."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import aliquot
from aliquot.cli.programs import elastic_gpu_scheduler, gpu_admission, gpushare_schd_extender
from aliquot.cli.programs.addresses import EVERY
from aliquot.cli.programs.starting import Program
from aliquot.config import Given, Live, Nothing
from aliquot.errors import BadConfig

ADMISSION, GPUSHARE, ELASTIC = (
    module.PROGRAM for module in (gpu_admission, gpushare_schd_extender, elastic_gpu_scheduler)
)

DOORS = ("admission", "gpushare", "elastic", "nvidia", "native")


def wanted(program: Program, words: list[str]) -> dict[str, Given]:
    return dict(program.understand(program.line.parse(words)).given)


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        pytest.param([], {}, id="nothing"),
        pytest.param(
            ["--address=0.0.0.0:3000"], {"listen.address": "0.0.0.0", "doors.admission.port": 3000}, id="address"
        ),
        pytest.param(["--address", ":3456"], {"listen.address": EVERY}, id="every address"),
        pytest.param(["--address=[::1]:1"], {"listen.address": "::1", "doors.admission.port": 1}, id="IPv6"),
        pytest.param(
            ["--pprofAddress=10.0.0.1:1"],
            {"listen.profiling": True, "doors.admission.debugAddress": "10.0.0.1", "doors.admission.debugPort": 1},
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
        pytest.param("{", "cannot be used", id="no JSON"),
        pytest.param('{"QuotaConfigMapName": 1}', "cannot be used", id="no text"),
        pytest.param('{"GPUModelLabel": "m"}', "GPUModelLabel and GPUPoolLabel must both be given", id="a label less"),
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
    with pytest.raises(BadConfig, match="PORT=70000 is no port"):
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
    assert (found["doors.gpushare.port"].value, found["log.level"].value) == (port, level)


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        pytest.param([], {"doors.elastic.port": 39999}, id="nothing"),
        pytest.param(
            ["-priority", "spread", "-mode", "gpushare"],
            {"policies.gpu": {"elastic": "spread"}, "policies.node": {"elastic": "spread"}},
            id="spread",
        ),
        pytest.param(["--priority=binpack"], {"policies.node": {"elastic": "binpack"}}, id="binpack"),
        pytest.param(["-kubeconf", "/a", "-v=5"], {"kubernetes.kubeconfig": "/a", "log.level": "debug"}, id="kubeconf"),
    ],
)
def test_elastic_gpu_scheduler_s_flags(words: list[str], keys: dict[str, Any]) -> None:
    found = wanted(ELASTIC, words)
    assert {key: found[key].value for key in keys} == keys


@pytest.mark.parametrize(
    ("program", "words", "error"),
    [
        pytest.param(ADMISSION, ["--address", "3456"], "--address 3456: write ADDRESS:PORT", id="no port"),
        pytest.param(ADMISSION, ["--pprofAddress=a:b"], "--pprofAddress a:b: write ADDRESS:PORT", id="no number"),
        pytest.param(ADMISSION, ["--address=:70000"], "write ADDRESS:PORT", id="no such port"),
        pytest.param(ELASTIC, ["-priority=random"], "-priority random: write binpack or spread", id="no priority"),
        pytest.param(ELASTIC, ["-mode=pgpu,qgpu"], "without gpushare nothing is served", id="nothing to serve"),
        pytest.param(ELASTIC, ["-mode=mps"], "there is no mps, only pgpu, qgpu, gpushare", id="no such mode"),
    ],
)
def test_what_a_flag_cannot_be_is_told(program: Program, words: list[str], error: str) -> None:
    with pytest.raises(BadConfig, match=error):
        wanted(program, words)


@pytest.mark.parametrize("program", [ADMISSION, GPUSHARE, ELASTIC], ids=lambda program: program.door)
def test_what_a_program_asks_for_is_a_configuration_with_its_door_alone(program: Program) -> None:
    given = program.keys(program.understand(program.line.parse([])))
    tree = asyncio.run(Live.start(Nothing(), given)).tree
    assert [name for name in DOORS if getattr(tree.doors, name).enabled] == [program.door]
    assert tree.listen.address == program.address
    assert tree.lease.namespace == "kube-system"


@pytest.mark.parametrize("program", [ADMISSION, GPUSHARE, ELASTIC], ids=lambda program: program.door)
def test_the_guide_tells_of_every_flag(program: Program) -> None:
    guide = (Path(__file__).parents[4] / "docs" / "programs.md").read_text()
    assert program.line.program in guide
    assert [flag.name for flag in program.line.flags if f"-{flag.name}" not in guide] == []


@pytest.mark.parametrize("program", [ADMISSION, GPUSHARE, ELASTIC], ids=lambda program: program.door)
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
