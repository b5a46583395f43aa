"""Reads the world and the orders that the options name."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from aliquot.app.simulate.options import SourceOptions
from aliquot.errors import BadInput
from aliquot.simulate.openb import read_nodes, read_order, read_pods
from aliquot.simulate.orders import by_time, leaving, parsed_seeds, shuffled
from aliquot.simulate.scenario import Order, World

LISTED, SHUFFLED, PUBLISHED = "listed", "shuffled", "published"
BY_TIME = "times"
_FIRST_SEED = "42"


def read_world(source: SourceOptions) -> World:
    """Raises BadInput."""
    if source.openb is not None:
        nodes, pods = source.openb / "openb_node_list_gpu_node.csv", _openb_pods(source.openb, source.pod_list)
        return World(read_nodes(nodes), read_pods(pods))
    if source.nodes is None or source.pods is None:
        raise BadInput("name the cluster and its pods: --nodes FILE and --pods FILE, or --openb DIR; --help has more")
    return World(read_nodes(source.nodes), read_pods(source.pods))


def read_orders(source: SourceOptions, world: World) -> list[Order]:
    """One per seed or file. Raises BadInput."""
    orders = _orders(source, world)
    if not source.departures or source.departures == BY_TIME:
        return orders
    try:
        load = float(source.departures.removesuffix("%"))
    except ValueError:
        load = 0.0
    if not 0 < load <= 10_000:
        raise BadInput(f"--departures: {source.departures!r} is neither {BY_TIME!r} nor a load in percent, such as 110")
    return [leaving(order, world, load, place) for place, order in enumerate(orders)]


def _orders(source: SourceOptions, world: World) -> list[Order]:
    if source.departures == BY_TIME:
        return [by_time(world, departures=True)]
    if source.arrivals:
        return [read_order(path, len(world.nodes), len(world.pods)) for path in source.arrivals]
    order = source.order or (PUBLISHED if source.openb else LISTED)
    if order == LISTED:
        return [by_time(world, departures=False)]
    seeds = parsed_seeds(source.seeds or _FIRST_SEED)
    if order == SHUFFLED:
        return [shuffled(world, seed, source.arrived) for seed in seeds]
    if source.openb is None:
        raise BadInput(f"--order {PUBLISHED} needs --openb; of your own lists use --order {SHUFFLED}")
    return [_published(source.openb, source.pod_list, seed, world) for seed in seeds]


def _published(folder: Path, name: str, seed: int, world: World) -> Order:
    path = folder / "arrivals" / f"{name}_{seed}.txt"
    if not path.exists():
        raise BadInput(
            f"{path} does not exist: of this list and seed there is no published order; "
            f"use other --seeds, or --order {SHUFFLED}"
        )
    return replace(read_order(path, len(world.nodes), len(world.pods)), name=str(seed))


def _openb_pods(folder: Path, name: str) -> Path:
    path = folder / f"openb_pod_list_{name}.csv"
    if path.exists():
        return path
    known: Sequence[str] = sorted(each.stem.removeprefix("openb_pod_list_") for each in folder.glob("openb_pod_list_*"))
    has = f"it has {', '.join(known)}" if known else "it has no list of pods"
    raise BadInput(f"{folder} has no list {name!r}; {has}")
