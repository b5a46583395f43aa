"""The one error tree. Everything that Aliquot raises on purpose is below AliquotError.

AliquotError
├── BadInput            somebody handed us something we cannot read; the text names the field
│   ├── BadQuantity     a Kubernetes quantity that is not one, or that is absurd
│   ├── BadDemand       a pod's GPU demand that its dialect does not allow
│   ├── BadRecord       a record (placement, inventory), ours or an original's, that cannot be read back
│   └── BadConfig       a flag, a file or a kubeconfig
├── Refused             a placement or a hand-over that must not happen; the text says why
│   ├── NoRoom          the part does not fit
│   ├── AlreadyHeld     the pod is bound to the node with another part
│   ├── NotPlaced       a container without a placement gets nothing
│   └── NotLeading      another server holds the Lease, or nobody does: only its holder commits
└── KubeError           the API server said no, or did not answer (aliquot.kube.errors)

Foreign errors (aiohttp, msgspec, grpc, pynvml) are translated at one boundary each, with `raise ... from`.
A place either logs an error or raises it, never both.
"""


class AliquotError(Exception):
    """The root: catching it catches what we raise on purpose and no bug."""


class BadInput(AliquotError):
    """Somebody handed us something we cannot read; the text names the field."""


class BadQuantity(BadInput):
    """A Kubernetes quantity that is not one, or that is absurd."""


class BadDemand(BadInput):
    """A pod's GPU demand that its dialect does not allow."""


class BadRecord(BadInput):
    """A record of ours or of an original program, on a pod or a node, that cannot be read back."""


class BadConfig(BadInput):
    """A flag, a configuration file or a kubeconfig that cannot be used."""


class Refused(AliquotError):
    """A placement or a hand-over that must not happen; the text says why."""


class NoRoom(Refused):
    """The part does not fit."""


class AlreadyHeld(Refused):
    """The pod is bound to the node with another part than is asked for."""


class NotPlaced(Refused):
    """A container without a placement gets nothing."""


class NotLeading(Refused):
    """Only the holder of the Lease commits, and that is not this server, or not any more."""
