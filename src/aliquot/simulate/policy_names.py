"""Policies as the command line names them."""

from dataclasses import dataclass

from aliquot.engine import check_policies
from aliquot.engine.policies import GPU_POLICIES, NODE_POLICIES
from aliquot.errors import BadInput


@dataclass(frozen=True)
class PolicyPair:
    """A node policy and a GPU policy, with the text that names both."""

    name: str
    node: str
    gpu: str


def parsed_policy(text: str) -> PolicyPair:
    """`fgd` for nodes and cards, or `free-count/binpack` for each. `+` chains, as in `topology+binpack`. Raises
    BadInput."""
    name = text.strip()
    node, slash, gpu = name.replace("+", ",").partition("/")
    gpu = gpu if slash else node
    if not node or not gpu:
        raise BadInput(f"policy {name!r}: write a name such as fgd, or NODE/GPU such as free-count/binpack")
    if not slash and (node in NODE_POLICIES) != (gpu in GPU_POLICIES) and "," not in node:
        kind, other = ("nodes", f"{node}/binpack") if node in NODE_POLICIES else ("cards", f"binpack/{gpu}")
        raise BadInput(f"policy {name!r} is only for {kind}; write both, such as {other}")
    check_policies(gpu, node, gpu_field="GPU policy", node_field="node policy", error=BadInput)
    return PolicyPair(name, node, gpu)
