"""kubelet's checkpoint of the device manager."""

import base64
from pathlib import Path

import pytest

from aliquot.agent import checkpoint
from aliquot.agent.checkpoint import Grant
from aliquot.agent.devices import ContainerEdits, DeviceNode, Mount
from aliquot.agent.proto import deviceplugin_pb2 as wire
from aliquot.errors import BadRecord
from tests.factories import GPU_MEM

# as kubelet 1.37 writes it; AllocResp is a ContainerAllocateResponse with one CDI device
SAMPLE = """{"Data":{"PodDeviceEntries":[
{"PodUID":"c1c3b3e8","ContainerName":"fetch","ResourceName":"aliyun.com/gpu-mem",
 "DeviceIDs":{"-1":["GPU-a-_-1","GPU-a-_-0"]},"AllocResp":"KhQKEmFsaXF1b3QuaW8vZ3B1PWFiYw=="},
{"PodUID":"c1c3b3e8","ContainerName":"main","ResourceName":"aliyun.com/gpu-mem",
 "DeviceIDs":{"0":["GPU-a-_-0"],"1":["GPU-b-_-7"]},"AllocResp":"KhQKEmFsaXF1b3QuaW8vZ3B1PWRlZg=="},
{"PodUID":"0e7f1f2a","ContainerName":"main","ResourceName":"nvidia.com/gpu",
 "DeviceIDs":{"-1":["GPU-c"]},"AllocResp":"CiUKFk5WSURJQV9WSVNJQkxFX0RFVklDRVMSC0dQVS1jLS0tLS0t"},
{"PodUID":"5b2d","ContainerName":"bare","ResourceName":"aliyun.com/gpu-mem","DeviceIDs":null,"AllocResp":""}],
"RegisteredDevices":{"aliyun.com/gpu-mem":["GPU-a-_-0","GPU-a-_-1","GPU-b-_-7"],"nvidia.com/gpu":["GPU-c"]}},
"Checksum":2183672312}"""

ENTRY = '{{"Data":{{"PodDeviceEntries":[{{"PodUID":"u","ContainerName":"c","ResourceName":"r"{more}}}]}}}}'


def test_every_grant_of_a_resource_is_read_with_its_promises(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_text(SAMPLE)
    assert checkpoint.read(tmp_path / "checkpoint", {GPU_MEM}) == [
        Grant("c1c3b3e8", "fetch", GPU_MEM, frozenset({"GPU-a-_-0", "GPU-a-_-1"}), ("aliquot.io/gpu=abc",)),
        Grant("c1c3b3e8", "main", GPU_MEM, frozenset({"GPU-a-_-0", "GPU-b-_-7"}), ("aliquot.io/gpu=def",)),
        Grant("5b2d", "bare", GPU_MEM, frozenset(), ()),
    ]


def test_another_plugin_s_answer_is_read_as_what_it_gives_to_the_container(tmp_path: Path) -> None:
    answer = wire.ContainerAllocateResponse(
        envs={"A": "1"},
        devices=[wire.DeviceSpec(container_path="/dev/nvidia0", host_path="/dev/nvidia3", permissions="rwm")],
        mounts=[wire.Mount(container_path="/usr/local/nvidia", host_path="/etc/gpu-manager/vdriver/nvidia")],
        cdi_devices=[wire.CDIDevice(name="nvidia.com/gpu=0")],
    )
    text = base64.b64encode(answer.SerializeToString()).decode()
    (tmp_path / "checkpoint").write_text(ENTRY.format(more=f',"AllocResp":"{text}"'))
    (grant,) = checkpoint.read(tmp_path / "checkpoint")
    node, mount = (
        DeviceNode("/dev/nvidia0", "/dev/nvidia3"),
        Mount("/usr/local/nvidia", "/etc/gpu-manager/vdriver/nvidia"),
    )
    assert (grant.edits, grant.promised) == (ContainerEdits({"A": "1"}, (node,), (mount,)), ("nvidia.com/gpu=0",))
    assert not grant.is_ours


def test_an_answer_that_is_null_is_empty(tmp_path: Path) -> None:
    """As Go writes a slice that was never set."""
    (tmp_path / "checkpoint").write_text(ENTRY.format(more=',"AllocResp":null'))
    assert checkpoint.read(tmp_path / "checkpoint") == [Grant("u", "c", "r", frozenset(), ())]


@pytest.mark.parametrize("entries", ["null", "[]"], ids=["null", "an empty list"])
def test_a_kubelet_without_devices_has_granted_nothing(tmp_path: Path, entries: str) -> None:
    (tmp_path / "checkpoint").write_text(f'{{"Data":{{"PodDeviceEntries":{entries}}},"Checksum":0}}')
    assert checkpoint.read(tmp_path / "checkpoint", {GPU_MEM}) == []


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="an empty file"),
        pytest.param(b"{", id="half a file"),
        pytest.param(b"\xff\xfe\x00", id="no text"),
        pytest.param(b'"\xff"', id="no UTF-8 within"),
        pytest.param(b'{"Data":{"x":' + b"[" * 100_000, id="very deep"),
        pytest.param(b"{}", id="no data"),
        pytest.param(b'{"Data":[]}', id="data of another form"),
        pytest.param(ENTRY.format(more=',"DeviceIDs":["a"]').encode(), id="ids as before 1.20"),
        pytest.param(ENTRY.format(more=',"AllocResp":"not base64!"').encode(), id="an answer that is no base64"),
        pytest.param(ENTRY.format(more=',"AllocResp":"/////w=="').encode(), id="an answer that is no message"),
    ],
)
def test_a_file_that_is_not_what_we_know_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(content)
    with pytest.raises(BadRecord, match=f"kubelet's checkpoint {path} cannot be read"):
        checkpoint.read(path, {"r"})


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadRecord, match="No such file"):
        checkpoint.read(tmp_path / "checkpoint", {"r"})
