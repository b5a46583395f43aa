"""The witness of the end-to-end tests sees what is wrong, and nothing else."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.checker import Cluster, Inside, findings

CARDS: list[dict[str, Any]] = [
    {"uuid": f"GPU-{letter}", "index": index, "minor": 7 - index, "mib": 16276} for index, letter in enumerate("ab")
]


def node() -> dict[str, Any]:
    inventory = json.dumps({"v": 1, "unitMiB": 1024, "gpus": CARDS})
    return {"metadata": {"name": "n1", "annotations": {"aliquot.io/inventory": inventory}}}


def pod(name: str, units: int, card: int) -> dict[str, Any]:
    part = {"uuid": CARDS[card]["uuid"], "index": card, "minor": CARDS[card]["minor"], "cores": 0, "mib": units * 1024}
    record = {"v": 1, "node": "n1", "dialect": "gpushare", "containers": {"main": [part]}}
    own = {"IDX": str(card), "DEV": "15", "POD": str(units), "ASSIGNED": "true", "ASSUME_TIME": "1"}
    annotations = {f"ALIYUN_COM_GPU_MEM_{key}": value for key, value in own.items()}
    limits = {"aliyun.com/gpu-mem": str(units)}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "annotations": {"aliquot.io/placement": json.dumps(record), **annotations},
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "main", "restartCount": 0, "state": {"running": {}}}],
        },
    }


def look(units: int, card: int) -> Inside:
    variables = {"IDX": str(card), "DEV": "15", "POD": str(units), "CONTAINER": str(units)}
    environment = {f"ALIYUN_COM_GPU_MEM_{key}": value for key, value in variables.items()}
    minor = CARDS[card]["minor"]
    devices = {f"/dev/nvidia{minor}": (195, minor), "/dev/nvidiactl": (195, 255), "/dev/nvidia-uvm": (235, 0)}
    return Inside(environment | {"NVIDIA_VISIBLE_DEVICES": str(CARDS[card]["uuid"])}, devices)


def healthy() -> Cluster:
    """Two pods of 8 on card 0 would not fit; one is on each card."""
    inside = {("uid-one", "main"): look(8, 0), ("uid-two", "main"): look(8, 1)}
    return Cluster([pod("one", 8, 0), pod("two", 8, 1)], [node()], inside)


def test_a_healthy_cluster_has_no_findings() -> None:
    assert findings(healthy(), ["default/one", "default/two"]) == []


def test_containers_that_are_not_real_need_no_look() -> None:
    cluster = healthy()
    cluster.inside = None
    assert findings(cluster) == []


def placement(cluster: Cluster, **changes: Any) -> None:
    """Change the first pod's part in its record, and nothing else."""
    annotations = cluster.pods[0]["metadata"]["annotations"]
    record = json.loads(annotations["aliquot.io/placement"])
    record["containers"]["main"][0] |= changes
    annotations["aliquot.io/placement"] = json.dumps(record)


def oversell(cluster: Cluster, *, record_says: int) -> None:
    cluster.pods[1] = pod("two", 8, 0)
    cluster.inside = None
    placement(cluster, mib=record_says)


def put(cluster: Cluster, key: str, value: str) -> None:
    cluster.pods[0]["metadata"]["annotations"][key] = value


def see(cluster: Cluster, inside: Inside | None) -> None:
    assert cluster.inside is not None
    if inside is None:
        del cluster.inside["uid-one", "main"]
    else:
        cluster.inside["uid-one", "main"] = inside


def with_variable(name: str, value: str) -> Inside:
    good = look(8, 0)
    return Inside({**good.environment, name: value}, good.devices)


def add_init(cluster: Cluster) -> None:
    """The second pod only has an init container with GPU, of 8, on the first pod's card."""
    cluster.pods[1] = moved = pod("two", 8, 0)
    (main,) = moved["spec"]["containers"]
    moved["spec"]["initContainers"] = [copy.deepcopy(main)]
    main["resources"] = {}
    cluster.inside = None


WRONG: list[Any] = [
    pytest.param(lambda c: oversell(c, record_says=8192), "16384 MiB are sold", id="a card is over-sold"),
    pytest.param(lambda c: oversell(c, record_says=0), "16384 MiB are sold", id="over-sold behind a record of 0 MiB"),
    pytest.param(add_init, "16384 MiB are sold", id="over-sold by an init container"),
    pytest.param(lambda c: placement(c, uuid="GPU-b"), "annotation IDX is '0', not '1'", id="IDX of another card"),
    pytest.param(lambda c: placement(c, uuid="GPU-x"), "card GPU-x is not in its node's inventory", id="no such card"),
    pytest.param(lambda c: see(c, look(8, 1)), "sees the device nodes [6], and its cards are [7]", id="a wrong card"),
    pytest.param(
        lambda c: see(c, Inside(look(8, 0).environment, look(8, 1).devices)),
        "sees the device nodes [6], and its cards are [7]",
        id="the right uuid with another card's node",
    ),
    pytest.param(
        lambda c: see(c, Inside(look(8, 0).environment, {**look(8, 0).devices, **look(8, 1).devices})),
        "sees the device nodes [6, 7], and its cards are [7]",
        id="one card too many",
    ),
    pytest.param(lambda c: see(c, None), "nobody looked into container main", id="a container nobody looked into"),
    pytest.param(
        lambda c: see(c, with_variable("NVIDIA_VISIBLE_DEVICES", "all")),
        "has NVIDIA_VISIBLE_DEVICES=all",
        id="all cards",
    ),
    pytest.param(
        lambda c: see(c, with_variable("ALIYUN_COM_GPU_MEM_CONTAINER", "9")),
        "has ALIYUN_COM_GPU_MEM_CONTAINER=9, not 8",
        id="another size inside",
    ),
    pytest.param(
        lambda c: put(c, "ALIYUN_COM_GPU_MEM_ASSIGNED", "false"), "annotation ASSIGNED is 'false'", id="not marked"
    ),
    pytest.param(lambda c: put(c, "ALIYUN_COM_GPU_MEM_POD", "9"), "annotation POD is '9', not '8'", id="another size"),
    pytest.param(
        lambda c: put(c, "ALIYUN_COM_GPU_MEM_DEV", "9"), "annotation DEV is '9', not '15'", id="another card size"
    ),
    pytest.param(lambda c: put(c, "ALIYUN_COM_GPU_MEM_ASSUME_TIME", ""), "ASSUME_TIME is no time", id="no time"),
    pytest.param(
        lambda c: c.pods[0]["metadata"]["annotations"].pop("aliquot.io/placement"),
        "runs without a placement",
        id="not placed",
    ),
    pytest.param(
        lambda c: c.pods[0]["spec"].update(nodeName="n2"), "is placed on n1 and runs on n2", id="another node"
    ),
    pytest.param(lambda c: c.pods.pop(0), "default/one should run and is gone", id="a lost pod"),
    pytest.param(
        lambda c: c.pods[0]["status"].update(phase="Failed"), "default/one should run and is Failed", id="a failed pod"
    ),
    pytest.param(
        lambda c: c.pods[0]["status"]["containerStatuses"][0].update(restartCount=1),
        "was started 2 times",
        id="run twice",
    ),
    pytest.param(
        lambda c: c.pods[0]["status"].update(containerStatuses=[]), "container main does not run", id="no container"
    ),
]


@pytest.mark.parametrize(("harm", "finding"), WRONG)
def test_everything_that_is_wrong_is_found(harm: Callable[[Cluster], None], finding: str) -> None:
    cluster = healthy()
    harm(cluster)
    assert [found for found in findings(cluster, ["default/one"]) if finding in found]
