"""A pod that waits, with the fields by which kube-scheduler chooses among nodes. A server watches every pod without
them, and reads only pods that wait in full."""

import msgspec

from aliquot.model.kubernetes import Node, Pod, PodSpec, Taint

_REPELLING = ("NoSchedule", "NoExecute")


class _Fields(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    pass


class Toleration(_Fields, frozen=True):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def covers(self, taint: Taint) -> bool:
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (self.key == taint.key and self.value == taint.value)


class NodeRequirement(_Fields, frozen=True):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None

    def matches(self, has: str | None) -> bool:
        """Whether a node with this value of the label, or without the label, satisfies the requirement."""
        wanted = self.values or []
        match self.operator:
            case "In":
                return has in wanted
            case "NotIn":
                return has not in wanted
            case "Exists":
                return has is not None
            case "DoesNotExist":
                return has is None
            case "Gt" | "Lt":
                return has is not None and _compares(has, self.operator, wanted)
            case _:
                return True  # of a later Kubernetes: kube-scheduler's own words tell


class NodeSelectorTerm(_Fields, frozen=True):
    match_expressions: list[NodeRequirement] | None = None
    match_fields: list[NodeRequirement] | None = None

    def matches(self, node: Node) -> bool:
        labels, fields = node.metadata.labels, {"metadata.name": node.metadata.name}
        expressions, by_field = self.match_expressions or [], self.match_fields or []
        if not expressions and not by_field:
            return False  # an empty term matches no node
        return all(each.matches(labels.get(each.key)) for each in expressions) and all(
            each.matches(fields.get(each.key)) for each in by_field
        )


class RequiredNodes(_Fields, frozen=True):
    node_selector_terms: list[NodeSelectorTerm] = []


class NodeAffinity(_Fields, frozen=True, rename={"required": "requiredDuringSchedulingIgnoredDuringExecution"}):
    required: RequiredNodes | None = None


class Affinity(_Fields, frozen=True):
    node_affinity: NodeAffinity | None = None


class ClaimSource(_Fields, frozen=True):
    claim_name: str = ""


class Volume(_Fields, frozen=True):
    persistent_volume_claim: ClaimSource | None = None


class PendingPodSpec(PodSpec, frozen=True):
    tolerations: list[Toleration] | None = None
    affinity: Affinity | None = None
    volumes: list[Volume] | None = None


class PendingPod(Pod, frozen=True):
    spec: PendingPodSpec = PendingPodSpec()

    @property
    def claims(self) -> list[str]:
        """The PersistentVolumeClaims that the pod names."""
        sources = (volume.persistent_volume_claim for volume in self.spec.volumes or ())
        return [source.claim_name for source in sources if source is not None]

    def untolerated(self, node: Node) -> list[Taint]:
        """The taints that keep the pod from the node."""
        return [
            taint
            for taint in node.spec.taints or ()
            if taint.effect in _REPELLING and not any(own.covers(taint) for own in self.spec.tolerations or ())
        ]

    def selects(self, node: Node) -> bool:
        """Whether the node matches the pod's node selector and required node affinity."""
        if not (self.spec.node_selector or {}).items() <= node.metadata.labels.items():
            return False
        affinity = self.spec.affinity.node_affinity if self.spec.affinity else None
        required = affinity.required if affinity else None
        return required is None or any(term.matches(node) for term in required.node_selector_terms)


def _compares(has: str, operator: str, wanted: list[str]) -> bool:
    try:
        left, right = int(has), int(wanted[0])
    except (ValueError, IndexError):
        return False
    return left > right if operator == "Gt" else left < right
