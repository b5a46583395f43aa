"""The tree of errors. Everything that Aliquot raises on purpose is an AliquotError.

AliquotError
├── BadInput            invalid input; the text names the field
│   ├── BadQuantity     an invalid or absurd Kubernetes quantity
│   ├── BadDemand       a GPU demand of a pod that its dialect does not allow
│   ├── BadRecord       an unreadable record (placement, inventory) of ours or of an original
│   └── BadConfig       an invalid flag, configuration file or kubeconfig
│       └── NoDriver    this machine has no card or no driver; it may appear later
├── Refused             a placement or a hand-over that must not happen; the text says why
│   ├── NoRoom          the part does not fit
│   ├── AlreadyHeld     the pod already holds another part on the node
│   ├── NotPlaced       the container has no placement
│   └── NotLeading      this server does not hold the Lease; only the holder commits
├── NoAnswerFromPrometheus  it cannot be reached, or answers nothing that can be used
└── KubeError           the API server refused, or did not answer (aliquot.kube.errors)

Errors of libraries (aiohttp, msgspec, grpc, pynvml) are translated at one boundary each, with `raise ... from`.
Code either logs an error or raises it, never both.
"""


class AliquotError(Exception):
    """The root. Catching it catches deliberate errors and no bugs."""


class BadInput(AliquotError):
    """Invalid input. The text names the field."""


class BadQuantity(BadInput):
    """An invalid or absurd Kubernetes quantity."""


class BadDemand(BadInput):
    """A GPU demand of a pod that its dialect does not allow."""


class BadRecord(BadInput):
    """An unreadable record on a pod or node, written by us or by an original."""


class BadConfig(BadInput):
    """An invalid flag, configuration file or kubeconfig."""


class NoDriver(BadConfig):
    """This machine has no card, or its driver does not answer. The text says what to check."""


class Refused(AliquotError):
    """A placement or a hand-over that must not happen. The text says why."""


class NoRoom(Refused):
    """The part does not fit."""


class AlreadyHeld(Refused):
    """The pod already holds a part on the node that differs from the requested one."""


class NotPlaced(Refused):
    """The container has no placement, so it gets no card."""


class NotLeading(Refused):
    """This server does not hold the Lease, or no longer. Only the holder commits."""


class NoAnswerFromPrometheus(AliquotError):
    """It cannot be reached, or answers nothing that can be used."""
