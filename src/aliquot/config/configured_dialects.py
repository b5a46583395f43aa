"""The dialects with the prefixes, policies and labels of the server's configuration."""

from collections.abc import Mapping

from aliquot.config.sections.placement import PoliciesSection
from aliquot.config.server_tree import ServerConfig
from aliquot.dialects import Dialect, Dialects, make_dialects
from aliquot.engine import check_policies
from aliquot.errors import BadConfig


def configured_dialects(config: ServerConfig) -> Dialects:
    """Raises BadConfig."""
    dialects = make_dialects(config.prefixes)
    set_policies(dialects, config.policies)
    quota = config.quota
    for dialect in dialects.values():
        if quota.model_label and dialect.model_labels:
            dialect.model_labels = (quota.model_label,)
        if quota.pool_label and dialect.pool_labels:
            dialect.pool_labels = (quota.pool_label,)
    return dialects


def set_policies(dialects: Dialects, policies: PoliciesSection) -> None:
    """A dialect without a configured policy gets its own. Raises BadConfig and then changes nothing."""
    if problems := policy_problems(dialects, policies):
        raise BadConfig("; ".join(problems))
    for dialect in dialects.values():
        dialect.gpu_policy, dialect.node_policy = _policies_of(dialect, policies)


def policy_problems(dialects: Mapping[str, Dialect], policies: PoliciesSection) -> list[str]:
    """Unknown dialects and policies, each with its key."""
    problems: list[str] = []
    for key, configured in (("policies.gpu", policies.gpu), ("policies.node", policies.node)):
        if unknown := sorted(configured.keys() - dialects.keys()):
            problems.append(f"{key}: unknown dialect {', '.join(unknown)}; valid dialects are {', '.join(dialects)}")
    for dialect in dialects.values():
        where = {"gpu_field": f"policies.gpu.{dialect.name}", "node_field": f"policies.node.{dialect.name}"}
        gpu, node = _policies_of(dialect, policies)
        for pair in ((gpu, ""), ("", node)):
            try:
                check_policies(*pair, error=BadConfig, **where)
            except BadConfig as error:
                problems.append(str(error))
    return list(dict.fromkeys(problems))


def _policies_of(dialect: Dialect, policies: PoliciesSection) -> tuple[str, str]:
    own = type(dialect)
    return policies.gpu.get(dialect.name, own.gpu_policy), policies.node.get(dialect.name, own.node_policy)
