"""What follows from each XID error, after NVIDIA's catalogue (docs.nvidia.com/deploy/xid-errors).

The catalogue names an immediate action for each code, and the verdict follows from it:

- restart the program, or nothing: ignored, the card is good;
- reset the card, or restart the machine: the card is drained;
- anything else, such as a look at cables or at software: the card is cordoned.

These rows are our own judgement:

- 109 asks for a reset, but NVIDIA's device plugin takes it for a program's error, and so do we.
- 45 and 154 come with another error, which decides. 48 asks to look for others; results cannot be trusted until then.
- 74 and 144 to 150 depend on a part of the error that is in the kernel's log only, hence the middle verdict. Where the
  driver then asks for a reset, `faults` reads that, and no container starts on the card.
- 162 to 172 have no action yet. 162 to 165 tell of power only. 171 and 172 come with 48.
- 12, 16, 18, 24, 42, 56 to 59, 61, 65, 73, 81 and 122 to 125 are of cards before Ampere. The catalogue no longer has an
  action for them. 61 is drained like 62, which replaced it.

A code that is not in this table cordons the card: running pods lose nothing, and nobody new gets a card of which the
driver said something that we do not know.
"""

from collections.abc import Mapping

from aliquot.agent.devices import Judgement, Verdict

_COPY = "an exception in a copy engine"
_VIDEO_DECODER = "an exception in a video decoder"
_IMAGE_DECODER = "an exception in an image decoder"
_OPTICAL_FLOW = "an exception in an optical flow engine"
_IN_THE_LOG = "; `dmesg` on the node tells whether it was fatal"

_IGNORED: Mapping[int, str] = {
    8: "a channel of a program made no progress",
    11: "a program's push buffer was corrupt",
    13: "an exception in the graphics engine, mostly an access out of bounds",
    14: "a test of the driver's error handling",
    25: "a program sent an illegal push buffer",
    31: "a program used an address that it does not have",
    32: "a program's push buffer was corrupt",
    37: "the driver's firmware got a command that it does not know",
    38: "the driver's firmware ran out of time",
    43: "a program was stopped after an error of its own",
    44: "the graphics engine failed while it changed programs",
    45: "a program's channels were removed, mostly because it was killed or after another error",
    60: "an exception in a video processor",
    63: "a broken row of memory will be replaced at the next reset",
    66: "the driver used a register that it may not use",
    67: "the driver used a register that it may not use",
    69: "a program used the graphics engine in a wrong way",
    80: "a program's push buffer came broken to the card",
    92: "many single-bit errors of memory, all corrected",
    93: "the card's settings memory was written more often than was allowed",
    94: "an error of memory that only the program that read it felt",
    106: "a test message of the card's management bus",
    107: "a test message of the card's management bus",
    108: "a program reached another card at an address that it does not have",
    109: "a program did not give way in time",
    121: "the link between CPU and card corrected an error",
    137: "a program reached another card in a way that is not allowed",
    141: "an error in CUDA's fast path",
    152: "a deep-learning accelerator used an address that it does not have",
    153: "a deep-learning accelerator made no progress",
    154: "the driver's advice changed; the error before it says why",
    157: "a broken part of the card could not be taken out of use; programs may go on",
    160: "the card took a broken channel of its memory out of use",
    161: "a broken channel of memory could not be taken out of use; programs may go on",
    162: "the card smooths its power again",
    163: "the card no longer smooths its power",
    164: "the card's power smoothing nears the end of its life",
    165: "the card's power smoothing is at the end of its life",
    **dict.fromkeys((39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)), _COPY),
    **dict.fromkeys((68, 83, 84, 88, 89, 96, 97, 98), _VIDEO_DECODER),
    **dict.fromkeys((82, *range(99, 106)), _IMAGE_DECODER),
    **dict.fromkeys((86, 139), _OPTICAL_FLOW),
}

_CORDONED: Mapping[int, str] = {
    12: "the driver could not handle an exception of the card",
    16: "the display engine made no progress",
    18: "the card may not use the bus by itself",
    24: "a semaphore made no progress",
    42: "an exception in a video processor",
    54: "auxiliary power is not connected",
    56: "the display engine failed",
    57: "the interface to memory could not be set up",
    58: "the interface to memory is not stable",
    59: "the card's power controller failed",
    65: "an exception in a video encoder",
    73: "an exception in a video encoder",
    74: f"an NVLink failed{_IN_THE_LOG}",
    78: "a virtual GPU could not start",
    81: "the display failed",
    122: "the card's settings memory cannot be read",
    123: "the card's settings memory cannot be written",
    124: "the card's settings memory cannot be erased",
    125: "the card's settings memory has an error",
    142: "an exception in a video encoder",
    144: f"an NVLink had an error in its switch port{_IN_THE_LOG}",
    145: f"an NVLink had an error in its receiver{_IN_THE_LOG}",
    146: f"an NVLink had an error in its transmitter{_IN_THE_LOG}",
    147: f"an NVLink had an error in its routing{_IN_THE_LOG}",
    148: f"an NVLink had an error in its control unit{_IN_THE_LOG}",
    149: f"an NVLink had an error in its physical layer{_IN_THE_LOG}",
    150: f"an NVLink had an error in its management engine{_IN_THE_LOG}",
    159: "the link between CPU and card had an error",
    166: "an NVLink had traffic before its encryption was set up",
    167: "the card did not answer on the bus in time",
    168: "a protected region of memory has errors; the card may have less memory",
    169: "the card's security controller halted",
    170: "an encrypted NVLink raised an interrupt",
}

_DRAINED: Mapping[int, str] = {
    46: "the card stopped working",
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
    155: "software took an NVLink down",
    156: "a broken part of the card is taken out of use at the next reset",
    158: "the card made no progress for too long",
    171: "an uncorrected error of memory, told beside XID 48",
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
