"""Why a pod waits: the one cause that counts, and whether waiting helps."""

from dataclasses import dataclass
from enum import Enum

from aliquot.model import Reason


class Cause(Enum):
    """The values are the reasons in the pod's condition and in its events."""

    NO_SUCH_RESOURCE = "NoSuchResource"
    OTHER_SCHEDULER = "OtherScheduler"
    GATED = "SchedulingGated"
    BAD_REQUEST = "BadRequest"
    RESOURCE_QUOTA = "ResourceQuota"
    VOLUME = "VolumeNotReady"
    TAINT = "UntoleratedTaint"
    NODE_SELECTOR = "NodeSelector"
    CORDONED = "NodeCordoned"
    NOT_READY = "NodeNotReady"
    AGENT_SILENT = "AgentSilent"
    NO_DEVICES = "NoDevicesLeft"
    CPU = "InsufficientCPU"
    MEMORY = "InsufficientMemory"
    PODS = "TooManyPods"
    RESOURCE = "InsufficientResource"
    SCHEDULER = "SchedulerRefuses"
    NO_NODE = "NoGPUNode"
    NOT_SERVED = "NotServed"
    QUOTA = "QuotaUsedUp"
    NOT_IN_QUOTA = "NotInQuota"
    MODEL = "NoSuchModel"
    CARD = "NoSuchCard"
    NOT_PROMISED = "NotPromised"
    UNHEALTHY = "UnhealthyCards"
    MODE = "OtherSharingMode"
    TOO_LARGE = "TooLarge"
    TOPOLOGY = "NotConnected"
    FRAGMENTED = "Fragmented"
    NO_ROOM = "NoRoom"
    SEARCH_LIMIT = "SearchLimit"
    FITS = "Fits"
    NO_GPU = "AsksForNoGPU"
    BOUND = "Bound"
    ENDED = "Ended"
    UNKNOWN = "Unknown"


class Outlook(Enum):
    """The values begin the sentence that people read."""

    NEVER = "Never as things are"
    """The pod or the cluster has to change."""
    NOT_NOW = "Not now"
    """It fits when pods end, or when what is broken works again."""
    FITS = "Fits now"
    SETTLED = "Settled"
    """The pod does not wait, or not for us."""

    @property
    def key(self) -> str:
        return self.name.lower()


_SETTLED = {Cause.BOUND: "Placed", Cause.ENDED: "Ended", Cause.NO_GPU: "Not for a card"}
"""How the sentence about a pod begins that we do not hold back."""


@dataclass(frozen=True)
class Verdict:
    """The dominant cause. The sentence has no number that changes while the cause stays, because a scheduler takes
    every change of a pod as news. `nodes` are those that the sentence is about."""

    cause: Cause
    outlook: Outlook
    sentence: str
    nodes: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        return f"{_SETTLED.get(self.cause, self.outlook.value)}: {self.sentence}"


OF_REASON = {
    Reason.UNKNOWN_NODE: Cause.NO_NODE,
    Reason.NO_GPUS: Cause.NO_NODE,
    Reason.NOT_SERVED: Cause.NOT_SERVED,
    Reason.WRONG_POOL: Cause.NOT_IN_QUOTA,
    Reason.NOT_PROMISED: Cause.NOT_PROMISED,
    Reason.WRONG_MODEL: Cause.MODEL,
    Reason.NOT_IN_QUOTA: Cause.NOT_IN_QUOTA,
    Reason.WRONG_CARD: Cause.CARD,
    Reason.TOO_LARGE: Cause.TOO_LARGE,
    Reason.NOT_SELLABLE: Cause.UNHEALTHY,
    Reason.WRONG_MODE: Cause.MODE,
    Reason.OVER_QUOTA: Cause.QUOTA,
    Reason.NO_TOPOLOGY: Cause.TOPOLOGY,
    Reason.NO_CARD_FITS: Cause.NO_ROOM,
    Reason.SEARCH_LIMIT: Cause.SEARCH_LIMIT,
}
"""The engine's reasons for a node. A later reason is closer to a fit, and counts more than the ones before it."""
