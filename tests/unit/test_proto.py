"""The gRPC messages: generated from their sources, with the numbers of the wire."""

import re
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor

from aliquot.agent.proto import deviceplugin_pb2, podresources_pb2, runtime_pb2
from tests import proto


def test_the_committed_modules_are_those_that_the_sources_give(tmp_path: Path) -> None:
    written = proto.generate(tmp_path)
    assert [path.name for path in written] == sorted(path.name for path in proto.FOLDER.glob("*_pb2.py*"))
    for path in written:
        assert path.read_text() == (proto.FOLDER / path.name).read_text(), f"{path.name}: run make proto"


# field numbers of kubelet's and the container runtime's own definitions
WIRE = {
    deviceplugin_pb2: {
        "DevicePluginOptions": {"pre_start_required": 1, "get_preferred_allocation_available": 2},
        "RegisterRequest": {"version": 1, "endpoint": 2, "resource_name": 3, "options": 4},
        "Empty": {},
        "ListAndWatchResponse": {"devices": 1},
        "Device": {"ID": 1, "health": 2},
        "PreStartContainerRequest": {"devices_ids": 1},
        "PreStartContainerResponse": {},
        "AllocateRequest": {"container_requests": 1},
        "ContainerAllocateRequest": {"devices_ids": 1},
        "CDIDevice": {"name": 1},
        "AllocateResponse": {"container_responses": 1},
        "Mount": {"container_path": 1, "host_path": 2, "read_only": 3},
        "DeviceSpec": {"container_path": 1, "host_path": 2, "permissions": 3},
        "ContainerAllocateResponse": {"envs": 1, "mounts": 2, "devices": 3, "annotations": 4, "cdi_devices": 5},
    },
    podresources_pb2: {
        "ListPodResourcesRequest": {},
        "ListPodResourcesResponse": {"pod_resources": 1},
        "PodResources": {"name": 1, "namespace": 2, "containers": 3},
        "ContainerResources": {"name": 1, "devices": 2},
        "ContainerDevices": {"resource_name": 1, "device_ids": 2},
    },
    runtime_pb2: {
        "StatusRequest": {"verbose": 1},
        "StatusResponse": {"info": 2},
        "ListContainersRequest": {},
        "ListContainersResponse": {"containers": 1},
        "Container": {"state": 6, "labels": 8},
    },
}


@pytest.mark.parametrize("module", WIRE, ids=lambda module: module.__name__.rpartition(".")[2])
def test_every_field_has_its_number_of_the_wire(module: object) -> None:
    messages: dict[str, Descriptor] = module.DESCRIPTOR.message_types_by_name  # type: ignore[attr-defined]
    numbers = {name: {field.name: field.number for field in message.fields} for name, message in messages.items()}
    assert numbers == WIRE[module]  # type: ignore[index]


@pytest.mark.parametrize(
    ("module", "package"),
    [(deviceplugin_pb2, "v1beta1"), (podresources_pb2, "v1"), (runtime_pb2, "runtime.v1")],
    ids=["deviceplugin", "podresources", "runtime"],
)
def test_packages_are_those_of_the_services(module: object, package: str) -> None:
    assert module.DESCRIPTOR.package == package  # type: ignore[attr-defined]


def test_a_register_request_is_the_original_s_on_the_wire() -> None:
    request = deviceplugin_pb2.RegisterRequest(
        version="v1beta1", endpoint="aliyungpushare.sock", resource_name="aliyun.com/gpu-mem"
    )
    assert re.findall(rb"[ -~]{5,}", request.SerializeToString()) == [
        b"v1beta1",
        b"aliyungpushare.sock",
        b"aliyun.com/gpu-mem",
    ]
