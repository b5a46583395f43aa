"""What a dump leaves out."""

from typing import Any

import pytest

from aliquot.dialects import standard_dialects
from aliquot.dialects.gpushare import IDX
from aliquot.dialects.gpushare_records import ALLOCATION
from aliquot.reports.objects import ClusterObjects
from aliquot.reports.redaction import redacted, shown_data, without_secrets
from tests.factories import make_pod


@pytest.mark.parametrize(
    ("key", "is_kept"),
    [
        ("aliquot.io/placement", True),
        ("cordon.aliquot.io/0", True),
        (IDX, True),
        (ALLOCATION, True),
        ("tencent.com/gpu-assigned", True),
        ("hami.io/vgpu-node", True),
        ("UUID", True),
        ("UUID_OF_MY_LICENCE", False),
        ("kubectl.kubernetes.io/last-applied-configuration", False),
        ("vault.example.com/token", False),
        ("notaliquot.io/secret", False),
    ],
)
def test_only_annotations_that_somebody_of_ours_reads_are_kept(key: str, is_kept: bool) -> None:
    objects = ClusterObjects(0.0, pods=[make_pod(metadata={"annotations": {key: "x"}})])
    (pod,) = redacted(objects, standard_dialects()).pods
    assert (key in pod.metadata.annotations) == is_kept


def test_secrets_do_not_leave_the_cluster() -> None:
    extender = {"urlPrefix": "https://me:hunter2@host:1/x", "tlsConfig": {"keyData": "c2VjcmV0", "caData": "public"}}
    document = {"extenders": [extender], "pluginConfig": [{"args": {"apiToken": "hunter2", "weight": 3}}]}
    assert without_secrets(document) == {
        "extenders": [
            {"urlPrefix": "https://(removed)@host:1/x", "tlsConfig": {"keyData": "(removed)", "caData": "public"}}
        ],
        "pluginConfig": [{"args": {"apiToken": "(removed)", "weight": 3}}],
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://aliquot.example.com:12340", "https://aliquot.example.com:12340"),
        (
            "system:serviceaccount:a:b\nsystem:serviceaccount:a:c",
            "system:serviceaccount:a:b\nsystem:serviceaccount:a:c",
        ),
        ("port: 1\nbearerToken: x", {"port": 1, "bearerToken": "(removed)"}),
        ("PASSWORD=x", "(removed)"),
        ("https://user:x@example.com", "https://(removed)@example.com"),
        ("-----BEGIN PRIVATE KEY-----", "(removed)"),
        ("a: b: c", "(removed)"),
    ],
)
def test_a_dump_has_no_secrets_of_a_configuration(text: str, shown: Any) -> None:
    assert shown_data({"key": text}) == {"key": shown}
