"""The originals' programs: their flags and variables do what they say, with Aliquot behind their routes."""

import json
import re
import signal
import socket
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from aliquot.embedded.api import resources
from tests.factories import container_manifest, make_cards, node_manifest, pod_manifest
from tests.fakes import ScriptedApi
from tests.fakes.api import Embedded
from tests.integration.cli.command import started
from tests.integration.cli.programs import (
    ADMISSION,
    ELASTIC,
    ENDPOINTS,
    GPUSHARE,
    NANO,
    Running,
    command,
    ended,
    is_ready,
    running,
)
from tests.integration.cli.servers import bind_call, filter_call, kubeconfig

PROGRAMS = tuple(ENDPOINTS)


@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_program_opens_its_endpoint_alone_and_ends_with_0_when_it_is_told_to(
    tmp_path: Path, scripted: ScriptedApi, program: str
) -> None:
    scripted.registry.create(resources.NODES, "", node_manifest(cards=make_cards()))
    async with running(program, scripted, tmp_path) as server:
        for path in ("/version", "/healthz", "/metrics"):
            assert (await server.get(path))[0] == 200, path
        last = (await server.process.stop(signal.SIGTERM)).clean()
    assert last.code == 0, last
    listening = [line for line in last.out.splitlines() if "listening" in line]
    assert len(listening) == 1, "no second port"


async def test_a_program_has_another_port_for_health_if_it_is_told_one(tmp_path: Path, scripted: ScriptedApi) -> None:
    port = free_port()
    told = {"ALIQUOT_HEALTH_PORT": str(port), "ALIQUOT_NATIVE_CALLERS": "anyone"}
    async with running(ADMISSION, scripted, tmp_path, **told) as server:
        health = Running(server.process, f"http://127.0.0.1:{port}")
        for path in ("/healthz", "/metrics"):
            assert (await health.get(path))[0] == 200, path
        (await server.process.stop()).clean()


async def test_a_program_does_not_ask_for_tokens_in_the_clear_on_a_port_for_health() -> None:
    last = await ended(ADMISSION, "--address=0.0.0.0:0", ALIQUOT_HEALTH_PORT="12341")
    assert last.code == 1
    assert (
        "endpoints.native.callers, which also applies to listen.healthPort: other machines can reach 0.0.0.0"
        in last.err
    )


@pytest.mark.parametrize("program", PROGRAMS)
async def test_a_program_whose_port_is_taken_names_its_own_setting(
    tmp_path: Path, scripted: ScriptedApi, program: str
) -> None:
    taken = scripted.url.rpartition(":")[2]
    flags = [f"--address=127.0.0.1:{taken}"] if program == ADMISSION else []
    setting = "--address" if program == ADMISSION else "the variable PORT"
    variables = {"KUBECONFIG": kubeconfig(tmp_path, scripted.url), "ALIQUOT_ADDRESS": "127.0.0.1", "PORT": taken}
    last = await ended(program, *flags, **variables)
    assert last.code == 1
    assert (
        f"cannot listen on 127.0.0.1:{taken}: Address already in use; choose another port with {setting}"
        in (last.err.splitlines())[-1]
    )


@pytest.mark.parametrize(("program", "script"), [(name, name.replace("_", "-")) for name in PROGRAMS])
def test_a_program_is_installed_by_its_original_s_name(program: str, script: str) -> None:
    scripts = tomllib.loads(Path("pyproject.toml").read_text())["project"]["scripts"]
    assert scripts[script] == f"aliquot.app.programs.{program}:main"
    assert callable(import_module(f"aliquot.app.programs.{program}").main)


@pytest.mark.parametrize(
    ("program", "flags", "variables", "code", "error"),
    [
        pytest.param(ADMISSION, ["--nope"], {}, 2, "unknown flag: --nope", id="a flag that there is not"),
        pytest.param(ADMISSION, ["--kubeconfig", "/gone"], {}, 1, "kubeconfig /gone cannot", id="no --kubeconfig"),
        pytest.param(ADMISSION, ["--incluster-mode"], {}, 1, "not running in a pod", id="not in a cluster"),
        pytest.param(ADMISSION, ["--logtostderr=false", "--log-dir=/gone"], {}, 1, "folder /gone", id="no log folder"),
        pytest.param(ELASTIC, ["-kubeconf=/gone"], {}, 1, "kubeconfig /gone cannot be used", id="no -kubeconf"),
        pytest.param(GPUSHARE, [], {"KUBECONFIG": "/gone"}, 1, "kubeconfig /gone cannot be used", id="no KUBECONFIG"),
        pytest.param(GPUSHARE, [], {"ALIQUOT_LOG_LEVEL": "loud"}, 1, "'loud' is not one of", id="a wrong variable"),
    ],
)
async def test_what_cannot_run_says_so_first_and_ends_with_a_code(
    program: str, flags: list[str], variables: dict[str, str], code: int, error: str
) -> None:
    last = await ended(program, *flags, **variables)
    assert (last.code, last.out) == (code, "")
    assert error in last.err.splitlines()[0]


READ = ["get", "list", "watch"]
GPUSHARE_S_RIGHTS = [
    {"apiGroups": [""], "resources": [resource], "verbs": verbs}
    for resource, verbs in {
        "nodes": READ,
        "events": ["create", "patch"],
        "pods": ["update", "patch", *READ],
        "bindings": ["create"],
        "pods/binding": ["create"],
        "configmaps": READ,
    }.items()
]


async def test_with_the_original_s_rights_it_runs_alone_without_a_lease_and_binds(
    tmp_path: Path, scripted: ScriptedApi
) -> None:
    assert isinstance(scripted.behind, Embedded)
    scripted.behind.cluster.users.add("gpushare", token="secret", rules=GPUSHARE_S_RIGHTS)
    scripted.registry.create(resources.NODES, "", node_manifest(cards=make_cards()))
    pod = scripted.registry.create(resources.PODS, "default", pod_manifest()).obj
    path = Path(kubeconfig(tmp_path, scripted.url))
    limited = tmp_path / "limited"
    limited.write_text(path.read_text().replace("user: {}", "user: {token: secret}"))
    async with running(GPUSHARE, scripted, tmp_path, KUBECONFIG=str(limited)) as server:
        await server.post("/gpushare-scheduler/filter", filter_call(pod))
        assert await server.post("/gpushare-scheduler/bind", bind_call(pod)) == {"Error": ""}
        (await server.process.stop()).clean()
    assert len(scripted.bindings()) == 1
    assert [seen for seen in scripted.writes() if "leases" in seen.path] == []


# -- who is answered


@pytest.mark.parametrize("program", ENDPOINTS)
async def test_a_program_answers_anyone_as_its_original_and_says_so(
    tmp_path: Path, scripted: ScriptedApi, program: str
) -> None:
    said = f"the {ENDPOINTS[program]} endpoint answers anyone who can reach its port"
    async with running(program, scripted, tmp_path) as server:
        await server.process.says(said)
        assert said in (await server.get("/readyz"))[1]
        (await server.process.stop()).clean()


# -- gpu-admission


async def test_gpu_admission_reaches_the_master_that_a_flag_names_with_a_kubeconfig_or_without(
    tmp_path: Path, scripted: ScriptedApi
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    wrong = kubeconfig(elsewhere, "http://127.0.0.1:1")
    for flags in (("--kubeconfig", wrong), ()):
        async with running(ADMISSION, scripted, tmp_path, *flags, f"--master={scripted.url}", KUBECONFIG="") as server:
            assert (await server.get("/healthz"))[0] == 200
            (await server.process.stop()).clean()


async def test_gpu_admission_has_a_debug_port_and_goes_on_if_it_cannot_be_had(
    tmp_path: Path, scripted: ScriptedApi
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with running(ADMISSION, scripted, tmp_path, f"--pprofAddress=127.0.0.1:{port}") as server:
            await server.process.says("continuing without the debug port")
            assert (await server.get("/healthz"))[0] == 200
            (await server.process.stop()).clean()
    async with running(ADMISSION, scripted, tmp_path, f"--pprofAddress=127.0.0.1:{port}") as server:
        debug = Running(server.process, f"http://127.0.0.1:{port}")
        status, text = await debug.get("/debug/pprof/goroutine?debug=2")
        assert status == 200
        assert re.search(r'/control/plane.py", line \d+, in run$', text, re.MULTILINE)
        assert (await server.get("/debug/pprof/"))[0] == 404, "not on the endpoint's own port"
        (await server.process.stop()).clean()


async def test_gpu_admission_reads_quotas_where_its_file_says(tmp_path: Path, scripted: ScriptedApi) -> None:
    file = tmp_path / "gpu-quota-admission.config"
    names = {"QuotaConfigMapName": "other", "QuotaConfigMapNamespace": "default", "SkipBindTime": 300000}
    labels = {"GPUModelLabel": "example.com/model", "GPUPoolLabel": "example.com/pool"}
    file.write_text(json.dumps({**names, **labels}))
    async with running(ADMISSION, scripted, tmp_path, "--config", str(file)) as server:
        assert any("namespaces/default/configmaps" in seen.path for seen in scripted.seen)
        (await server.process.stop()).clean()


# -- logs


async def test_klog_lines_have_klog_s_form(tmp_path: Path, scripted: ScriptedApi) -> None:
    async with running(ELASTIC, scripted, tmp_path, "-v=0") as server:
        last = (await server.process.stop()).clean()
    (line,) = (line for line in last.out.splitlines() if '"in sync with the API server"' in line)
    header, _, text = line.partition("] ")
    letter_and_day, time, process, place = header.split()
    assert (letter_and_day[0], len(letter_and_day), len(time)) == ("I", 5, 15)
    assert process.isdecimal()
    assert place.startswith("plane.py:")
    assert text == '"in sync with the API server" nodes=0 pods=0'


@pytest.mark.parametrize(
    ("flags", "told", "not_told"),
    [
        pytest.param(["-v=0"], [], ['"filter"', '"request"'], id="0: what happens"),
        pytest.param(["-v=4"], ['"filter" pod="default/p" nodes=1 passed=["n1"]'], ['"request"'], id="4: calls"),
        pytest.param(["--vmodule=endpoints/*=9,lead*=1"], ['"filter"', '"request"', '"response"'], [], id="one folder"),
    ],
)
async def test_the_verbosity_and_vmodule_choose_what_is_logged(
    tmp_path: Path, scripted: ScriptedApi, flags: list[str], told: list[str], not_told: list[str]
) -> None:
    scripted.registry.create(resources.NODES, "", node_manifest(cards=make_cards()))
    pod = scripted.registry.create(resources.PODS, "default", asking_half("p")).obj
    async with running(ELASTIC, scripted, tmp_path, *flags) as server:
        await server.post("/scheduler/filter", {"Pod": pod, "NodeNames": ["n1"]})
        last = (await server.process.stop()).clean()
    assert [text for text in told if text not in last.out] == []
    assert [text for text in not_told if text in last.out] == []


async def test_the_log_file_has_every_line_and_flags_without_effect_are_named(
    tmp_path: Path, scripted: ScriptedApi
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    flags = ("--logtostderr=false", f"--log_dir={logs}", "--alsologtostderr", "--log_file_max_size=10")
    async with running(ADMISSION, scripted, tmp_path, *flags) as server:
        last = (await server.process.stop()).clean()
    (file,) = logs.iterdir()
    assert file.name == "gpu-admission.INFO"
    assert '"in sync with the API server"' in file.read_text()
    assert last.out == file.read_text()
    (remark,) = (line for line in last.out.splitlines() if '"this has no effect"' in line)
    assert "--log_file_max_size" in remark


@pytest.mark.parametrize(
    ("level", "levels"),
    [
        pytest.param("debug", {"debug", "info"}, id="debug"),
        pytest.param("loud", set(), id="what is no level counts as warn"),
    ],
)
async def test_gpushare_s_lines_are_json_on_standard_output(
    tmp_path: Path, scripted: ScriptedApi, level: str, levels: set[str]
) -> None:
    port = free_port()
    environment = {"KUBECONFIG": kubeconfig(tmp_path, scripted.url), "PORT": str(port), "LOG_LEVEL": level}
    async with started(*command(GPUSHARE), merged=False, **environment) as process:
        server = Running(process, f"http://127.0.0.1:{port}")
        await is_ready(server)
        await server.post("/gpushare-scheduler/filter", {"Pod": pod_manifest(), "NodeNames": ["n1"]})
        last = (await process.stop()).clean()
    assert last.err == ""
    lines = [json.loads(line) for line in last.out.splitlines()]
    assert all(line.keys() >= {"level", "ts", "caller", "msg"} for line in lines)
    assert {line["level"] for line in lines} - {"warn", "error"} == levels


# -- elastic-gpu-scheduler


OURS = {"ALIQUOT_GPU_POLICY": "elastic=spread", "ALIQUOT_NODE_POLICY": "elastic=spread"}
LOADED = ("--prometheusUrl", "http://10.0.200.47:9090", "--isLoadSchedule", "true")


@pytest.mark.parametrize(
    ("program", "flags", "environment", "told", "node", "card"),
    [
        pytest.param(
            ELASTIC,
            ("-priority", "binpack", "-mode", "pgpu,gpushare"),
            {"THREADNESS": "4"},
            "-mode pgpu: only gpushare has an effect",
            "used",
            "1",
            id="elastic-gpu-scheduler: of equal cards the last one",
        ),
        pytest.param(
            ELASTIC, ("-priority", "spread"), OURS, "-priority spread: does not", "empty", "0", id="our own policies"
        ),
        pytest.param(
            NANO,
            ("--priority", "binpack", *LOADED),
            {},
            "--isLoadSchedule: Aliquot reads no load",
            "used",
            "0",
            id="nano-gpu-scheduler 0.4.0",
        ),
        pytest.param(NANO, ("-priority=spread",), {}, "", "empty", "1", id="nano-gpu-scheduler, spread"),
    ],
)
async def test_the_priority_chooses_between_a_used_node_and_an_empty_one_and_between_cards(
    tmp_path: Path,
    scripted: ScriptedApi,
    program: str,
    flags: tuple[str, ...],
    environment: dict[str, str],
    told: str,
    node: str,
    card: str,
) -> None:
    for name in ("used", "empty"):
        scripted.registry.create(resources.NODES, "", node_manifest(name, make_cards(name, mib=(16000, 16000))))
    scripted.registry.create(resources.PODS, "default", asking_half("held", node="used"))
    pod = scripted.registry.create(resources.PODS, "default", asking_half("p")).obj
    async with running(program, scripted, tmp_path, *flags, **environment) as server:
        await server.process.says(told)
        nodes = {"Pod": pod, "NodeNames": ["used", "empty"]}
        await server.post("/scheduler/filter", nodes)
        scores = await server.post("/scheduler/priorities", nodes)
        bound = await server.post("/scheduler/bind", bind_call(pod, "empty"))
        (await server.process.stop()).clean()
    assert max(scores, key=lambda one: one["Score"])["Host"] == node, scores
    assert bound == {"Error": ""}
    written = scripted.registry.get(resources.PODS, "default", "p").obj["metadata"]["annotations"]
    assert written["elastic-gpu/container-main"] == card


def asking_half(name: str, node: str = "") -> Any:
    """A pod that asks half a card; on a node it has its first one."""
    container = container_manifest(gpu_mem=None, resources={"limits": {"elastic-gpu/gpu-percent": "50"}})
    marks = {"elastic-gpu/assume": "true", "elastic-gpu/container-main": "0"} if node else {}
    return pod_manifest(name, containers=[container], node=node, metadata={"annotations": marks})


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        found: int = one.getsockname()[1]
        return found
