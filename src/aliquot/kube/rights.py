"""An RBAC right that we need, and what is lost without it."""

from dataclasses import dataclass

from aliquot.kube.client import Client
from aliquot.kube.reviews import Action, may_we


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
