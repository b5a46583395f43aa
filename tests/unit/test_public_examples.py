"""The examples that a person can pull and run: what they ask for is what their program finds in its container."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from aliquot.dialects import demand_of, standard_dialects
from aliquot.model import Placement, Pod, cut
from tests.factories import make_cards

EXAMPLES = Path(__file__).parents[2] / "examples"

TORCH = """\
from types import SimpleNamespace
limits = []
def limit(fraction, card):
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    limits.append(print(f"fraction {fraction:.4f} of {card}"))
cuda = SimpleNamespace(
    get_device_properties=lambda card: SimpleNamespace(total_memory=14910 * 2**20),
    set_per_process_memory_fraction=limit,
)
def ones(*_, device):
    assert device == "cuda" and limits, "the limit comes before the first tensor"
    return SimpleNamespace(sum=lambda: SimpleNamespace(item=lambda: 1024.0 * 1024.0))
"""
"""What the example uses of PyTorch. CUDA shows less memory of a T4 than NVML, which counts 15360 MiB."""


def example(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((EXAMPLES / name).read_text())
    return found


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_names_images_that_a_person_can_pull(path: Path) -> None:
    """None of our rig, and a version that stays."""
    found = re.findall(r"^\s*(?:- )?image: (\S+)$", path.read_text(), re.MULTILINE)
    assert found
    for image in found:
        assert "/local/" not in image
        assert image.partition(":")[2] not in ("", "latest")


@pytest.mark.parametrize("name", ["cuda.yaml", "pytorch.yaml"])
def test_an_example_asks_for_a_part_of_a_card(name: str) -> None:
    manifest = example(name)
    demand = demand_of(msgspec.convert(manifest, Pod), standard_dialects())
    assert demand is not None
    assert demand.dialect.name == "aliquot"


@pytest.mark.parametrize(
    ("wishes", "fraction", "mib"),
    [
        pytest.param(None, f"{4096 / 14910:.4f}", 4096, id="as it is shipped"),
        pytest.param({}, "1.0000", 15360, id="a whole card"),
    ],
)
def test_pytorch_is_limited_to_what_the_container_was_given(
    tmp_path: Path, wishes: dict[str, str] | None, fraction: str, mib: int
) -> None:
    manifest = example("pytorch.yaml")
    if wishes is not None:
        manifest["metadata"]["annotations"] = wishes
    pod = msgspec.convert(manifest, Pod)
    dialect = standard_dialects()["aliquot"]
    request, cards = dialect.demand(pod), make_cards()
    (asked,) = request.containers
    placement = Placement("n1", "aliquot", {asked.name: (cut(asked.part, cards.gpus[0], cards.unit_mib),)})
    environment = dialect.environment(pod, request, asked.name, placement, cards)
    (tmp_path / "torch.py").write_text(TORCH)
    ((_, *words),) = (container["command"] for container in manifest["spec"]["containers"])
    done = subprocess.run(
        [sys.executable, *words],
        env=os.environ | {"PYTHONPATH": str(tmp_path), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        f"fraction {fraction} of 0",
        f"card 0: {mib} MiB of 14910",
        "1048576.0",
    ]
