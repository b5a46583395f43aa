"""The originals' device plugins: their flags and variables, with Aliquot's agent behind them."""

import json
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from aliquot.app.programs.device_plugins import (
    elastic_gpu_agent,
    gpu_manager,
    gpuserver_ds,
    gpushare_device_plugin,
)
from aliquot.app.programs.device_plugins.agent_program import AgentProgram
from aliquot.config.agent_tree import AGENT, AgentConfig
from aliquot.config.sections.common import AgentKubernetesSection
from aliquot.dialects.node_reading import SERVES
from aliquot.embedded.api import resources
from aliquot.errors import BadConfig
from aliquot.model.records import OBSERVED
from image.flavours import SERVER_ONLY
from tests.fakes import ScriptedApi, answer
from tests.integration.cli.programs import ended
from tests.integration.cli.servers import kubeconfig

GPUSHARE, ELASTIC, MANAGER = gpushare_device_plugin.PROGRAM, elastic_gpu_agent.PROGRAM, gpu_manager.PROGRAM
OBSERVING = gpuserver_ds.PROGRAM
MODULES = {
    "gpushare-device-plugin-v2": "gpushare_device_plugin",
    "elastic-gpu-agent": "elastic_gpu_agent",
    "gpu-manager": "gpu_manager",
    "gpuserver-ds": "gpuserver_ds",
}


def keys(program: AgentProgram, *words: str) -> dict[str, Any]:
    """What the command line makes of the configuration, except for what keeps its default."""
    translated = program.translate(program.line.parse(words))
    effective = AGENT.read("", "", program.keys(translated))
    return {path: value for path, value in effective.values.items() if effective.origins[path] != "default"}


@pytest.mark.parametrize(
    ("program", "words", "expected"),
    [
        pytest.param(
            GPUSHARE,
            ["-logtostderr", "--v=5", "--memory-unit=GiB"],
            {"dialects": ("gpushare",), "memoryUnit": "GiB", "log.level": "debug"},
            id="gpushare's manifest",
        ),
        pytest.param(GPUSHARE, ["--memory-unit=MiB"], {"dialects": ("gpushare",), "memoryUnit": "MiB"}, id="MiB"),
        pytest.param(GPUSHARE, ["--memory-unit=KiB"], {"dialects": ("gpushare",), "memoryUnit": "GiB"}, id="no unit"),
        pytest.param(
            ELASTIC,
            ["--nodename=other", "--dbfile=/host/var/lib/nanogpu/meta.db"],
            {"dialects": ("elastic",), "nodeName": "other"},
            id="elastic-gpu's manifest",
        ),
        pytest.param(
            ELASTIC,
            ["-nodeName=other", "-dbFile=/x", "-gpuPluginName=gpushare", "-kubeconf=/k"],
            {"dialects": ("elastic",), "nodeName": "other", "kubernetes.kubeconfig": "/k"},
            id="its newest flags",
        ),
        pytest.param(
            MANAGER,
            ["--hostname-override=other", "--share-mode=true", "--device-plugin-path=/p", "--query-port=1", "-v2"],
            {"dialects": ("tencent",), "nodeName": "other", "devicePlugins": "/p", "log.level": "info"},
            id="gpu-manager's start script",
        ),
        pytest.param(
            MANAGER,
            ["--incluster-mode=true", "--docker-endpoint=unix:////var/run/docker.sock"],
            {"dialects": ("tencent",), "kubernetes.asPod": True},
            id="gpu-manager's first manifest",
        ),
        pytest.param(
            MANAGER,
            ["--container-runtime-endpoint=/run/c.sock", "--kubeconfig=/k"],
            {
                "dialects": ("tencent",),
                "nodeName": "n1",
                "runtimeEndpoint": "/run/c.sock",
                "kubernetes.kubeconfig": "/k",
            },
            id="where gpu-manager finds things",
        ),
        pytest.param(OBSERVING, ["--v=2"], {"log.level": "info"}, id="gpuserver-ds's manifest"),
        pytest.param(
            OBSERVING,
            ["--localPodResourcesEndpoint=unix:///p/kubelet.sock", "--interval-wait-service=1s"],
            {"podResources": "/p/kubelet.sock"},
            id="gpuserver-ds's flags",
        ),
    ],
)
def test_flags_become_keys_of_the_agent(
    monkeypatch: pytest.MonkeyPatch, program: AgentProgram, words: list[str], expected: dict[str, Any]
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("NODE_NAME", "n1")
    assert keys(program, *words) == {"nodeName": "n1", **expected}


def test_gpuserver_ds_takes_the_node_s_name_from_its_own_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("NODENAME", "n2")
    assert keys(OBSERVING) == {"nodeName": "n2"}, "no dialect: the labels of the node decide"


def test_a_kubeconfig_that_is_not_mounted_means_the_service_account(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NODE_NAME", "n1")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubelet.conf"))
    assert keys(GPUSHARE)["kubernetes.asPod"] is True
    (tmp_path / "kubelet.conf").touch()
    assert "kubernetes.asPod" not in keys(GPUSHARE)


def test_our_variables_override_a_program_s_defaults_and_its_flags_override_both(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NODE_NAME", "n1")
    monkeypatch.setenv("ALIQUOT_MEMORY_UNIT", "MiB")
    monkeypatch.setenv("ALIQUOT_DRIVER_ROOT", "/opt/driver")
    monkeypatch.setenv("ALIQUOT_DIALECT", "gpushare aliquot")
    found = keys(GPUSHARE)
    assert (found["memoryUnit"], found["driverRoot"]) == ("MiB", "/opt/driver")
    assert found["dialects"] == ("gpushare", "aliquot")
    assert keys(GPUSHARE, "--memory-unit=GiB")["memoryUnit"] == "GiB"


@pytest.mark.parametrize(
    ("module", "words", "code", "error"),
    [
        pytest.param("gpushare_device_plugin", ["--nope"], 2, "flag provided but not defined: -nope", id="no flag"),
        pytest.param("gpushare_device_plugin", [], 1, "is not the name of a node", id="no node name"),
        pytest.param("elastic_gpu_agent", ["-gpuPluginName=x"], 1, "unknown plugin; valid plugins are", id="no plugin"),
        pytest.param("gpu_manager", ["--driver=dummy"], 1, "Aliquot serves NVIDIA's cards only", id="no driver"),
    ],
)
async def test_what_cannot_run_says_so_first_and_ends_with_a_code(
    module: str, words: list[str], code: int, error: str
) -> None:
    last = await ended(f"device_plugins.{module}", *words)
    assert (last.code, last.out) == (code, "")
    assert error in last.err.splitlines()[0]


@pytest.mark.parametrize(("script", "module"), MODULES.items())
def test_a_program_is_installed_by_its_original_s_name(script: str, module: str) -> None:
    scripts = tomllib.loads(Path("pyproject.toml").read_text())["project"]["scripts"]
    assert scripts[script] == f"aliquot.app.programs.device_plugins.{module}:main"
    assert callable(import_module(f"aliquot.app.programs.device_plugins.{module}").main)


def test_the_agent_and_its_programs_import_nothing_that_only_the_server_needs() -> None:
    """Their image has none of it."""
    modules = ["aliquot.cli.agent", *(f"aliquot.app.programs.device_plugins.{module}" for module in MODULES.values())]
    code = f"import sys, json; import {', '.join(modules)}; print(json.dumps(sorted(sys.modules)))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    assert {name.partition(".")[0] for name in loaded} & set(SERVER_ONLY) == set()


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({"nodeinfo": "gpu"}, {"nodeinfo": "gpu", OBSERVED: "true"}, id="the original's label"),
        pytest.param({OBSERVED: "false"}, {OBSERVED: "false"}, id="somebody said no"),
        pytest.param({f"{SERVES}nvidia": "true"}, {f"{SERVES}nvidia": "true"}, id="our agent owns it"),
    ],
)
async def test_gpuserver_ds_observes_its_node_unless_a_label_of_ours_says_otherwise(
    tmp_path: Path, scripted: ScriptedApi, labels: dict[str, str], expected: dict[str, str]
) -> None:
    scripted.registry.create(resources.NODES, "", {"metadata": {"name": "n1", "labels": labels}})
    access = AgentKubernetesSection(kubeconfig=kubeconfig(tmp_path, scripted.url))
    await gpuserver_ds.observe_own_node(AgentConfig(access, "n1"))
    (node,) = scripted.store.snapshot("nodes")
    assert node.obj["metadata"]["labels"] == expected


async def test_gpuserver_ds_does_not_take_a_node_from_its_plugin_if_it_cannot_label_it(
    tmp_path: Path, scripted: ScriptedApi
) -> None:
    scripted.registry.create(resources.NODES, "", {"metadata": {"name": "n1", "labels": {"nodeinfo": "gpu"}}})
    scripted.script("PATCH", "nodes/n1", answer(403))
    access = AgentKubernetesSection(kubeconfig=kubeconfig(tmp_path, scripted.url))
    with pytest.raises(BadConfig, match="kubectl label node n1"):
        await gpuserver_ds.observe_own_node(AgentConfig(access, "n1"))
