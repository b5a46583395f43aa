"""How we find an API server: kubeconfigs and service accounts."""

import base64
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from aliquot.errors import BadConfig
from aliquot.kube import Access, find, from_kubeconfig
from aliquot.kube.access import in_cluster

AUTHORITY = trustme.CA()
CERTIFICATE = AUTHORITY.issue_cert("aliquot.example")
PEM = {
    "ca": AUTHORITY.cert_pem.bytes(),
    "certificate": CERTIFICATE.cert_chain_pems[0].bytes(),
    "key": CERTIFICATE.private_key_pem.bytes(),
}


def kubeconfig(tmp_path: Path, cluster: Any = None, user: Any = None, **fields: Any) -> Path:
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "https://api.example:6443/"} | (cluster or {})}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
        **fields,
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


def files(tmp_path: Path) -> None:
    for name, content in PEM.items():
        (tmp_path / f"{name}.pem").write_bytes(content)


def data(name: str) -> str:
    return base64.b64encode(PEM[name]).decode()


def assert_trusts_only_the_cluster(tls: ssl.SSLContext | None) -> None:
    """Its own authority and no other, with every check but the one that many clusters' authorities do not pass."""
    assert tls is not None
    assert len(tls.get_ca_certs()) == 1
    assert (tls.verify_mode, tls.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert not tls.verify_flags & ssl.VERIFY_X509_STRICT


def test_the_server_is_that_of_the_current_context(tmp_path: Path) -> None:
    assert from_kubeconfig(kubeconfig(tmp_path)).server == "https://api.example:6443"


def test_certificates_are_read_from_files_beside_the_kubeconfig(tmp_path: Path) -> None:
    files(tmp_path)
    user = {"client-certificate": "certificate.pem", "client-key": "key.pem"}
    tls = from_kubeconfig(kubeconfig(tmp_path, {"certificate-authority": "ca.pem"}, user)).tls
    assert_trusts_only_the_cluster(tls)


def test_certificates_are_read_from_data(tmp_path: Path) -> None:
    user = {"client-certificate-data": data("certificate"), "client-key-data": data("key")}
    tls = from_kubeconfig(kubeconfig(tmp_path, {"certificate-authority-data": data("ca")}, user)).tls
    assert_trusts_only_the_cluster(tls)


def test_without_an_authority_the_machine_s_are_trusted_and_everything_is_checked(tmp_path: Path) -> None:
    tls = from_kubeconfig(kubeconfig(tmp_path)).tls
    assert tls is not None
    assert (tls.verify_mode, tls.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert tls.cert_store_stats() == ssl.create_default_context().cert_store_stats()


def test_verification_is_off_only_where_the_kubeconfig_says_so(tmp_path: Path) -> None:
    tls = from_kubeconfig(kubeconfig(tmp_path, {"insecure-skip-tls-verify": True})).tls
    assert tls is not None
    assert (tls.verify_mode, tls.check_hostname) == (ssl.CERT_NONE, False)


def test_plain_http_needs_no_certificates(tmp_path: Path) -> None:
    assert from_kubeconfig(kubeconfig(tmp_path, {"server": "http://127.0.0.1:1"})) == Access("http://127.0.0.1:1")


def test_a_token_is_sent_and_a_token_file_is_read_again_each_time(tmp_path: Path) -> None:
    assert from_kubeconfig(kubeconfig(tmp_path, user={"token": "abc"})).headers() == {"Authorization": "Bearer abc"}
    access = from_kubeconfig(kubeconfig(tmp_path, user={"tokenFile": "token"}))
    for token in ("one", "two"):
        (tmp_path / "token").write_text(f"{token}\n")
        assert access.headers() == {"Authorization": f"Bearer {token}"}


def test_another_context_can_be_chosen(tmp_path: Path) -> None:
    clusters = [{"name": name, "cluster": {"server": f"http://{name}"}} for name in ("c", "d")]
    contexts = [{"name": name, "context": {"cluster": name, "user": "u"}} for name in ("c", "d")]
    path = kubeconfig(tmp_path, clusters=clusters, contexts=contexts, **{"current-context": "c"})
    assert from_kubeconfig(path).server == "http://c"
    assert from_kubeconfig(path, context="d").server == "http://d"
    assert find(str(path), "d").server == "http://d"
    with pytest.raises(BadConfig, match="contexts has no 'e'"):
        from_kubeconfig(path, context="e")


def test_of_several_kubeconfigs_the_first_that_names_a_thing_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And relative paths begin where the file lies that names them."""
    first, second = tmp_path / "one", tmp_path / "two"
    for folder in (first, second):
        folder.mkdir()
        (folder / "token").write_text(folder.name)
    one = kubeconfig(first, {"server": "http://one"}, {}, contexts=None, users=None, **{"current-context": ""})
    two = kubeconfig(second, {"server": "http://two"}, {"tokenFile": "token"})
    monkeypatch.setenv("KUBECONFIG", f"{one}:{tmp_path / 'not-there'}:{two}")
    access = find(None)
    assert access.server == "http://one"
    assert access.headers() == {"Authorization": "Bearer two"}


def test_a_server_may_have_another_name_in_its_certificate(tmp_path: Path) -> None:
    assert from_kubeconfig(kubeconfig(tmp_path, {"tls-server-name": "api"})).server_name == "api"


@pytest.mark.parametrize("name", [".api", "a\0b", "a" * 64, 5])
def test_a_name_that_no_certificate_has_is_refused(tmp_path: Path, name: object) -> None:
    config = kubeconfig(tmp_path, {"server": "https://one", "tls-server-name": name})
    with pytest.raises(BadConfig, match=r"tls-server-name .* is not the name of a server"):
        from_kubeconfig(config)


V1 = "client.authentication.k8s.io/v1"
BROKEN_PLUGINS: list[Any] = [
    pytest.param({"apiVersion": V1}, "exec needs a command", id="no command"),
    pytest.param({"apiVersion": f"{V1}alpha1", "command": "sh"}, "v1alpha1', not", id="an old version"),
    pytest.param({"command": "sh"}, "exec.apiVersion is None", id="no version"),
    pytest.param(
        {"apiVersion": V1, "command": "sh", "interactiveMode": "Always"}, "there is no terminal", id="a dialogue"
    ),
    pytest.param({"apiVersion": V1, "command": "sh", "env": [{"name": "A"}]}, "exec.env", id="half a variable"),
    pytest.param({"apiVersion": V1, "command": "./gone"}, "exec.command ./gone does not exist", id="no file"),
    pytest.param(
        {"apiVersion": V1, "command": "no-such-program", "installHint": "get it"},
        "no-such-program does not exist or is not executable: get it",
        id="no program, with a hint",
    ),
]


@pytest.mark.parametrize(("section", "text"), BROKEN_PLUGINS)
def test_an_exec_plug_in_that_cannot_be_used_is_refused_by_its_field(
    tmp_path: Path, section: dict[str, Any], text: str
) -> None:
    with pytest.raises(BadConfig, match=f"kubeconfig .*{text}"):
        from_kubeconfig(kubeconfig(tmp_path, user={"exec": section}))


BROKEN: list[Any] = [
    pytest.param({"current-context": "other"}, "contexts has no 'other'", id="a context that is not there"),
    pytest.param({"contexts": None}, "contexts has no 'x'", id="no contexts"),
    pytest.param({"clusters": []}, "clusters has no 'c'", id="no cluster"),
    pytest.param({"users": []}, "users has no 'u'", id="no user"),
    pytest.param({"clusters": [{"name": "c", "cluster": {}}]}, "server is missing", id="no server"),
    pytest.param({"contexts": ["x"]}, "it is not a kubeconfig", id="contexts of another form"),
    pytest.param({"cluster": {"server": "localhost:8080"}}, "must start with https:// or http://", id="no address"),
    pytest.param({"cluster": {"certificate-authority": "gone.pem"}}, "gone.pem", id="a file that is not there"),
    pytest.param({"cluster": {"certificate-authority-data": "!"}}, "a certificate cannot be used", id="no base64"),
    pytest.param({"cluster": {"certificate-authority-data": "eA=="}}, "a certificate cannot be used", id="no PEM"),
    pytest.param({"cluster": {"certificate-authority-data": ""}}, "the authority is empty", id="an empty authority"),
    pytest.param({"user": {"auth-provider": {"name": "gcp"}}}, "use exec, a token or a cert", id="auth-provider"),
    pytest.param({"user": {"as": "admin"}}, "as is not supported", id="impersonation"),
    pytest.param({"cluster": {"proxy-url": "http://p"}}, "proxy-url is not supported", id="proxy"),
    pytest.param({"user": {"client-key-data": data("key")}}, "must be set together", id="a key without a certificate"),
]


@pytest.mark.parametrize(("fields", "text"), BROKEN)
def test_a_kubeconfig_that_cannot_be_used_is_refused_by_its_missing_piece(
    tmp_path: Path, fields: dict[str, Any], text: str
) -> None:
    with pytest.raises(BadConfig, match=f"kubeconfig.*{text}"):
        from_kubeconfig(kubeconfig(tmp_path, **fields))


@pytest.mark.parametrize(
    "content",
    [b"", b"- a\n", b"text", b"{", b"\xff\xfe\x00"],
    ids=["empty", "a list", "text", "no YAML", "no text"],
)
def test_a_file_that_is_no_kubeconfig_is_refused_by_its_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(content)
    with pytest.raises(BadConfig, match=f"kubeconfig {path} cannot be used"):
        from_kubeconfig(path)


def test_a_file_that_is_not_there_is_said_in_plain_words(tmp_path: Path) -> None:
    with pytest.raises(BadConfig) as raised:
        from_kubeconfig(tmp_path / "gone")
    assert str(raised.value) == f"kubeconfig {tmp_path}/gone cannot be used: no such file"


# -- where to look


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Neither kubeconfig nor service account."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return monkeypatch


def test_a_kubeconfig_is_found_by_option_then_environment_then_home(tmp_path: Path, bare: pytest.MonkeyPatch) -> None:
    homely = tmp_path / "home" / ".kube" / "config"
    homely.parent.mkdir(parents=True)
    kubeconfig(tmp_path, {"server": "http://home"}).rename(homely)
    assert find(None).server == "http://home"
    bare.setenv("KUBECONFIG", str(kubeconfig(tmp_path, {"server": "http://environment"})))
    assert find(None).server == "http://environment"
    option = tmp_path / "option"
    kubeconfig(tmp_path, {"server": "http://option"}).rename(option)
    assert find(str(option)).server == "http://option"


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        pytest.param("https://other:1/", "https://other:1", id="https"),
        pytest.param("http://other:1", "http://other:1", id="http"),
        pytest.param("other:1", "http://other:1", id="without a scheme"),
    ],
)
def test_another_address_than_the_kubeconfig_s_is_reached_as_the_same_user(
    tmp_path: Path, bare: pytest.MonkeyPatch, server: str, expected: str
) -> None:
    alone = find(None, server=server)
    assert (alone.server, alone.headers()) == (expected, {})
    bare.setenv("KUBECONFIG", str(kubeconfig(tmp_path, user={"token": "secret"})))
    access = find(None, server=server)
    assert (access.server, access.headers()) == (expected, {"Authorization": "Bearer secret"})
    assert bool(access.tls) == bool(alone.tls) == expected.startswith("https:")


def test_who_wants_the_service_account_gets_no_other(tmp_path: Path, bare: pytest.MonkeyPatch) -> None:
    bare.setenv("KUBECONFIG", str(kubeconfig(tmp_path)))
    with pytest.raises(BadConfig, match="not running in a pod with a service account"):
        find(None, as_pod=True)


@pytest.mark.usefixtures("bare")
def test_without_any_way_the_ways_are_named() -> None:
    with pytest.raises(BadConfig, match="name a kubeconfig, set KUBECONFIG, or run in a pod"):
        find(None)


@pytest.mark.parametrize(
    ("host", "server"),
    [
        pytest.param("10.0.0.1", "https://10.0.0.1:6443", id="IPv4"),
        pytest.param("fd00::1", "https://[fd00::1]:6443", id="IPv6"),
    ],
)
def test_a_pod_uses_its_service_account_and_reads_the_token_again(
    tmp_path: Path, bare: pytest.MonkeyPatch, host: str, server: str
) -> None:
    bare.setenv("KUBERNETES_SERVICE_HOST", host)
    bare.setenv("KUBERNETES_SERVICE_PORT", "6443")
    (tmp_path / "ca.crt").write_bytes(PEM["ca"])
    (tmp_path / "token").write_text("first")
    access = in_cluster(tmp_path)
    assert access.server == server
    assert_trusts_only_the_cluster(access.tls)
    (tmp_path / "token").write_text("second")
    assert access.headers() == {"Authorization": "Bearer second"}


@pytest.mark.parametrize(
    ("present", "missing"), [("ca.crt", "token"), ("token", "ca.crt")], ids=["no token", "no authority"]
)
def test_an_account_that_is_not_mounted_is_told_so(
    tmp_path: Path, bare: pytest.MonkeyPatch, present: str, missing: str
) -> None:
    bare.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    (tmp_path / present).write_bytes(PEM["ca"])
    with pytest.raises(BadConfig, match=missing):
        in_cluster(tmp_path)


@pytest.mark.parametrize("content", [b"", b"text", b"\xff"], ids=["nothing", "no PEM", "no text"])
def test_an_authority_that_is_none_is_told_so_and_no_other_is_trusted_instead(
    tmp_path: Path, bare: pytest.MonkeyPatch, content: bytes
) -> None:
    bare.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    (tmp_path / "token").write_text("token")
    (tmp_path / "ca.crt").write_bytes(content)
    with pytest.raises(BadConfig, match=f"{tmp_path}/ca.crt cannot be used"):
        in_cluster(tmp_path)
