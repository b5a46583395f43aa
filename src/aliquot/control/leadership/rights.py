"""RBAC rights that the server needs, and the consequences of missing rights, e.g. with an original's account."""

from aliquot.config.sections.replicas import LeaseSection
from aliquot.kube.reviews import Action
from aliquot.kube.rights import Right
from aliquot.model.admission import EPOCH_MAP

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


REVIEW_ACCESS = Right(
    Action("create", "subjectaccessreviews", "authorization.k8s.io"),
    "the server cannot tell what callers may see, so its read endpoints refuse them",
)


_NOT_SHARED = "the query API's certificate is not shared between replicas, and is new after each restart"


def keep_secret(namespace: str, name: str) -> Right:
    return Right(Action("get", "secrets", namespace=namespace, name=name), _NOT_SHARED, ("list", "watch", "patch"))


def create_secrets(namespace: str) -> Right:
    return Right(Action("create", "secrets", namespace=namespace), _NOT_SHARED)


def keep_api_service(name: str) -> Right:
    action = Action("get", "apiservices", "apiregistration.k8s.io", name=name)
    return Right(action, "the API server does not learn the CA of the query API", ("patch",))


def for_helping(lease: LeaseSection) -> list[Right]:
    """Rights that only features depend on."""
    return [
        Right(Action("create", "pods", subresource="binding"), "the server can bind no pod"),
        see_epochs(lease),
        PATCH_PODS,
        Right(Action("patch", "pods", subresource="status"), _LATE),
        Right(Action("create", "events"), _EVENTS),
    ]
