"""`aliquot agent`: connects the agent to the API server and to NVIDIA's driver."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

import aliquot
from aliquot import logs
from aliquot.agent import run, runtime
from aliquot.agent.devices import Verdict
from aliquot.agent.nvidia import NvidiaDevices, toolkit_spec
from aliquot.agent.nvidia.container_runtime import find_nvidia_runtime
from aliquot.agent.nvidia.driver_files import DriverFiles
from aliquot.agent.nvidia.driver_library import DriverLibrary
from aliquot.agent.nvidia.exporters import EXPORTERS
from aliquot.agent.nvidia.injection import Injection
from aliquot.agent.rights import say_what_is_missing
from aliquot.app import light_start
from aliquot.config.agent_tree import AGENT, AgentConfig
from aliquot.config.declaration import Given
from aliquot.dialects import make_dialects
from aliquot.errors import BadConfig, NoDriver
from aliquot.kube import Access, Client
from aliquot.kube.token_claims import node_of

_log = structlog.get_logger()


async def serve(given: Mapping[str, Given]) -> None:
    """Run until cancelled. `given` are the keys that flags and variables set. Raises BadConfig."""
    config = AGENT.read("", "", given).tree
    logs.configure(config.log.level)
    await serve_config(config)


async def serve_config(config: AgentConfig) -> None:
    """Run until cancelled. Raises BadConfig."""
    library = DriverLibrary(config.driver_root, config.host_root)
    try:
        nvml = library.load()
    except NoDriver as error:
        nvml = str(error)
    _log.info("starting the agent", version=aliquot.__version__, node=config.node_name, nvml=nvml)
    dialects = make_dialects(config.prefixes)
    access = config.kubernetes.access()
    _warn_of_unbound_token(access, config.node_name)
    async with Client(access) as client:
        await say_what_is_missing(client)
        verdicts = {code: Verdict(word) for code, word in config.xids.items()}
        devices = NvidiaDevices(Path(config.dev_folder), library, await _injection(config), verdicts=verdicts)
        light_start.drop_code_of_the_start()
        await run(config, client, devices, dialects=dialects, exporters=EXPORTERS)


async def _injection(config: AgentConfig) -> Injection:
    """How containers get the driver's files on this node. Raises BadConfig."""
    host_root = Path(config.host_root)
    folders = [Path(config.cdi_folder), *(host_root / folder.lstrip("/") for folder in toolkit_spec.FOLDERS)]
    handlers = await _handlers(config)
    return Injection(
        toolkit_spec.ToolkitSpecs(folders, host_root),
        DriverFiles(config.driver_root, config.host_root),
        find_nvidia_runtime(handlers, host_root),
        is_complete=bool(handlers),
    )


async def _handlers(config: AgentConfig) -> Sequence[runtime.Handler]:
    """Raises BadConfig if the runtime is there and silent: it may come up a moment later, and have NVIDIA's among its
    handlers."""
    socket = config.runtime_socket
    if socket is None:
        return ()
    try:
        return await runtime.handlers(socket)
    except BadConfig:
        if socket.parent.is_dir():
            raise
        return ()  # an original's manifest does not mount it


def _warn_of_unbound_token(access: Access, node: str) -> None:
    """The policy aliquot-agent-reach refuses every write by a token that is not bound to this node."""
    try:
        bound = node_of(access.current_token() or "")
    except OSError:
        return  # the client says so when it uses the token
    if bound is not None and bound != node:
        _log.warning(
            "the token of this agent is not bound to its node, so the policy aliquot-agent-reach refuses its writes",
            node=node,
            bound_to=bound or "no node",
            what="a pod gets such a token from Kubernetes 1.30 on; elsewhere create it with --bound-object-kind Node",
        )
