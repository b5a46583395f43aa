"""What the commands print on a small cluster, byte by byte, in golden.txt and in the guide."""

from pathlib import Path

import pytest

from tests.integration.kubectl.cluster import cluster
from tests.integration.kubectl.command import archived
from tests.integration.kubectl.golden import GOLDEN, GUIDE, blocks, shown

_CASES = dict(blocks(GOLDEN.read_text()))
_GUIDED = dict(blocks(GUIDE.read_text()))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    return archived(cluster(), Path(tmp_path_factory.mktemp("archive")))


@pytest.mark.parametrize("arguments", _CASES)
def test_output(arguments: str, archive: str) -> None:
    assert shown(arguments, archive) == _CASES[arguments]


@pytest.mark.parametrize("arguments", _GUIDED)
def test_the_guide_shows_real_output(arguments: str, archive: str) -> None:
    assert shown(arguments, archive) == _GUIDED[arguments]
