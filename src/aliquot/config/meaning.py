"""What the configuration means to the rooms that it configures."""

import os
import socket
from collections.abc import Mapping

from aliquot.config.addresses import is_loopback
from aliquot.config.tree import Configuration, Kubernetes
from aliquot.control.settings import ControlSettings, Mode
from aliquot.dialects import Dialect, Dialects, make_dialects
from aliquot.engine import check_policies
from aliquot.errors import BadConfig
from aliquot.kube import Access, LeaseTiming, find

_EVERY = "*"
_ANY_ADDRESS = ("0.0.0.0", "::", "")


def control_settings(tree: Configuration) -> ControlSettings:
    """Raises BadConfig for terms of the Lease that do not go together."""
    lease, commit = tree.lease, tree.commit
    return ControlSettings(
        mode=Mode(tree.mode),
        alone=not lease.enabled,
        namespace=lease.namespace,
        lease=lease.name,
        terms=LeaseTiming(lease.duration, lease.renew, lease.retry),
        budget=commit.budget,
        look=commit.look,
        act_limit=commit.act_limit,
        audit_seconds=tree.audit.seconds,
        late_seconds=tree.late.seconds,
        hold_seconds=tree.late.hold,
        search_seconds=tree.search.seconds,
        quota_namespace=tree.quota.namespace,
        quota_name=tree.quota.name,
        quota_key=tree.quota.key,
        schedulers=schedulers(tree),
        claims_per_namespace=commit.claims_per_namespace,
    )


def schedulers(tree: Configuration) -> frozenset[str]:
    """Empty where all are served."""
    names = frozenset(filter(None, (name.strip() for name in tree.schedulers.split(","))))
    return frozenset() if _EVERY in names else names


def knows_callers(tree: Configuration, answered: str, address: str) -> bool:
    """Whether a port answers known callers only."""
    if answered == "auto":
        return not is_loopback(address) or bool(tree.listen.tls.client_ca_file)
    return answered == "known"


def access(kubernetes: Kubernetes) -> Access:
    """Raises BadConfig."""
    return find(kubernetes.kubeconfig or None, kubernetes.context, server=kubernetes.server, as_pod=kubernetes.as_pod)


def dialects(tree: Configuration) -> Dialects:
    """The dialects with their prefixes and policies. Raises BadConfig."""
    made = make_dialects(tree.prefixes)
    set_policies(made, tree)
    quota = tree.quota
    for dialect in made.values():
        if quota.model_label and dialect.model_labels:
            dialect.model_labels = (quota.model_label,)
        if quota.pool_label and dialect.pool_labels:
            dialect.pool_labels = (quota.pool_label,)
    return made


def wrong_policies(made: Mapping[str, Dialect], tree: Configuration) -> list[str]:
    """What cannot be used of the policies."""
    problems: list[str] = []
    for key, given in (("policies.gpu", tree.policies.gpu), ("policies.node", tree.policies.node)):
        if unknown := sorted(given.keys() - made.keys()):
            problems.append(f"{key}: no dialect is called {', '.join(unknown)}; there are {', '.join(made)}")
    for dialect in made.values():
        where = {"gpu_field": f"policies.gpu.{dialect.name}", "node_field": f"policies.node.{dialect.name}"}
        gpu, node = _policies(dialect, tree)
        for one in ((gpu, ""), ("", node)):
            try:
                check_policies(*one, error=BadConfig, **where)
            except BadConfig as error:
                problems.append(str(error))
    return list(dict.fromkeys(problems))


def set_policies(made: Dialects, tree: Configuration) -> None:
    """A dialect that the configuration does not name keeps its own choice. Raises BadConfig, and changes nothing."""
    if problems := wrong_policies(made, tree):
        raise BadConfig("; ".join(problems))
    for dialect in made.values():
        dialect.gpu_policy, dialect.node_policy = _policies(dialect, tree)


def _policies(dialect: Dialect, tree: Configuration) -> tuple[str, str]:
    own = type(dialect)
    name = dialect.name
    return tree.policies.gpu.get(name, own.gpu_policy), tree.policies.node.get(name, own.node_policy)


def endpoints(tree: Configuration, ports: Mapping[str, int]) -> dict[str, str]:
    """Where other replicas reach this one's endpoints: URLs by name."""
    host = tree.replicas.address or os.environ.get("POD_IP", "") or tree.listen.address
    if host in _ANY_ADDRESS:
        host = socket.gethostname()
    shown = f"[{host}]" if ":" in host else host
    scheme = "https" if tree.listen.tls.cert_file else "http"
    return {name: f"{scheme}://{shown}:{port}" for name, port in ports.items()}
