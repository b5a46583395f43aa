"""NVIDIA's cards: NVML lists them, and the driver's device nodes hand them to a container."""

from aliquot.agent.nvidia.devices import NvidiaDevices, visible_cards

__all__ = ["NvidiaDevices", "visible_cards"]
