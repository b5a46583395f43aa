"""Reads the world and the orders that the options name."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isnan
from pathlib import Path

from aliquot.app.simulate.options import LISTED, PUBLISHED, SHUFFLED, TIMES, SourceOptions
from aliquot.dialects import make_dialects
from aliquot.errors import BadInput
from aliquot.kube import find
from aliquot.simulate.csv_lists import read_nodes, read_pods
from aliquot.simulate.live import read_cluster
from aliquot.simulate.logged import read_log
from aliquot.simulate.objects import Objects
from aliquot.simulate.orders import by_time, first_part, leaving, parsed_seeds, shuffled
from aliquot.simulate.published_order import read_order
from aliquot.simulate.scenario import Order, World
from aliquot.simulate.yaml_lists import is_yaml, read_yaml

_FIRST_SEED = "42"
_DEFAULT_LIST = "default"
_ARRIVED = 130.0
_LARGEST_LOAD = 10_000


def read_world(source: SourceOptions, tell: Callable[[Sequence[str]], None]) -> World:
    """`tell` hears what was left out, also if there is no world without it. Raises BadInput, and KubeError."""
    given = [source.openb, source.nodes or source.pods, source.from_cluster, source.decision_log]
    if sum(map(bool, given)) != 1:
        raise BadInput(
            "name one source of the cluster and its pods: --nodes and --pods, --openb, --from-cluster or --decision-log"
        )
    if source.openb is not None:
        nodes, pods = (
            source.openb / "openb_node_list_gpu_node.csv",
            _openb_pods(source.openb, source.pod_list or _DEFAULT_LIST),
        )
        return World(read_nodes(nodes), read_pods(pods))
    if source.decision_log is not None:
        return read_log(source.decision_log)
    objects = Objects(make_dialects(), source.keep_bound)
    if source.from_cluster:
        asyncio.run(read_cluster(find(source.kubeconfig or None, source.context), objects))
    else:
        _read_files(source, objects)
    try:
        return objects.world()
    finally:
        tell(objects.left_out)


def _read_files(source: SourceOptions, objects: Objects) -> None:
    if source.nodes is None or source.pods is None:
        raise BadInput("--nodes and --pods belong together; they may name the same YAML file")
    for path in dict.fromkeys((source.nodes, source.pods)):
        nodes, pods = path == source.nodes, path == source.pods
        if is_yaml(path):
            read_yaml(path, objects, nodes=nodes, pods=pods)
            continue
        if nodes:
            objects.nodes += read_nodes(path)
        if pods:
            objects.pods += read_pods(path)


def read_orders(source: SourceOptions, world: World) -> list[Order]:
    """One per seed or file. Raises BadInput."""
    if not world.pods:
        raise BadInput("there is no pod to place")
    if source.arrived is not None and isnan(source.arrived):
        raise BadInput("--arrived: 'nan' is not a percentage")
    orders = _orders(source, world)
    if source.arrived is not None:
        orders = [first_part(order, world, source.arrived) for order in orders]
    if not source.departures or source.departures == TIMES:
        return orders
    try:
        load = float(source.departures.removesuffix("%"))
    except ValueError:
        load = 0.0
    if not 0 < load <= _LARGEST_LOAD:
        raise BadInput(f"--departures: {source.departures!r} is neither {TIMES!r} nor a load in percent, such as 110")
    return [leaving(order, world, load) for order in orders]


def _orders(source: SourceOptions, world: World) -> list[Order]:
    if source.departures == TIMES:
        if all(pod.leaves is None for pod in world.pods):
            raise BadInput(f"--departures {TIMES}: no pod has a time at which it leaves; write a load, such as 110")
        return [by_time(world, departures=True)]
    if source.arrivals:
        return [read_order(path, world) for path in source.arrivals]
    if source.named_order == LISTED:
        return [by_time(world, departures=False)]
    seeds = parsed_seeds(source.seeds or _FIRST_SEED)
    if source.named_order == SHUFFLED:
        return [shuffled(world, seed, source.arrived or _ARRIVED) for seed in seeds]
    if source.openb is None:
        raise BadInput(f"--order {PUBLISHED} needs --openb; with your own lists use --order {SHUFFLED}")
    return [_published(source.openb, source.pod_list or _DEFAULT_LIST, seed, world) for seed in seeds]


def _published(folder: Path, name: str, seed: int, world: World) -> Order:
    path = folder / "arrivals" / f"{name}_{seed}.txt"
    if not path.exists():
        raise BadInput(
            f"{path} does not exist: of this list and seed there is no published order; use other --seeds, or "
            f"--order {SHUFFLED}"
        )
    return replace(read_order(path, world), name=str(seed))


def _openb_pods(folder: Path, name: str) -> Path:
    path = folder / f"openb_pod_list_{name}.csv"
    if path.exists():
        return path
    known = sorted(each.stem.removeprefix("openb_pod_list_") for each in folder.glob("openb_pod_list_*.csv"))
    has = f"it has {', '.join(known)}" if known else "it has no list of pods"
    raise BadInput(f"{folder} has no list {name!r}; {has}")
