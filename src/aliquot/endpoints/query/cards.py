"""A card as nvidia-gpu-scheduler shows it, with what Aliquot adds."""

from aliquot.apiserver.objects import Object
from aliquot.model import Charge, Gpu
from aliquot.model.bounds import MIB
from aliquot.model.load import CardLoad


def normalised(model: str) -> str:
    """A model as nvidia-gpu-scheduler compares it."""
    return model.strip().lower()


def card(gpu: Gpu, node: str) -> Object:
    """What the original says of a card. It omits what it does not know."""
    known = {
        "device_id": gpu.uuid,
        "device_brand": gpu.brand,
        "device_model": gpu.model,
        "device_busid": gpu.bus_id,
        "device_node": node,
    }
    return {name: value for name, value in known.items() if value}


def missing_card(uuid: str, node: str) -> Object:
    """A card that its node no longer shows."""
    return {"device_id": uuid, "device_node": node}


def held(charge: Charge) -> Object:
    """What is taken of a card."""
    part = {"device_cores_held": charge.cores, "device_memory_held": charge.mib}
    return {**part, "device_slots_held": charge.slots} if charge.slots else part


def used(load: CardLoad | None) -> Object:
    """What a card measured of itself."""
    if load is None:
        return {}
    cores = {} if load.cores is None else {"device_cores_used": percent(load.cores)}
    memory = {} if load.memory_bytes is None else {"device_memory_used": load.memory_bytes // MIB}
    return {**cores, **memory}


def percent(cores: float) -> int:
    return round(cores * 100)
