"""Everything that talks to an API server."""

from typing import TYPE_CHECKING

from aliquot.lazy_names import lazy

if TYPE_CHECKING:
    from aliquot.kube.access import Access, find, from_kubeconfig
    from aliquot.kube.client import Client
    from aliquot.kube.errors import (
        AlreadyExists,
        ApiError,
        Conflict,
        Invalid,
        KubeError,
        NoAnswer,
        NotFound,
        NotSent,
        TooManyRequests,
    )
    from aliquot.kube.informer import Informer
    from aliquot.kube.leases import LeaderElector, LeaseTiming
    from aliquot.kube.resources import (
        CONFIG_MAPS,
        EVENTS,
        LEASES,
        NODES,
        POD_DISRUPTION_BUDGETS,
        PODS,
        ConfigMap,
        PodDisruptionBudget,
    )
else:
    __getattr__ = lazy(
        __name__,
        {
            "access": "Access find from_kubeconfig",
            "client": "Client",
            "errors": "AlreadyExists ApiError Conflict Invalid KubeError NoAnswer NotFound NotSent TooManyRequests",
            "informer": "Informer",
            "leases": "LeaderElector LeaseTiming",
            "resources": "CONFIG_MAPS EVENTS LEASES NODES POD_DISRUPTION_BUDGETS PODS ConfigMap PodDisruptionBudget",
        },
    )
