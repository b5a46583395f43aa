"""Bodies that kubectl sends as protobuf only."""

import pytest

from tests.integration.embedded.client import CONFIG_MAPS, Api

pytestmark = pytest.mark.embedded_only("a real server answers protobuf")

MEDIA = "application/vnd.kubernetes.protobuf"
SECRETS = CONFIG_MAPS.replace("configmaps", "secrets")


def field(number: int, value: bytes | str) -> bytes:
    encoded = value.encode() if isinstance(value, str) else value
    assert len(encoded) < 128
    return bytes([number << 3 | 2, len(encoded)]) + encoded


def entry(number: int, key: str, value: bytes | str) -> bytes:
    return field(number, field(1, key) + field(2, value))


def envelope(version: str, kind: str, message: bytes) -> bytes:
    return b"k8s\x00" + field(1, field(1, version) + field(2, kind)) + field(2, message)


METADATA = field(1, field(1, "thing") + field(3, "") + entry(11, "app", "x") + entry(12, "note", ""))


async def test_a_namespace(api: Api) -> None:
    created = await api.raw("POST", "/api/v1/namespaces", envelope("v1", "Namespace", METADATA), MEDIA)
    metadata = created.expect(201)["metadata"]
    assert (metadata["name"], metadata["annotations"]) == ("thing", {"note": ""})
    assert metadata["labels"] == {"app": "x", "kubernetes.io/metadata.name": "thing"}


async def test_a_config_map(api: Api) -> None:
    message = METADATA + entry(2, "a", "1") + entry(2, "b", "2") + entry(3, "c", b"\xff") + bytes([4 << 3, 1])
    created = (await api.raw("POST", CONFIG_MAPS, envelope("v1", "ConfigMap", message), MEDIA)).expect(201)
    assert created["data"] == {"a": "1", "b": "2"}
    assert created["binaryData"] == {"c": "/w=="}
    assert created["immutable"] is True


async def test_a_secret(api: Api) -> None:
    message = METADATA + entry(2, "a", b"\x00") + field(3, "Opaque") + entry(4, "b", "c")
    created = (await api.raw("POST", SECRETS, envelope("v1", "Secret", message), MEDIA)).expect(201)
    assert created["data"] == {"a": "AA==", "b": "Yw=="}


async def test_an_access_review(api: Api) -> None:
    attributes = field(1, "default") + field(2, "create") + field(5, "pods")
    message = field(2, field(1, attributes))
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    body = envelope("authorization.k8s.io/v1", "SelfSubjectAccessReview", message)
    answer = (await api.raw("POST", path, body, MEDIA)).expect(201)
    assert answer["spec"] == {"resourceAttributes": {"namespace": "default", "verb": "create", "resource": "pods"}}
    assert answer["status"]["allowed"] is True


async def test_other_kinds_are_refused(api: Api) -> None:
    body = envelope("v1", "PodTemplate", METADATA)
    path = CONFIG_MAPS.replace("configmaps", "pods")
    (await api.raw("POST", path, body, MEDIA)).refused(415, "UnsupportedMediaType")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"k8s\x00\x0a",
        b"k8s\x00\x0a\xff",
        b"k8s\x00" + b"\xff" * 12,
        b"k8s\x00\x0b",
        envelope("v1", "ConfigMap", field(1, field(1, b"\xff"))),
        envelope("v1", "ConfigMap", bytes([1 << 3, 1])),
        envelope("v1", "ConfigMap", METADATA)[:-3],
    ],
)
async def test_broken_bodies(api: Api, body: bytes) -> None:
    (await api.raw("POST", CONFIG_MAPS, body, MEDIA)).refused(400, "BadRequest")
