"""The `-priority` of elastic-gpu's schedulers: how they place pods.

A manifest in which only the image changes must keep its placement, so each program uses the policies of its original.
Our variables override the flag, so that users can choose one of our policies.
"""

from collections.abc import Mapping

from aliquot.app.programs.command_line import Flag, Parsed
from aliquot.config.declaration import Given
from aliquot.errors import BadConfig

OURS = "ALIQUOT_GPU_POLICY=elastic=POLICY and ALIQUOT_NODE_POLICY=elastic=POLICY"
_KEYS = ("policies.gpu", "policies.node")


def priority_flag(about: str) -> Flag:
    """`about` describes the original's priorities."""
    return Flag(
        "priority",
        f"How to place pods, as in the original: {about} To use a policy of Aliquot instead, such as binpack or "
        f"spread, set {OURS} (docs/policies.md).",
        default="binpack",
    )


def policies(parsed: Parsed, originals: Mapping[str, str]) -> dict[str, Given]:
    """The policies for cards and nodes. `originals` maps values of the flag to policies. Raises BadConfig."""
    priority = parsed["priority"]
    if priority not in originals:
        raise BadConfig(f"-priority {priority}: write {' or '.join(originals)}")
    return {key: Given({"elastic": originals[priority]}, "-priority") for key in _KEYS}
