"""Our client and a real API server over TLS: the ways to prove who we are, and what it says of rights we lack.

What the client does with the server's answers is in tests/integration/kube, which runs on a real one with --real-api.
"""

import asyncio
from pathlib import Path

import pytest

from aliquot.clock import SystemClock
from aliquot.kube import NODES, Client, Informer, from_kubeconfig
from aliquot.kube.access import in_cluster
from aliquot.kube.errors import Forbidden, Unauthorized
from aliquot.kube.reviews import User, whose
from aliquot.model import Node
from tests.fakes import until
from tests.rig import Rig

pytestmark = pytest.mark.e2e

ACCOUNT = "system:serviceaccount:default:default"


def token_of(rig: Rig) -> str:
    return rig.kubectl("create", "token", "default", "--duration=10m").strip()


async def test_a_client_certificate_of_a_kubeconfig(rig: Rig) -> None:
    async with Client(from_kubeconfig(rig.admin_kubeconfig)) as client:
        listed = await client.list(NODES)
        assert [node.key for node in listed.items] == [rig.node_name]
        owner = await whose(client, token_of(rig))
    assert isinstance(owner, User)
    assert owner.username == ACCOUNT


async def test_an_account_s_token_and_the_rights_that_it_lacks(rig: Rig) -> None:
    kubeconfig = rig.service_account_kubeconfig("default", "default")

    def ignore(_: Node | None, __: Node | None) -> None:
        pass

    async with Client(from_kubeconfig(kubeconfig)) as client:
        await client.reach()
        informer: Informer[Node] = Informer(client, NODES, ignore, clock=SystemClock())
        running = asyncio.create_task(informer.run())
        await until(lambda: informer.trouble.startswith("cannot read nodes"))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert f'User "{ACCOUNT}" cannot list resource "nodes"' in informer.trouble


async def test_the_account_of_a_pod_whose_token_is_read_again(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, port = rig.apiserver_url.removeprefix("https://").split(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    (tmp_path / "ca.crt").write_text((rig.folder / "certificates" / "ca.crt").read_text())
    (tmp_path / "token").write_text("nobody's")
    async with Client(in_cluster(tmp_path)) as client:
        with pytest.raises(Unauthorized):
            await client.list(NODES)
        (tmp_path / "token").write_text(token_of(rig))
        with pytest.raises(Forbidden, match=ACCOUNT):
            await client.list(NODES)
