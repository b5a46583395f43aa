"""The commands as processes: how they end, and what they say."""

import base64
import json
import signal
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from aliquot.dialects import standard_dialects
from aliquot.embedded.api import resources
from tests.factories import container_manifest, make_cards, node_manifest, pod_manifest
from tests.fakes import ScriptedApi
from tests.integration.cli.command import ALIQUOT, run, started
from tests.integration.cli.servers import add_namespace, kubeconfig

FAILS: list[Any] = [
    pytest.param(["server"], "no API server to talk to: name a kubeconfig", id="a server without an API server"),
    pytest.param(["server", "--kubeconfig", "/gone"], "kubeconfig /gone cannot be used", id="no file"),
    pytest.param(["server", "--kubeconfig", "{odd}"], "must start with https:// or http://", id="an odd address"),
    pytest.param(
        ["server", "--kubeconfig", "{good}", "--address", "127.0.0.1", "--gpushare-port", "{taken}"],
        "cannot listen on 127.0.0.1:{taken}: Address already in use; choose another port with --gpushare-port "
        "(in the configuration: endpoints.gpushare.port)",
        id="a port that is taken",
    ),
    pytest.param(["server", "--config-map", "foo"], "--config-map foo: write NAMESPACE/NAME", id="not a ConfigMap"),
    pytest.param(["agent", "--node-name", "n1"], "no API server to talk to", id="an agent without an API server"),
    pytest.param(
        ["agent", "--node-name", "n1", "--kubeconfig", "{good}", "--runtime-endpoint", "unix://{folder}/cri.sock"],
        "the container runtime at {folder}/cri.sock does not answer",
        id="an agent whose container runtime is silent",
    ),
    pytest.param(
        ["agent", "--node-name", "n1", "--kubeconfig", "{good}", "--dialect", "gpushare", "--dialect", "nobody"],
        "--dialect: unknown dialect nobody; valid dialects are aliquot, gpushare",
        id="an agent with an unknown dialect",
    ),
    pytest.param(
        ["server", "--kubeconfig", "{good}", "--prefix", "tencent"],
        "--prefix tencent: write DIALECT=PREFIX",
        id="a prefix for nobody",
    ),
    pytest.param(
        ["agent", "--node-name", "n1", "--kubeconfig", "{good}", "--prefix", "nobody=example.com"],
        "unknown dialect nobody",
        id="a prefix for a dialect that there is not",
    ),
    pytest.param(["demo", "--exit", "--seconds", "1e-9"], "not ready after 1e-09 s: ", id="a demo without time"),
    pytest.param(["demo", "--exit", "--api-port", "{taken}"], "{taken}", id="a demo whose port is taken"),
    pytest.param(["demo", "--exit", "--nodes", "3"], "--nodes 3: the demo needs at least 8", id="a demo without nodes"),
]


@pytest.mark.parametrize(("arguments", "text"), FAILS)
async def test_what_cannot_run_says_so_in_one_line_and_ends_with_1(
    tmp_path: Path, scripted: ScriptedApi, arguments: list[str], text: str
) -> None:
    good = kubeconfig(tmp_path, scripted.url)
    odd = tmp_path / "odd"
    odd.mkdir()
    words = {
        "good": good,
        "odd": kubeconfig(odd, "localhost:8080"),
        "taken": scripted.url.rpartition(":")[2],
        "folder": str(tmp_path),
    }
    ended = (await run(*(argument.format(**words) for argument in arguments))).clean()
    assert ended.code == 1, ended
    (line,) = (line for line in ended.err.splitlines() if not line.startswith("{"))
    assert line.startswith("aliquot: ")
    assert text.format(**words) in line


async def test_a_server_reads_pods_in_the_prefix_that_it_is_given(tmp_path: Path, scripted: ScriptedApi) -> None:
    add_namespace(scripted)
    scripted.registry.create(resources.NODES, "", node_manifest(cards=make_cards()))
    arguments = ["server", "--kubeconfig", kubeconfig(tmp_path, scripted.url), "--gpushare-port", "0"]
    async with started(*ALIQUOT, *arguments, ALIQUOT_PREFIX="gpushare=gpu.example.com") as server:
        await server.says("became the leader")
        port = server.number('"port": ')
        refused = []
        for resource in ("gpu.example.com/gpu-mem", "aliyun.com/gpu-mem"):
            pod = pod_manifest(containers=[container_manifest(gpu_mem=None, resources={"limits": {resource: "99"}})])
            async with (
                aiohttp.ClientSession() as session,
                session.post(
                    f"http://127.0.0.1:{port}/gpushare-scheduler/filter", json={"Pod": pod, "NodeNames": ["n1"]}
                ) as response,
            ):
                refused.append(bool((await response.json())["FailedNodes"]))
        await server.stop()
    assert refused == [True, False], "only the configured name is a GPU request"


async def test_the_demo_ends_with_a_table_when_every_sample_runs() -> None:
    ended = (await run("demo", "--exit")).clean()
    assert (ended.code, ended.err) == (0, "")
    table, _, told = ended.out[ended.out.index("POD ") :].partition("\n\n")
    rows = table.splitlines()[1:]
    dialects = standard_dialects()
    assert {row.split()[1] for row in rows} == set(dialects)
    (row,) = (row for row in rows if " gpushare " in row)
    assert row.split()[:4] == ["default/binpack-1", "gpushare", "gpu-1", "0:"]
    assert all(row.endswith("real agent") for row in rows)
    assert told.index("Card 0 of gpu-2 fails") < told.index("Pod patient waits: 0/8 nodes") < told.index("is back")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
async def test_a_demo_that_stays_ends_with_0_when_it_is_told_to(number: signal.Signals) -> None:
    async with started(*ALIQUOT, "demo", "--stay") as demo:
        await demo.says("default/binpack-1")
        ended = (await demo.stop(number)).clean()
    assert ended.code == 0, ended
    kubeconfig = next(line.split()[1] for line in ended.out.splitlines() if line.startswith("  kubeconfig"))
    assert not Path(kubeconfig).exists(), "it leaves nothing behind"


async def test_a_server_answers_and_ends_with_0_when_it_is_told_to(tmp_path: Path, scripted: ScriptedApi) -> None:
    scripted.registry.create(resources.NODES, "", node_manifest())
    arguments = ["server", "--kubeconfig", kubeconfig(tmp_path, scripted.url), "--address", "127.0.0.1"]
    async with started(*ALIQUOT, *arguments, ALIQUOT_GPUSHARE_PORT="0") as server:
        await server.says('"port": ')
        port = server.number('"port": ')
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            for path in ("/healthz", "/version"):
                async with session.get(path) as response:
                    assert response.status == 200
        ended = (await server.stop()).clean()
    assert ended.code == 0, ended


async def test_a_server_whose_api_server_is_away_lives_and_says_so_when_asked(tmp_path: Path) -> None:
    gone = "http://127.0.0.1:1"
    arguments = ["server", "--kubeconfig", kubeconfig(tmp_path, gone), "--address", "127.0.0.1"]
    async with started(*ALIQUOT, *arguments, "--gpushare-port", "0") as server:
        await server.says("cannot list or watch objects")
        port = server.number('"port": ')
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/readyz") as response:
            assert response.status == 503
            assert f"the API server at {gone} cannot be reached" in await response.text()
        ended = (await server.stop()).clean()
    assert ended.code == 0, ended


@pytest.mark.parametrize(
    ("bound", "warnings"), [pytest.param("", 1, id="to nothing"), pytest.param("n1", 0, id="to the node")]
)
async def test_an_agent_says_first_where_nvml_is_and_whether_its_token_has_its_node(
    tmp_path: Path, scripted: ScriptedApi, bound: str, warnings: int
) -> None:
    claims = {"kubernetes.io": {"node": {"name": bound}} if bound else {}}
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    access = yaml.safe_load(Path(kubeconfig(tmp_path, scripted.url)).read_text())
    access["users"][0]["user"] = {"token": f"e30.{payload}.c2ln"}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(access))
    words = ["agent", "--kubeconfig", str(tmp_path / "kubeconfig"), "--node-name", "n1"]
    async with started(*ALIQUOT, *words, "--driver-root", "/opt/driver", "--host-root", str(tmp_path)) as process:
        await process.says("serves no dialect yet")
        ended = (await process.stop()).clean()
    first, *lines = (json.loads(line) for line in ended.out.splitlines())
    assert first["event"] == "starting the agent"
    assert first["nvml"] == f"no libnvidia-ml.so.1 below /opt/driver in {tmp_path}"
    told = [line for line in lines if "is not bound to its node" in line["event"]]
    assert len(told) == warnings


AGENT = """
import sys
from pathlib import Path
from aliquot import agent
from aliquot.app.running import run_until_stopped
from aliquot.config.agent_tree import AgentConfig
from aliquot.embedded.gpus import SimulatedGpus
from aliquot.kube import Access, Client

async def serve():
    folder = Path(sys.argv[2])
    settings = AgentConfig(
        node_name="n1",
        dialects=("gpushare",),
        device_plugins=str(folder),
        pod_resources=str(folder / "pods.sock"),
        runtime_endpoint="",
        cdi_folder=str(folder / "cdi"),
    )
    async with Client(Access(sys.argv[1])) as client:
        await agent.run(settings, client, SimulatedGpus("n1", ["Tesla T4"]))

run_until_stopped(serve())
"""


async def test_an_agent_ends_with_0_when_it_is_told_to(folder: Path, scripted: ScriptedApi) -> None:
    """With simulated cards, since this machine has none; kubelet is not there yet either."""
    scripted.registry.create(resources.NODES, "", node_manifest())
    async with started(sys.executable, "-c", AGENT, scripted.url, str(folder)) as process:
        await process.says("published the inventory")
        ended = (await process.stop()).clean()
    assert ended.code == 0, ended
