"""The `-priority` of elastic-gpu's schedulers: where their pods go.

A manifest in which only the image changes keeps its placement, so each program chooses as its own original does. Our
variables outrank the flag: they are how somebody asks for one of our policies.
"""

from collections.abc import Mapping

from aliquot.app.programs.command_line import Flag, Parsed
from aliquot.config import Given
from aliquot.errors import BadConfig

OURS = "ALIQUOT_GPU_POLICY=elastic=POLICY and ALIQUOT_NODE_POLICY=elastic=POLICY"
_KEYS = ("policies.gpu", "policies.node")


def priority_flag(about: str) -> Flag:
    """`about` says what its original's priorities do."""
    return Flag(
        "priority",
        f"How pods are placed, as in the original: {about} {OURS} choose policies of Aliquot in its place, such as "
        "binpack, or a spread that spreads (docs/policies.md).",
        default="binpack",
    )


def policies(parsed: Parsed, originals: Mapping[str, str]) -> dict[str, Given]:
    """The policies of cards and nodes; `originals` are an original's own, by the words of the flag. Raises
    BadConfig."""
    priority = parsed["priority"]
    if priority not in originals:
        raise BadConfig(f"-priority {priority}: write {' or '.join(originals)}")
    return {key: Given({"elastic": originals[priority]}, "-priority") for key in _KEYS}
