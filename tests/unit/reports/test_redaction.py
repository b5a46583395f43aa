"""What a dump leaves out."""

import pytest

from aliquot.dialects import standard_dialects
from aliquot.dialects.gpushare import IDX
from aliquot.dialects.gpushare_records import ALLOCATION
from aliquot.reports.objects import ClusterObjects
from aliquot.reports.redaction import redacted
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
