"""What follows from each XID error, after NVIDIA's catalogue (docs.nvidia.com/deploy/xid-errors).

The catalogue names an immediate action for each code. Codes whose action is to restart the program, or nothing, are
ignored: the card is good. Codes that need a look at the card, or a reset at the next occasion, cordon it. Codes after
which results cannot be trusted, or after which only a reset helps, drain it.

A code that is not in this table cordons the card: running pods lose nothing, and nobody new gets a card of which the
driver said something that we do not know.
"""

from collections.abc import Mapping

from aliquot.agent.devices import Judgement, Verdict

_IGNORED: Mapping[int, str] = {
    8: "a channel of a program made no progress",
    11: "a program sent an invalid method",
    12: "a program sent an invalid method to its channel",
    13: "an exception in the graphics engine, mostly an access out of bounds",
    16: "a display engine made no progress",
    18: "a display engine made no progress",
    24: "a program's semaphore made no progress",
    25: "a program sent an illegal push buffer",
    31: "a program used an address that it does not have",
    32: "a program's push buffer was corrupt",
    37: "a program's video work failed",
    39: "an exception in a copy engine",
    40: "an exception in a copy engine",
    41: "an exception in a copy engine",
    42: "an exception in a video engine",
    43: "a program was stopped after an error of its own",
    44: "an engine failed while it changed programs",
    45: "a program's channels were removed, mostly because it was killed",
    59: "a video engine's controller failed",
    63: "a broken row of memory will be replaced at the next reset",
    65: "an exception in a video engine",
    68: "an exception in a video decoder",
    69: "a program used an engine in a wrong way",
    70: "an exception in a copy engine",
    71: "an exception in a copy engine",
    72: "an exception in a copy engine",
    73: "an exception in a video encoder",
    75: "an exception in a copy engine",
    76: "an exception in a copy engine",
    77: "an exception in a copy engine",
    82: "an exception in an image decoder",
    83: "an exception in a video decoder",
    84: "an exception in a video decoder",
    85: "an exception in a copy engine",
    86: "an exception in an optical flow engine",
    88: "an exception in a video decoder",
    89: "an exception in a video decoder",
    92: "many single-bit errors of memory, all corrected",
    93: "the card's settings memory is written often",
    94: "an error of memory that only the program that read it felt",
    96: "an exception in a video decoder",
    97: "an exception in a video decoder",
    98: "an exception in a video decoder",
    99: "an exception in an image decoder",
    100: "an exception in an image decoder",
    101: "an exception in an image decoder",
    102: "an exception in an image decoder",
    103: "an exception in an image decoder",
    104: "an exception in an image decoder",
    105: "an exception in an image decoder",
    106: "an exception in an optical flow engine",
    109: "a program did not give way in time",
    137: "a program reached another card in a way that is not allowed",
    154: "the driver's advice changed; the error before it says why",
    156: "the card took a broken part of itself out of use",
    160: "the card took a broken channel of its memory out of use",
}

_CORDONED: Mapping[int, str] = {
    38: "the driver's firmware failed",
    54: "auxiliary power is not connected",
    56: "the display engine failed",
    57: "the interface to memory could not be set up",
    58: "the interface to memory is not stable",
    66: "the driver used an address that it may not use",
    67: "the driver used an address that it may not use",
    74: "an NVLink failed",
    78: "a virtual GPU could not start",
    80: "data came broken to the card",
    81: "the display failed",
    87: "an exception in an engine of the card",
    121: "the link between CPU and card corrected an error",
    122: "the card's settings memory cannot be read",
    123: "the card's settings memory cannot be written",
    124: "the card's settings memory cannot be accessed",
    125: "the card's settings memory has an error",
    144: "an NVLink had an error in its switch port",
    145: "an NVLink had an error in its receiver",
    146: "an NVLink had an error in its transmitter",
    147: "an NVLink had an error in its routing",
    148: "an NVLink had an error in its control unit",
    149: "an NVLink had an error in its physical layer",
    150: "an NVLink had an error in its management engine",
    155: "software found an error of an NVLink",
    159: "the link between CPU and card had an error",
}

_DRAINED: Mapping[int, str] = {
    46: "the card stopped working and does not stop its programs",
    48: "a double-bit error of memory, which cannot be corrected",
    61: "the card's power controller stopped",
    62: "the card's power controller halted",
    64: "a broken row of memory could not be replaced",
    79: "the card fell off the bus",
    95: "an error of memory that any program may have felt",
    110: "a security fault",
    119: "the card's system processor does not answer",
    120: "the card's system processor failed",
    136: "an NVLink could not be trained",
    140: "an error of memory that was not recovered",
    143: "the card could not be initialised",
    151: "keys of an encrypted link could not be changed",
    157: "a broken part of the card could not be taken out of use",
    158: "the card made no progress for too long",
    161: "a broken channel of memory could not be taken out of use",
    170: "an interrupt of the card failed",
    171: "an uncorrected error of memory, told beside XID 140",
    172: "an uncorrected error of a cache, told beside XID 48",
}

CATALOGUE: Mapping[int, Judgement] = {
    code: Judgement(verdict, meaning)
    for verdict, codes in ((Verdict.IGNORE, _IGNORED), (Verdict.CORDON, _CORDONED), (Verdict.DRAIN, _DRAINED))
    for code, meaning in codes.items()
}
_UNKNOWN = Judgement(Verdict.CORDON, "an error that Aliquot's table does not know")


def judge(code: int, own: Mapping[str, Verdict]) -> Judgement:
    """What follows from an XID error. `own` are the verdicts of the configuration, by code."""
    known = CATALOGUE.get(code, _UNKNOWN)
    return Judgement(own.get(str(code), known.verdict), known.meaning)
