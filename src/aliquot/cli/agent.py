"""`aliquot agent`."""

from pathlib import Path

import click

from aliquot import logs
from aliquot.agent import AgentSettings, run
from aliquot.agent.nvidia import NvidiaDevices
from aliquot.app.options import SETTINGS, dialects_with, folder, kubeconfig, log_level, option, prefix
from aliquot.app.running import run_until_stopped
from aliquot.kube import Client, find

_UNITS = {"MiB": 1, "GiB": 1024}


@click.command(context_settings=SETTINGS)
@kubeconfig
@option("--node-name", required=True, envvar=["ALIQUOT_NODE_NAME", "NODE_NAME"], help="The name of this node.")
@option(
    "--dialect",
    metavar="NAME",
    multiple=True,
    default=AgentSettings.dialects,
    help="A vocabulary in which the cards are offered (gpushare, tencent, elastic, keti, nvidia, hami, aliquot, "
    "or one of your own); may be repeated.",
)
@prefix
@option(
    "--memory-unit",
    default="GiB",
    type=click.Choice(list(_UNITS)),
    help="What one unit of aliyun.com/gpu-mem is on this node.",
)
@folder("--device-plugins", "/var/lib/kubelet/device-plugins", "kubelet's folder for device plug-ins.")
@folder("--pod-resources", "/var/lib/kubelet/pod-resources/kubelet.sock", "kubelet's PodResources socket.")
@option(
    "--runtime-endpoint",
    default="unix:///run/containerd/containerd.sock",
    help="The container runtime; it is asked whether it injects CDI devices.",
)
@folder("--cdi-folder", "/var/run/cdi", "Where the container runtime reads CDI specs.")
@folder("--dev-folder", "/dev", "Where this machine's nvidia device nodes are.")
@log_level
def command(
    kubeconfig: str | None,
    context: str,
    node_name: str,
    dialect: tuple[str, ...],
    prefix: tuple[str, ...],
    memory_unit: str,
    device_plugins: Path,
    pod_resources: Path,
    runtime_endpoint: str,
    cdi_folder: Path,
    dev_folder: Path,
    log_level: str,
) -> None:
    """Run on a GPU node: publish its cards, offer them to kubelet, and give each container exactly the placed ones.

    It needs a container runtime with CDI (containerd 2.x has it on by default) and the NVIDIA driver.
    A container without a placement gets no card; its pod's events say why.
    """
    logs.configure(log_level)
    settings = AgentSettings(
        node=node_name,
        device_plugins=device_plugins,
        pod_resources=pod_resources,
        runtime_endpoint=Path(runtime_endpoint.removeprefix("unix://")),
        cdi_folder=cdi_folder,
        unit_mib=_UNITS[memory_unit],
        dialects=dialect,
    )
    run_until_stopped(_serve(settings, NvidiaDevices(dev_folder), kubeconfig, context, prefix))


async def _serve(
    settings: AgentSettings, devices: NvidiaDevices, kubeconfig: str | None, context: str, prefixes: tuple[str, ...]
) -> None:
    dialects = dialects_with(prefixes)
    async with Client(find(kubeconfig, context)) as client:
        await run(settings, client, devices, dialects=dialects)
