"""Callers with tokens of a real API server, and the rules for what verbs act on beside a real kube-scheduler."""

import json
import ssl
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import trustme
import yaml

from tests.e2e.test_tls import write_pair
from tests.kubectl_commands import tenant_of
from tests.real.objects import asking, gpu_node
from tests.real.scheduler import Scheduling
from tests.real.serving import serving
from tests.rig.network import LOOPBACK
from tests.rig.waiting import wait_for

pytestmark = [pytest.mark.e2e]

READER, NOBODY = ("aliquot-system", "aliquot-agent"), ("aliquot-system", "aliquot-server")


def token_of(cluster: Scheduling, namespace: str, name: str) -> str:
    """Of a service account, made by the API server."""
    config = yaml.safe_load(cluster.service_account_kubeconfig(namespace, name).read_text())
    token: str = config["users"][0]["user"]["token"]
    return token


def asked(url: str, trust: ssl.SSLContext, token: str = "", body: Any = None) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    data = None if body is None else json.dumps(body).encode()
    try:
        with urlopen(Request(url, data, headers), context=trust) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_callers_are_known_by_the_tokens_of_a_real_api_server(scheduling: Scheduling, tmp_path: Path) -> None:
    authority, trust = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(trust)
    own = write_pair(tmp_path, "tls", authority, LOOPBACK)
    scheduling.create(gpu_node("n1", "gpushare"), asking("target", {"aliyun.com/gpu-mem": 3}))
    meta = scheduling.pod("target")["metadata"]
    bind = {"PodName": "target", "PodNamespace": "default", "PodUID": meta["uid"], "Node": "n1"}
    users = f"system:serviceaccount:{':'.join(READER)}=reader"
    everybody: dict[str, Any] = {
        f"{endpoint}_callers": "known" for endpoint in ("admission", "gpushare", "elastic", "nvidia", "native")
    }
    flags: dict[str, Any] = {"tls_cert_file": own["certFile"], "tls_key_file": own["keyFile"], "caller": users}
    with serving(scheduling, trust=trust, **flags, **everybody) as aliquot:
        metrics, verb = f"{aliquot.url('native')}/metrics", f"{aliquot.url('gpushare')}/gpushare-scheduler/bind"
        reader, nobody = token_of(scheduling, *READER), token_of(scheduling, *NOBODY)
        assert [asked(metrics, trust, token)[0] for token in (reader, nobody, "made-up", "")] == [200, 403, 401, 401]
        assert [asked(verb, trust, token, bind)[0] for token in (reader, nobody, "")] == [403, 403, 401]
        read_by_own_rights(scheduling, f"{aliquot.url('native')}/v1", trust)
        status, ready = asked(f"{aliquot.url('native')}/readyz", trust)
        assert (status, "tokenreviews" in ready) == (200, False), "deploy/aliquot.yaml has the right"
    assert "target" not in scheduling.bound()


def read_by_own_rights(cluster: Scheduling, url: str, trust: ssl.SSLContext) -> None:
    """The agents' account may list all pods, the tenant those of one namespace."""
    cluster.ensure_namespace("limited")
    cluster.apply(tenant_of("limited"))
    cluster.create(asking("own", {"aliyun.com/gpu-mem": 16}, namespace="limited"))
    tenant, everything = token_of(cluster, "limited", "tenant"), token_of(cluster, *READER)
    paths = ("pods", "pods?namespace=limited", "pods?namespace=default", "nodes", "explain/default/target")
    assert [asked(f"{url}/{path}", trust, tenant)[0] for path in paths] == [403, 200, 403, 403, 403]
    assert [asked(f"{url}/{path}", trust, everything)[0] for path in paths] == [200] * 5
    assert [asked(f"{url}/pods", trust, token)[0] for token in ("made-up", "")] == [401, 401]

    def cause() -> str:
        status, answer = asked(f"{url}/explain/limited/own", trust, tenant)
        return str(json.loads(answer)["cause"]) if status == 200 else ""

    wait_for("the pod to be explained", lambda: cause() == "TooLarge", seconds=30)


def test_nobody_binds_past_the_filter_of_an_open_endpoint(scheduling: Scheduling) -> None:
    """No kube-scheduler runs: whoever reaches the port is all there is."""
    scheduling.create(gpu_node("n1", "gpushare"))
    scheduling.create(asking("gpu", {"aliyun.com/gpu-mem": 3}), asking("plain", {}))
    with serving(scheduling) as aliquot:
        for name in ("gpu", "plain"):
            uid = scheduling.pod(name)["metadata"]["uid"]
            call = {"PodName": name, "PodNamespace": "default", "PodUID": uid, "Node": "n1"}
            url = f"{aliquot.url('gpushare')}/gpushare-scheduler/bind"
            _, answer = asked(url, ssl.create_default_context(), body=call)
            assert json.loads(answer)["Error"]
            assert uid not in answer
    assert scheduling.bound() == {}
