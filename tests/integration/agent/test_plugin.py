"""The device plugin and kubelet, over real sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest
from structlog.testing import capture_logs

from aliquot.agent import rpc
from aliquot.agent.plugin import DevicePlugin
from aliquot.agent.proto import deviceplugin_pb2 as wire
from aliquot.dialects.gpushare import IDX
from aliquot.embedded.kubelet_devices import DeviceManager
from aliquot.errors import BadConfig, Refused
from aliquot.kube import Client
from tests.factories import GPU_COUNT, GPU_MEM
from tests.fakes import SECONDS, ScriptedApi, until
from tests.integration.agent.node import DIALECT, AgentNode

SOCKET = DIALECT.resources[0].socket
OFFERED = {GPU_MEM: 30, GPU_COUNT: 2}


async def test_kubelet_is_offered_one_id_per_unit(node: AgentNode) -> None:
    assert node.kubelet.capacity() == {GPU_MEM: 30, GPU_COUNT: 2}


async def test_the_plug_in_registers_as_the_original_and_asks_for_prestart(node: AgentNode) -> None:
    async with rpc.channel(node.kubelet.folder / SOCKET) as channel:
        options = await rpc.call(
            channel, "/v1beta1.DevicePlugin/GetDevicePluginOptions", wire.Empty(), wire.DevicePluginOptions
        )
    assert (options.pre_start_required, options.get_preferred_allocation_available) == (True, False)


async def test_allocate_never_refuses_and_never_promises_a_name_twice(node: AgentNode) -> None:
    requests = [["GPU-n1-0-_-0"], ["GPU-n1-0-_-0"], ["never heard of"], [], ["x"] * 1000]
    promised = []
    async with rpc.channel(node.kubelet.folder / SOCKET) as channel:
        for ids in requests:
            request = wire.AllocateRequest(container_requests=[wire.ContainerAllocateRequest(devices_ids=ids)])
            answer = await rpc.call(channel, "/v1beta1.DevicePlugin/Allocate", request, wire.AllocateResponse)
            (container,) = answer.container_responses
            assert not container.envs
            promised += [device.name for device in container.cdi_devices]
    assert len(set(promised)) == len(requests)
    assert all(name.startswith("aliquot.io/gpu=") for name in promised)


async def test_a_refusal_at_prestart_reaches_kubelet_as_text(node: AgentNode) -> None:
    async with rpc.channel(node.kubelet.folder / SOCKET) as channel:
        request = wire.PreStartContainerRequest(devices_ids=["GPU-n1-0-_-0"])
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await rpc.call(channel, "/v1beta1.DevicePlugin/PreStartContainer", request, wire.PreStartContainerResponse)
    assert error.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert error.value.details() == "kubelet's checkpoint lists no container with exactly these 1 device ids"


async def test_a_checkpoint_that_cannot_be_read_refuses_in_words(node: AgentNode) -> None:
    pod = await node.admitted()
    (node.kubelet.folder / "kubelet_internal_checkpoint").write_bytes(b"\xff{")
    with pytest.raises(Refused, match=r"kubelet's checkpoint .* cannot be read"):
        await node.start(pod)


async def test_an_agent_started_anew_between_allocate_and_prestart_keeps_the_promise(node: AgentNode) -> None:
    pod = await node.admitted(card=1)
    await node.restart_agent()
    assert (await node.start(pod))[IDX] == "1"


async def test_the_plug_in_registers_again_when_kubelet_restarts(
    folder: Path, scripted: ScriptedApi, client: Client
) -> None:
    node = AgentNode(folder, scripted, client)
    async with node:
        await node.kubelet.__aexit__()
        node.kubelet = DeviceManager(folder / "device-plugins")
        await node.kubelet.__aenter__()
        await node.registered()
        pod = await node.admitted()
        assert (await node.start(pod))[IDX] == "0"


async def test_the_plug_in_registers_again_within_a_second_of_kubelet_s_return(
    folder: Path, scripted: ScriptedApi, client: Client
) -> None:
    node = AgentNode(folder, scripted, client)
    async with node:
        await node.kubelet.__aexit__()
        await node.looks.move(100)
        node.kubelet = DeviceManager(folder / "device-plugins")
        await node.kubelet.__aenter__()
        began = node.looks.monotonic()
        await until(lambda: node.looks.sleeping == len(OFFERED), "both plugins wait for their next look")
        await node.looks.move(0.5)
        await until(lambda: node.kubelet.capacity() == OFFERED, "both are registered, and no more time goes by")
        assert node.looks.monotonic() == began + 0.5, "the other half is for the work itself"


async def test_the_plug_in_comes_back_when_its_socket_is_removed(node: AgentNode) -> None:
    """A real kubelet removes every socket of its folder when it starts."""
    path = node.kubelet.folder / SOCKET
    path.unlink()
    await until(path.exists, "the socket is there again", passing=node.looks)
    await node.registered()


@asynccontextmanager
async def taking_registrations(folder: Path, answer: Callable[[str], Awaitable[str]]) -> AsyncIterator[list[str]]:
    """A kubelet that only takes registrations; `answer` gets the name of the plugin's socket and says why it is
    refused. The names that were sent are in the list."""
    sent: list[str] = []

    async def register(request: wire.RegisterRequest, context: "rpc.Context") -> wire.Empty:
        sent.append(request.endpoint)
        if refusal := await answer(request.endpoint):
            await context.abort(grpc.StatusCode.UNKNOWN, refusal)
        return wire.Empty()

    methods = {"Register": rpc.unary(register, wire.RegisterRequest)}
    server = rpc.server("v1beta1.Registration", methods, folder / "kubelet.sock")
    await server.start()
    yield sent
    await server.stop(None)


@pytest.fixture
async def plugin(folder: Path, scripted: ScriptedApi, client: Client) -> AsyncIterator[tuple[AgentNode, DevicePlugin]]:
    """A plugin that serves, and a kubelet that has not started yet."""
    node = AgentNode(folder, scripted, client)
    node.kubelet.folder.mkdir(parents=True)
    made = (await node.plugins())[0]
    serving = asyncio.create_task(made.serve())
    await until((node.kubelet.folder / SOCKET).exists, "the plugin serves")
    yield node, made
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    assert [left.name for left in node.kubelet.folder.iterdir() if left.name.startswith(SOCKET)] == []


async def test_a_socket_that_kubelet_removes_before_it_takes_registrations_comes_back(
    plugin: tuple[AgentNode, DevicePlugin],
) -> None:
    """The agent was there first. kubelet removes every socket when it starts, and calls back to whoever registers."""
    node, made = plugin
    folder = node.kubelet.folder
    (folder / SOCKET).unlink()

    async def call_back(endpoint: str) -> str:
        return "" if (folder / endpoint).exists() else "failed to dial device plugin"

    async with taking_registrations(folder, call_back):
        await until(lambda: made.is_registered, "the plugin is registered", passing=node.looks)


async def test_a_kubelet_that_holds_on_to_a_dead_plugin_is_offered_another_socket(
    plugin: tuple[AgentNode, DevicePlugin],
) -> None:
    """kubelet 1.37 does so when the next agent registers before kubelet has noticed that the last one has died."""
    node, made = plugin
    held = [SOCKET, f"{SOCKET}.1"]

    async def refuse(endpoint: str) -> str:
        return f"device plugin already connected: {endpoint}" if endpoint in held else ""

    async with taking_registrations(node.kubelet.folder, refuse) as sent:
        await until(lambda: made.is_registered, "the plugin is registered", passing=node.looks)
        assert sent == [*held, f"{SOCKET}.2"]
        assert [path.name for path in node.kubelet.folder.glob(f"{SOCKET}*")] == [f"{SOCKET}.2"]
        held.clear()
    (node.kubelet.folder / "kubelet.sock").unlink(missing_ok=True)
    async with taking_registrations(node.kubelet.folder, refuse) as sent:
        await until(lambda: made.is_registered and sent, "it is registered with the next kubelet", passing=node.looks)
        assert sent == [SOCKET]


async def test_a_refusal_is_logged_once_until_kubelet_takes_the_registration(
    plugin: tuple[AgentNode, DevicePlugin],
) -> None:
    node, made = plugin
    answers = ["busy"] * 5 + ["busier"] * 5 + [""]

    async def refuse(_: str) -> str:
        return answers.pop(0)

    with capture_logs() as logs:
        async with taking_registrations(node.kubelet.folder, refuse):
            await until(lambda: made.is_registered, "the plugin is registered", passing=node.looks)
    assert [log["error"] for log in logs if log["log_level"] == "warning"] == ["busy", "busier"]


async def test_a_registration_whose_answer_is_lost_counts(plugin: tuple[AgentNode, DevicePlugin]) -> None:
    node, made = plugin

    async def follow(endpoint: str) -> str:
        async with rpc.channel(node.kubelet.folder / endpoint) as channel:
            lists = channel.unary_stream(
                "/v1beta1.DevicePlugin/ListAndWatch",
                request_serializer=wire.Empty.SerializeToString,
                response_deserializer=wire.ListAndWatchResponse.FromString,
            )
            await lists(wire.Empty()).read()
        return f"device plugin already connected: {endpoint}"

    async with taking_registrations(node.kubelet.folder, follow) as sent:
        await until(lambda: made.is_registered, "the plugin is registered", passing=node.looks)
        assert sent == [SOCKET]


async def test_sockets_that_killed_agents_left_are_removed_and_a_living_one_is_named(
    folder: Path, scripted: ScriptedApi, client: Client
) -> None:
    node = AgentNode(folder, scripted, client)
    node.kubelet.folder.mkdir(parents=True)
    for number in (1, 2):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(node.kubelet.folder / f"{SOCKET}.{number}"))
    async with node:
        assert [path.name for path in node.kubelet.folder.glob(f"{SOCKET}*")] == [SOCKET]
        await node.stop_agent()
        with socket.socket(socket.AF_UNIX) as living:
            living.bind(str(node.kubelet.folder / f"{SOCKET}.1"))
            living.listen()
            with pytest.raises(BadConfig, match=rf"another device plugin serves {GPU_MEM} on .*{SOCKET}\.1;"):
                await asyncio.wait_for((await node.plugins())[0].serve(), SECONDS)


async def test_a_rival_on_the_same_socket_is_named_and_left_alone(node: AgentNode) -> None:
    with pytest.raises(BadConfig, match=f"another device plugin serves aliyun.com/gpu-mem on .*{SOCKET}"):
        await asyncio.wait_for((await node.plugins())[0].serve(), SECONDS)
    assert node.kubelet.capacity() == {GPU_MEM: 30, GPU_COUNT: 2}


async def test_a_rival_that_came_with_a_restart_of_kubelet_keeps_its_socket_and_is_named(node: AgentNode) -> None:
    """kubelet removes every socket when it starts, and whoever is first serves on the path from then on."""
    await node.stop_agent()
    await until(lambda: not node.kubelet.capacity()[GPU_MEM], "kubelet hears that it has ended", passing=node.looks)
    serving = asyncio.create_task((await node.plugins())[0].serve())
    await until(lambda: node.kubelet.capacity()[GPU_MEM], "the plugin is registered", passing=node.looks)
    path = node.kubelet.folder / SOCKET
    path.unlink()
    with socket.socket(socket.AF_UNIX) as rival:
        rival.bind(str(path))
        rival.listen()
        inode = path.stat().st_ino
        await until(serving.done, "the plugin gives way", passing=node.looks)
        with pytest.raises(BadConfig, match=f"another device plugin serves {GPU_MEM} on {path}; remove it first"):
            await serving
        assert path.stat().st_ino == inode
        with socket.socket(socket.AF_UNIX) as kubelet:
            kubelet.connect(str(path))
    assert [left.name for left in node.kubelet.folder.iterdir() if left.name.startswith(".ali")] == []


@pytest.mark.parametrize("name", ["gone", "long" * 30], ids=["a folder that is not there", "a path too long"])
async def test_a_folder_in_which_no_socket_can_be_is_named(
    folder: Path, scripted: ScriptedApi, client: Client, name: str
) -> None:
    node = AgentNode(folder, scripted, client)
    node.kubelet.folder = folder / name
    if name != "gone":
        node.kubelet.folder.mkdir()
    with pytest.raises(BadConfig, match=f"cannot listen on {folder / name}/{SOCKET}"):
        await asyncio.wait_for((await node.plugins())[0].serve(), SECONDS)


async def test_the_socket_of_a_plug_in_that_died_is_replaced(
    folder: Path, scripted: ScriptedApi, client: Client
) -> None:
    node = AgentNode(folder, scripted, client)
    node.kubelet.folder.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as dead:  # asyncio would remove the file since Python 3.13
        dead.bind(str(node.kubelet.folder / SOCKET))
    async with node:
        assert node.kubelet.capacity() == {GPU_MEM: 30, GPU_COUNT: 2}


async def test_the_plug_in_leaves_no_socket_behind(node: AgentNode) -> None:
    await node.stop_agent()
    assert not (node.kubelet.folder / SOCKET).exists()
    await node.start_agent()
