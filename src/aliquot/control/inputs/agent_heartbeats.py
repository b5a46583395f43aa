"""Live agents: an informer cache of the Leases that they renew, one per node."""

from aliquot.clock import Clock
from aliquot.kube import LEASES, Client, Informer, KubeError
from aliquot.kube.errors import Forbidden
from aliquot.kube.resources import Lease
from aliquot.model.records import NODE_LEASES

_LONGEST_SECONDS = 60
"""For a Lease without a duration."""
_NAMES = 5


class AgentHeartbeats:
    """Trusts no other machine's clock: a Lease was renewed when we saw it change."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._missing: list[str] = []
        self._moved_at: dict[str, float] = {}
        self.leases: Informer[Lease] = Informer(client, LEASES, self._on_lease, namespace=NODE_LEASES, clock=clock)

    async def run(self) -> None:
        """Returns, with a note, if we may not list them."""
        try:
            await self._client.list(LEASES, namespace=NODE_LEASES)
        except Forbidden as error:
            self._missing = [f"the server cannot notice silent agents: {error}"]
            return
        except KubeError:
            pass  # the informer retries, and reports it
        await self.leases.run()

    def silent(self) -> list[str]:
        """Nodes whose agents have not renewed their Lease within its duration."""
        now = self._clock.monotonic()
        return sorted(
            lease.metadata.name
            for lease in self.leases.all()
            if now - self._moved_at[lease.key] > (lease.spec.lease_duration_seconds or _LONGEST_SECONDS)
        )

    def notes(self) -> list[str]:
        silent = self.silent()
        more = f" and {len(silent) - _NAMES} more" if len(silent) > _NAMES else ""
        told = [f"the agents of these nodes are silent: {', '.join(silent[:_NAMES])}{more}"] if silent else []
        return self._missing + told

    def _on_lease(self, old: Lease | None, new: Lease | None) -> None:
        if new is None:
            assert old is not None, "an informer event has an old or a new object"
            del self._moved_at[old.key]
        elif old is None or old.spec != new.spec:
            self._moved_at[new.key] = self._clock.monotonic()
