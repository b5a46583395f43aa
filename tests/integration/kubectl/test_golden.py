"""What the commands print on a small cluster, byte by byte, in golden.txt and in the guide."""

from pathlib import Path

import pytest

from tests.integration.kubectl.cluster import cluster, facts
from tests.integration.kubectl.command import archived
from tests.integration.kubectl.golden import GOLDEN, GUIDE, blocks, shown

_CASES = dict(blocks(GOLDEN.read_text()))
_GUIDED = dict(blocks(GUIDE.read_text()))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    return archived(cluster(), Path(tmp_path_factory.mktemp("archive")), facts())


@pytest.mark.parametrize("arguments", _CASES)
def test_output(arguments: str, archive: str) -> None:
    assert shown(arguments, archive) == _CASES[arguments]


@pytest.mark.parametrize("arguments", _GUIDED)
def test_the_guide_shows_real_output(arguments: str, archive: str) -> None:
    assert shown(arguments, archive) == _GUIDED[arguments]


def test_an_archive_without_a_doctor_s_findings_leaves_much_unknown(tmp_path: Path) -> None:
    text = shown("doctor", archived(cluster(), tmp_path))
    assert "UNKNOWN server: the archive does not have the Lease aliquot-system/aliquot-server\n" in text
    assert "1 error, 1 warning, 4 unknown, 5 ok\n" in text
