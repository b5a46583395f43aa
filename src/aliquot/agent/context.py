"""What the parts of the agent share: who they are, and whom they ask."""

from dataclasses import dataclass

from aliquot.agent.card_errors import CardErrors
from aliquot.agent.card_reader import CardReader
from aliquot.agent.devices import DeviceSource
from aliquot.agent.metrics import AgentMetrics
from aliquot.agent.readiness import Readiness
from aliquot.agent.usage import FindsOwners
from aliquot.clock import Clock
from aliquot.config.agent_tree import AgentConfig
from aliquot.dialects import Dialects
from aliquot.kube import Client


@dataclass(frozen=True)
class AgentContext:
    settings: AgentConfig
    dialects: Dialects
    client: Client
    devices: DeviceSource
    owners: FindsOwners
    reader: CardReader
    errors: CardErrors
    metrics: AgentMetrics
    readiness: Readiness
    clock: Clock
