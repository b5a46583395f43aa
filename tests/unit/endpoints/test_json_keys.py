"""JSON keys match in any case, as in Go."""

import msgspec
import pytest

from aliquot.endpoints.json_keys import decode_any_case
from aliquot.model import Pod

USUAL = (
    b'{"metadata":{"name":"p","labels":{"App":"x"}},'
    b'"spec":{"initContainers":[{"name":"i","resources":{"limits":{"aliyun.com/gpu-mem":"3"}}}],"nodeName":"n"}}'
)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(USUAL, id="usual spelling"),
        pytest.param(USUAL.replace(b"initContainers", b"initcontainers"), id="lower case"),
        pytest.param(USUAL.replace(b"metadata", b"Metadata").replace(b"spec", b"SPEC"), id="upper case"),
        pytest.param(USUAL.replace(b"limits", b"Limits").replace(b"nodeName", b"NodeName"), id="nested keys"),
    ],
)
def test_keys_in_any_case_decode_to_the_same_pod(text: bytes) -> None:
    pod = decode_any_case(text, Pod)
    assert pod == msgspec.json.decode(USUAL, type=Pod)
    assert pod.metadata.labels == {"App": "x"}


@pytest.mark.parametrize("text", [b"[]", b'"p"', b'{"spec":[]}', b'{"Spec":[]}', b'{"Spec":{"containers":3}}', b"{"])
def test_an_invalid_pod_is_refused_in_any_case(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_any_case(text, Pod)


def test_the_last_of_two_spellings_wins() -> None:
    assert decode_any_case(b'{"metadata":{"name":"a","Name":"b"}}', Pod).metadata.name == "b"
