"""NVIDIA's cards: NVML lists them, and the driver's device nodes hand them to a container."""

from aliquot.agent.nvidia.devices import NvidiaDevices, visible_cards
from aliquot.agent.nvidia.xid_events import XidEvent

__all__ = ["NvidiaDevices", "XidEvent", "visible_cards"]
