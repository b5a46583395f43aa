"""Certificates that the server makes: shared by replicas, renewed, known to the API server, and always accepted."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import aiohttp
import pytest
from cryptography import x509

from aliquot.embedded.api import resources
from aliquot.endpoints import asgi
from aliquot.endpoints.listener import Listener
from aliquot.endpoints.own_certificates.bundle import SETTLE, Bundle, Terms
from aliquot.endpoints.own_certificates.ca_bundles import CaBundles
from aliquot.endpoints.own_certificates.shared import SharedCertificates
from aliquot.endpoints.query_tls import QueryTls
from aliquot.errors import BadConfig
from aliquot.kube import Access, Client
from aliquot.kube.resources import SECRETS, ServiceReference
from tests.fakes import Embedded, FakeClock, ScriptedApi, answer, until
from tests.integration.endpoints.api_services import ApiServices

pytestmark = pytest.mark.embedded_only("the users and their rights are the test's own")

NAMESPACE, NAME = "kube-system", "gpu"
HOST = f"{NAME}.{NAMESPACE}.svc"
TERMS = Terms((HOST, "localhost"), timedelta(days=1))
API = "v1alpha1.metrics.nvidia.com"
_NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME: OpenSSL's clock is not the test's."""


class Replica:
    """A server that shares its certificate, with a port."""

    def __init__(self, client: Client, clock: FakeClock, services: Client) -> None:
        self.shared = SharedCertificates(client, clock, NAMESPACE, NAME, TERMS, self._is_known)
        self.known = CaBundles(
            services, clock, [API], ServiceReference(NAME, NAMESPACE), lambda: self.shared.bundle.trusted()
        )
        pair = self.shared.bundle.pair
        self.tls = QueryTls(ssl.TLSVersion.TLSv1_2, pair.certificate, pair.key, "")
        self.shared.changed.subscribe(lambda _: self._serve())
        self.port = 0

    async def look(self) -> None:
        await self.shared.look()
        await self.known.look()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Replica"]:
        async def ok(_: asgi.Call) -> asgi.Response:
            return asgi.text("ok")

        routes = asgi.Routes({("GET", "/"): ok})
        async with Listener(routes, "127.0.0.1", 0, certificates=self.tls) as listener:
            self.port = listener.port
            yield self

    def _serve(self) -> None:
        pair = self.shared.bundle.pair
        self.tls.use(pair.certificate, pair.key, "")

    async def _is_known(self, bundle: Bundle) -> bool:
        return bundle.next_ca is not None and await self.known.know(bundle.next_ca.certificate)


@pytest.fixture
def embedded() -> Embedded:
    return Embedded()


@pytest.fixture
async def scripted(embedded: Embedded) -> AsyncIterator[ScriptedApi]:
    async with ScriptedApi(embedded) as running:
        yield running


@pytest.fixture
async def services() -> AsyncIterator[ApiServices]:
    made = ApiServices()
    made.add(API, f"{NAMESPACE}/{NAME}", insecureSkipTLSVerify=True)
    async with made.served():
        yield made


@pytest.fixture
async def replicas(client: Client, clock: FakeClock, services: ApiServices) -> AsyncIterator[list[Replica]]:
    async with Client(Access(services.url)) as apis:
        yield [Replica(client, clock, apis) for _ in range(2)]


async def accepted(replica: Replica, services: ApiServices) -> None:
    """A stock client that trusts what the API server trusts gets an answer."""
    context = ssl.create_default_context(cadata=services.trusted(API))
    context.verify_flags |= _NO_CHECK_TIME
    async with aiohttp.ClientSession() as session:
        url = f"https://127.0.0.1:{replica.port}/"
        async with session.get(url, ssl=context, server_hostname=HOST) as response:
            assert await response.text() == "ok"


async def test_replicas_that_start_at_once_agree(replicas: list[Replica]) -> None:
    first, second = replicas
    assert first.shared.bundle != second.shared.bundle
    await asyncio.gather(first.shared.look(), second.shared.look())
    assert first.shared.bundle == second.shared.bundle


async def test_a_new_replica_takes_what_is_there(replicas: list[Replica], client: Client) -> None:
    first, second = replicas
    await first.shared.look()
    before = await client.get(SECRETS, NAME, NAMESPACE)
    await second.shared.look()
    assert second.shared.bundle == first.shared.bundle
    assert await client.get(SECRETS, NAME, NAMESPACE) == before, "nothing is written"


async def test_a_replica_follows_what_another_one_renews(replicas: list[Replica], clock: FakeClock) -> None:
    first, second = replicas
    await first.shared.look()
    following = asyncio.create_task(second.shared.run())
    await until(lambda: second.shared.bundle == first.shared.bundle, passing=clock)
    await clock.move(timedelta(hours=17).total_seconds())
    await until(lambda: second.shared.bundle != first.shared.bundle, "renewed", passing=clock)
    await first.shared.look()
    assert second.shared.bundle == first.shared.bundle
    assert second.shared.notes() == []
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_a_server_that_started_before_the_api_server_shares_its_certificate_soon(
    replicas: list[Replica], clock: FakeClock, scripted: ScriptedApi
) -> None:
    first, second = replicas
    scripted.script("GET", f"secrets/{NAME}", answer(503, message="not yet"), answer(503, message="not yet"))
    await first.shared.look()
    (note,) = first.shared.notes()
    assert "not yet" in note
    following = asyncio.create_task(first.shared.run())
    await until(lambda: not first.shared.notes(), passing=clock)
    await second.shared.look()
    assert first.shared.bundle == second.shared.bundle
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_a_deleted_secret_means_new_keys(replicas: list[Replica], client: Client) -> None:
    first, _ = replicas
    await first.shared.look()
    before = first.shared.bundle
    await client.delete(SECRETS, NAME, NAMESPACE)
    await first.shared.look()
    assert first.shared.bundle.ca.key != before.ca.key


async def test_a_secret_of_no_use_is_replaced(replicas: list[Replica], client: Client, scripted: ScriptedApi) -> None:
    scripted.registry.create(
        resources.SECRETS, NAMESPACE, {"metadata": {"name": NAME}, "data": {"tls.crt": "bm8=", "mine": "eWVz"}}
    )
    first, second = replicas
    await asyncio.gather(first.look(), second.look())
    assert first.shared.bundle == second.shared.bundle
    stored = await client.get(SECRETS, NAME, NAMESPACE)
    assert (stored.data or {})["mine"] == "eWVz", "what others keep there stays"


# -- the API server


async def test_the_api_server_learns_the_ca_and_verifies(replicas: list[Replica], services: ApiServices) -> None:
    first, second = replicas
    async with first.listening(), second.listening():
        for replica in replicas:
            await replica.look()
        assert services.spec(API).keys() == {"service", "caBundle"}, "insecureSkipTLSVerify is gone"
        assert services.patches == 1, "the second replica found nothing to change"
        for replica in replicas:
            await accepted(replica, services)


async def test_only_our_own_api_services_are_changed(replicas: list[Replica], services: ApiServices) -> None:
    services.add(API, "kube-system/original")
    await replicas[0].look()
    assert services.patches == 0
    (note,) = replicas[0].known.notes()
    assert "points to Service kube-system/original, not to kube-system/gpu" in note


async def test_a_ca_file_that_cannot_be_read_is_noted_and_changes_nothing(
    services: ApiServices, clock: FakeClock
) -> None:
    def gone() -> bytes:
        raise BadConfig("ca.crt: no such file")

    async with Client(Access(services.url)) as apis:
        known = CaBundles(apis, clock, [API], ServiceReference(NAME, NAMESPACE), gone)
        await known.look()
    assert services.patches == 0
    assert known.notes() == [f"APIService {API}: ca.crt: no such file"]


async def test_a_rotation_of_the_ca_is_never_noticed(
    replicas: list[Replica], services: ApiServices, clock: FakeClock, client: Client
) -> None:
    """One replica renews; the other one hears of it late, and clients call both at every step."""
    first, second = replicas
    async with first.listening(), second.listening():
        for replica in replicas:
            await replica.look()
        old = first.shared.bundle.ca
        for _ in range(200):
            await clock.move(timedelta(hours=1).total_seconds())
            await first.look()
            await accepted(first, services)
            await accepted(second, services)
            await second.look()
            if first.shared.bundle.next_ca is not None:
                break
        upcoming = first.shared.bundle.next_ca
        assert upcoming is not None
        assert len(x509.load_pem_x509_certificates(services.trusted(API).encode())) == 2

        await clock.move(SETTLE.total_seconds())
        await first.look()
        assert first.shared.bundle.ca == upcoming
        assert second.shared.bundle.ca == old
        await accepted(first, services)
        await accepted(second, services)
        await second.look()

        assert first.shared.bundle.former is not None
        await clock.move(timedelta(days=1).total_seconds())
        for replica in replicas:
            await replica.look()
            await accepted(replica, services)
        assert services.trusted(API).encode() == upcoming.certificate, "the old CA is gone"
        assert sorted((await client.get(SECRETS, NAME, NAMESPACE)).data or {}) == sorted(first.shared.bundle.data())


async def test_a_ca_that_the_api_server_does_not_know_signs_nothing(replicas: list[Replica], clock: FakeClock) -> None:
    first, _ = replicas
    await first.look()
    while first.shared.bundle.next_ca is None:
        await clock.move(timedelta(hours=1).total_seconds())
        await first.shared.look()
    await clock.move(SETTLE.total_seconds())
    await first.shared.look()
    assert first.shared.bundle.next_ca is not None
    await first.known.look()
    await first.shared.look()
    assert first.shared.bundle.next_ca is None


# -- without rights


@pytest.mark.parametrize(
    ("verbs", "rule"),
    [
        ([], 'apiGroups: [""], resources: [secrets], resourceNames: [gpu], verbs: [get, list, watch, patch]'),
        (["get"], 'apiGroups: [""], resources: [secrets], verbs: [create]'),
    ],
)
async def test_without_rights_the_rule_is_noted_and_the_port_still_works(
    embedded: Embedded,
    scripted: ScriptedApi,
    clock: FakeClock,
    services: ApiServices,
    verbs: list[str],
    rule: str,
) -> None:
    rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": verbs}]
    embedded.cluster.users.add("system:serviceaccount:kube-system:few", token="few", rules=rules if verbs else [])
    services.is_forbidden = True
    async with (
        Client(Access(scripted.url, token="few")) as client,
        Client(Access(services.url)) as apis,
        Replica(client, clock, apis).listening() as replica,
    ):
        await replica.look()
        (note,) = replica.shared.notes()
        assert rule in note
        (note,) = replica.known.notes()
        assert "resources: [apiservices], resourceNames: [v1alpha1.metrics.nvidia.com], verbs: [get, patch]" in note
        before = replica.shared.bundle
        await clock.move(timedelta(days=2).total_seconds())
        await replica.look()
        assert replica.shared.bundle != before, "it is renewed all the same"
