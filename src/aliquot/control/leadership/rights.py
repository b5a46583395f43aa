"""RBAC rights that the server needs, and the consequences of missing rights, e.g. with an original's account."""

from dataclasses import dataclass

from aliquot.config.sections.replicas import LeaseSection
from aliquot.kube import Client
from aliquot.kube.reviews import Action, may_we
from aliquot.model.admission import EPOCH_MAP


@dataclass(frozen=True)
class Right:
    action: Action
    without: str
    """What is lost without it."""
    verbs: tuple[str, ...] = ()
    """Further verbs to grant with the action's own."""

    def __str__(self) -> str:
        action = self.action
        resource = "/".join(filter(None, (action.resource, action.subresource)))
        where = f" in namespace {action.namespace}" if action.namespace else ""
        return f"may not {action.verb} {resource}{where}: {self.without}"

    async def is_given(self, client: Client) -> bool:
        """Raises KubeError."""
        return (await may_we(client, self.action)).allowed

    def rule(self) -> str:
        """The RBAC rule that grants it, as a single line of YAML."""
        action = self.action
        resource = "/".join(filter(None, (action.resource, action.subresource)))
        names = f", resourceNames: [{action.name}]" if self.verbs and action.name else ""
        verbs = ", ".join((action.verb, *self.verbs))
        return f'- {{apiGroups: ["{action.group}"], resources: [{resource}]{names}, verbs: [{verbs}]}}'


ONLY_ONE = "run one replica, with strategy Recreate: two such servers sell the same card"
_ALONE = f"this server runs alone, without Lease and epoch; {ONLY_ONE}"
_LATE = "pods that another scheduler bound get no placement"
_NO_PATCH = f"{_LATE}, and refused pods are not requeued when there is room"
_EVENTS = "pods have no events that say why they wait"


def for_replicas(lease: LeaseSection) -> list[Right]:
    """Rights required for leader election."""
    group, namespace = "coordination.k8s.io", lease.namespace
    creations = [
        Action("create", "leases", group, namespace=namespace),
        Action("create", "configmaps", namespace=namespace),
    ]
    # the others can be granted by resource name, and are in our own Role
    leases = [Action(verb, "leases", group, namespace=namespace, name=lease.name) for verb in ("get", "patch")]
    terms = [Action(verb, "configmaps", namespace=namespace, name=EPOCH_MAP) for verb in ("get", "patch")]
    return [Right(action, _ALONE) for action in (*creations, *leases, *terms)]


PATCH_PODS = Right(Action("patch", "pods"), _NO_PATCH)


def see_epochs(lease: LeaseSection) -> Right:
    action = Action("watch", "configmaps", namespace=lease.namespace, name=EPOCH_MAP)
    return Right(action, "this server notices a later term only when the API server refuses a write")


def read_maps(namespace: str, name: str, without: str) -> Right:
    """The right to watch the ConfigMap of this name, or all in the namespace."""
    return Right(Action("list", "configmaps", namespace=namespace, name=name), without, ("watch",))


READ_BUDGETS = Right(
    Action("list", "poddisruptionbudgets", "policy"),
    "the server does not count the victims that it adds as violations of a budget",
    ("watch",),
)


REVIEW_TOKENS = Right(
    Action("create", "tokenreviews", "authentication.k8s.io"),
    "the server knows callers by their certificates only and refuses tokens",
)


def for_helping(lease: LeaseSection) -> list[Right]:
    """Rights that only features depend on."""
    return [
        Right(Action("create", "pods", subresource="binding"), "the server can bind no pod"),
        see_epochs(lease),
        PATCH_PODS,
        Right(Action("patch", "pods", subresource="status"), _LATE),
        Right(Action("create", "events"), _EVENTS),
    ]
