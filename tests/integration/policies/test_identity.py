"""Who is who on the embedded API server, and what they may do there."""

from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from aliquot.config.sections.replicas import LeaseSection
from aliquot.control.leadership.rights import READ_BUDGETS, for_helping, for_replicas
from aliquot.embedded import EmbeddedCluster
from aliquot.embedded.api import resources
from aliquot.embedded.api.deletion import DeleteRequest
from aliquot.kube import NODES, PODS, Access, Client
from aliquot.kube.access import from_kubeconfig
from aliquot.kube.errors import Forbidden, Unauthorized
from aliquot.kube.reviews import Action, User, may, may_we, whose

DEPLOY = Path(__file__).parents[3] / "deploy"
READER = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
SERVER = "system:serviceaccount:aliquot-system:aliquot-server"
SELF_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@asynccontextmanager
async def client_of(cluster: EmbeddedCluster, name: str, **how: Any) -> AsyncIterator[Client]:
    token = cluster.users.add(name, **how)
    async with Client(Access(cluster.url, token=token)) as client:
        yield client


async def whoami(cluster: EmbeddedCluster, headers: Mapping[str, str] | None = None, url: str = "") -> dict[str, Any]:
    async with aiohttp.ClientSession() as session:
        address = f"{url or cluster.url}{SELF_REVIEWS}"
        async with session.post(address, json={}, headers=headers) as response:
            body: dict[str, Any] = await response.json()
            told: dict[str, Any] = body["status"]["userInfo"] if response.ok else body
            return told


def pod(name: str = "web") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "i:1"}]}}


def apply(cluster: EmbeddedCluster, path: Path) -> None:
    kinds = {resource.kind: resource for resource in resources.RESOURCES}
    for document in yaml.safe_load_all(path.read_text()):
        resource = kinds[document["kind"]]
        namespace = document["metadata"].get("namespace", "")
        cluster.registry.create(resource, namespace, document)


# -- who


async def test_without_a_token_one_is_the_administrator(cluster: EmbeddedCluster) -> None:
    assert await whoami(cluster) == {
        "username": "kubernetes-admin",
        "groups": ["system:masters", "system:authenticated"],
    }


async def test_a_token_says_who_one_is(cluster: EmbeddedCluster) -> None:
    cluster.users.add("jane", groups=["team-a"], token="secret", rules=[])
    told = await whoami(cluster, {"Authorization": "Bearer secret"})
    assert told == {"username": "jane", "groups": ["team-a", "system:authenticated"]}


async def test_a_service_account_is_in_its_groups(cluster: EmbeddedCluster) -> None:
    cluster.users.add(SERVER, token="secret")
    told = await whoami(cluster, {"Authorization": "Bearer secret"})
    assert told["groups"][:2] == ["system:serviceaccounts", "system:serviceaccounts:aliquot-system"]


@pytest.mark.parametrize(
    "proof",
    [
        pytest.param("Bearer nobodys", id="a token of nobody"),
        pytest.param("Bearer ", id="no token"),
        pytest.param("Basic %%%", id="no base64"),
        pytest.param(f"Basic {b64encode(b'jane').decode()}", id="no password"),
    ],
)
async def test_who_is_unknown_gets_nothing(cluster: EmbeddedCluster, proof: str) -> None:
    refused = await whoami(cluster, {"Authorization": proof})
    assert (refused["code"], refused["reason"], refused["message"]) == (401, "Unauthorized", "Unauthorized")


async def test_our_client_knows_that_it_is_unknown(cluster: EmbeddedCluster) -> None:
    async with Client(Access(cluster.url, token="nobodys")) as client:
        with pytest.raises(Unauthorized):
            await client.list(PODS)


async def test_only_the_administrator_speaks_for_others(cluster: EmbeddedCluster) -> None:
    told = await whoami(cluster, {"Impersonate-User": "mallory", "Impersonate-Group": "crooks"})
    assert told == {"username": "mallory", "groups": ["crooks", "system:authenticated"]}
    cluster.users.add("jane", token="secret", rules=READER)
    refused = await whoami(cluster, {"Authorization": "Bearer secret", "Impersonate-User": "mallory"})
    assert refused["message"] == (
        'users "mallory" is forbidden: User "jane" cannot impersonate resource "users" in API group "" '
        "at the cluster scope"
    )


async def test_a_kubeconfig_is_for_a_user(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """kubectl sends no token without TLS, so the token is in the address."""
    cluster.users.add("jane:doe", rules=READER)
    path = tmp_path / "kubeconfig"
    cluster.write_kubeconfig(path, user="jane:doe")
    (known,) = yaml.safe_load(path.read_text())["clusters"]
    assert (await whoami(cluster, url=known["cluster"]["server"]))["username"] == "jane:doe"
    async with Client(from_kubeconfig(path)) as client:
        assert (await client.list(PODS)).items == []
        with pytest.raises(Forbidden, match='User "jane:doe" cannot list resource "nodes"'):
            await client.list(NODES)


def test_a_kubeconfig_for_nobody_cannot_be_written(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="no user nobody was added"):
        cluster.write_kubeconfig(tmp_path / "kubeconfig", user="nobody")


async def test_tokens_are_reviewed(cluster: EmbeddedCluster) -> None:
    async with client_of(cluster, "jane", groups=["team-a"], token="secret") as client:
        found = await whose(client, "secret")
        assert found is not None
        assert (found.username, (found.groups or [])[0]) == ("jane", "team-a")
        assert await whose(client, "another") is None


# -- what they may


async def test_a_user_without_rules_may_do_everything(cluster: EmbeddedCluster) -> None:
    async with client_of(cluster, "jane") as client:
        await client.create(PODS, pod(), "default")
        assert (await may_we(client, Action("delete", "nodes"))).allowed


async def test_a_user_may_do_what_the_rules_say(cluster: EmbeddedCluster) -> None:
    async with client_of(cluster, "jane", rules=READER) as client:
        assert (await client.list(PODS)).items == []
        with pytest.raises(Forbidden) as refused:
            await client.create(PODS, pod(), "default")
        assert str(refused.value) == (
            'pods is forbidden: User "jane" cannot create resource "pods" in API group "" in the namespace "default"'
        )
        with pytest.raises(Forbidden) as refused:
            await client.patch(PODS, "web", {}, namespace="default", part="status")
        assert str(refused.value) == (
            'pods "web" is forbidden: User "jane" cannot patch resource "pods/status" in API group "" '
            'in the namespace "default"'
        )
        with pytest.raises(Forbidden, match='cannot list resource "nodes" in API group "" at the cluster scope'):
            await client.list(NODES)


RULES = [
    {"apiGroups": ["apps"], "resources": ["*"], "verbs": ["get"]},
    {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"], "verbs": ["*"]},
    {"apiGroups": ["*"], "resources": ["*/status"], "verbs": ["patch"]},
    {"nonResourceURLs": ["/metrics", "/logs/*"], "verbs": ["get"]},
]


@pytest.mark.parametrize(
    ("action", "allowed"),
    [
        (Action("get", "deployments", "apps"), True),
        (Action("get", "deployments", "apps", subresource="scale"), True),
        (Action("get", "deployments", "other"), False),
        (Action("list", "deployments", "apps"), False),
        (Action("get", "configmaps", name="mine"), True),
        (Action("get", "configmaps", name="yours"), False),
        (Action("list", "configmaps"), False),
        (Action("patch", "pods", subresource="status"), True),
        (Action("patch", "pods"), False),
        (Action("get", path="/metrics"), True),
        (Action("get", path="/logs/today"), True),
        (Action("get", path="/metrics/cadvisor"), False),
    ],
    ids=str,
)
async def test_reviews_answer_by_the_rules(cluster: EmbeddedCluster, action: Action, allowed: bool) -> None:
    async with client_of(cluster, "jane", rules=RULES) as jane, Client(Access(cluster.url)) as admin:
        assert (await may_we(jane, action)).allowed is allowed
        assert (await may(admin, User("jane"), action)).allowed is allowed


# -- roles


async def test_our_accounts_have_the_rights_that_our_manifest_gives(cluster: EmbeddedCluster) -> None:
    cluster.registry.delete(resources.NAMESPACES, "", "aliquot-system", DeleteRequest())
    apply(cluster, DEPLOY / "aliquot.yaml")
    async with client_of(cluster, SERVER) as client:
        wanted = [*for_replicas(LeaseSection()), *for_helping(LeaseSection()), READ_BUDGETS]
        assert [str(right) for right in wanted if not (await may_we(client, right.action)).allowed] == []
        assert (await client.list(PODS)).items == []
        assert (await may_we(client, replace(READ_BUDGETS.action, verb="watch"))).allowed
        with pytest.raises(Forbidden):
            await client.create(PODS, pod(), "default")
        assert not (await may_we(client, Action("patch", "configmaps", namespace="aliquot-system", name="x"))).allowed
        assert not (await may_we(client, Action("get", "configmaps", namespace="default"))).allowed


async def test_who_is_bound_to_no_role_may_ask_only_about_themselves(cluster: EmbeddedCluster) -> None:
    async with client_of(cluster, "system:serviceaccount:default:default") as client:
        with pytest.raises(Forbidden):
            await client.list(PODS)
        assert not (await may_we(client, Action("list", "pods"))).allowed


@pytest.mark.parametrize(
    "subject",
    [
        pytest.param({"kind": "User", "name": "jane"}, id="user"),
        pytest.param({"kind": "Group", "name": "team-a"}, id="group"),
    ],
)
async def test_a_role_binding_counts_in_its_namespace(cluster: EmbeddedCluster, subject: dict[str, str]) -> None:
    cluster.registry.create(resources.CLUSTER_ROLES, "", {"metadata": {"name": "reader"}, "rules": READER})
    binding = {
        "metadata": {"name": "reader"},
        "roleRef": {"kind": "ClusterRole", "name": "reader"},
        "subjects": [subject],
    }
    cluster.registry.create(resources.ROLE_BINDINGS, "default", binding)
    async with Client(Access(cluster.url)) as admin:
        jane = User("jane", groups=["team-a"])
        assert (await may(admin, jane, Action("list", "pods", namespace="default"))).allowed
        assert not (await may(admin, jane, Action("list", "pods", namespace="kube-system"))).allowed
        assert not (await may(admin, jane, Action("list", "pods"))).allowed
