"""A real kube-scheduler that shows its certificate to a server that shows its own."""

import ssl
from pathlib import Path
from typing import Any

import trustme

from tests.e2e.test_schedulers import GPUSHARE
from tests.real.objects import asking, gpu_node
from tests.real.scheduler import Scheduling, pointed_at
from tests.real.serving import serving
from tests.rig.network import LOOPBACK

GPU_MEM = "aliyun.com/gpu-mem"


def write_pair(folder: Path, name: str, authority: trustme.CA, host: str, user: str | None = None) -> dict[str, str]:
    made = authority.issue_cert(host, common_name=user)
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    certificate.write_bytes(b"".join(one.bytes() for one in made.cert_chain_pems))
    made.private_key_pem.write_to_path(str(key))
    return {"certFile": str(certificate), "keyFile": str(key)}


def test_pods_are_scheduled_over_mutual_tls_before_and_after_new_certificates(
    scheduling: Scheduling, tmp_path: Path
) -> None:
    authority, trust = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(trust)
    ca = tmp_path / "ca.crt"
    authority.cert_pem.write_to_path(str(ca))
    own, client = (
        write_pair(tmp_path, "tls", authority, LOOPBACK),
        write_pair(tmp_path, "client", authority, "s", "system:kube-scheduler"),
    )
    another = write_pair(tmp_path, "another", authority, "s", "system:node:n1")
    scheduling.create(gpu_node("n1", "gpushare"))
    with serving(
        scheduling,
        trust=trust,
        tls_cert_file=own["certFile"],
        tls_key_file=own["keyFile"],
        tls_client_ca_file=ca,
    ) as aliquot:
        url = aliquot.url("gpushare")
        scheduling.schedule(_with_tls(url, {"caFile": str(ca), **client}))
        scheduling.create(asking("known", {GPU_MEM: 3}))
        scheduling.wait_bound("known")
        write_pair(tmp_path, "tls", authority, LOOPBACK)
        scheduling.create(asking("later", {GPU_MEM: 3}))
        scheduling.wait_bound("later")
        for name, shown, code in (("stranger", {}, 401), ("another", another, 403)):
            scheduling.schedule(_with_tls(url, {"caFile": str(ca), **shown}))
            scheduling.create(asking(name, {GPU_MEM: 3}))
            scheduling.wait_refused(name, f"code {code}")
            assert name not in scheduling.bound()


def _with_tls(url: str, tls: dict[str, str]) -> dict[str, Any]:
    (extender,) = GPUSHARE.config["extenders"]
    return pointed_at({**GPUSHARE.config, "extenders": [{**extender, "enableHTTPS": True, "tlsConfig": tls}]}, url)
