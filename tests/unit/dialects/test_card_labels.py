"""Labels that say which cards a node has."""

import pytest

from aliquot.dialects import standard_dialects
from aliquot.dialects.card_labels import label_value, short_model
from aliquot.model import NodeGpus, is_model
from tests.factories import make_gpu


@pytest.mark.parametrize(
    ("model", "short"),
    [
        ("Tesla T4", "T4"),
        ("Tesla M40 24GB", "M40"),
        ("Tesla P100-PCIE-16GB", "P100"),
        ("NVIDIA A100-SXM4-40GB", "A100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA GeForce RTX 3090", "RTX 3090"),
        ("GeForce RTX 2080 Ti", "GeForce RTX 2080 Ti"),
        ("NVIDIA", "NVIDIA"),
        ("unknown", "unknown"),
    ],
)
def test_the_short_name_of_a_model_means_that_model(model: str, short: str) -> None:
    assert short_model(model) == short
    assert is_model(short, model)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NVIDIA GeForce RTX 3090", "NVIDIA-GeForce-RTX-3090"),
        ("(odd) name!", "odd-name"),
        ("a" * 70, "a" * 63),
        ("a" * 62 + " b", "a" * 62),
    ],
)
def test_a_text_as_the_value_of_a_label(text: str, value: str) -> None:
    assert label_value(text) == value


def labels(*models: str) -> dict[str, str]:
    gpus = [make_gpu(index, model=model) for index, model in enumerate(models)]
    gpus.append(make_gpu(len(models), parent=gpus[0].uuid, profile="1g.5gb", model="odd", mib=5))
    cards = NodeGpus("n1", tuple(gpus), 1024)
    return {key: value for each in standard_dialects().values() for key, value in each.card_labels(cards).items()}


def test_a_node_of_one_model_names_it_as_quotas_and_feature_discovery_do() -> None:
    assert labels("Tesla T4", "Tesla T4") == {
        "gaia.tencent.com/gpu-model": "T4",
        "nvidia.com/gpu.count": "2",
        "nvidia.com/gpu.product": "Tesla-T4",
        "nvidia.com/gpu.memory": "15360",
    }


def test_a_node_of_two_models_only_counts_its_cards() -> None:
    assert labels("Tesla T4", "NVIDIA A10") == {"nvidia.com/gpu.count": "2"}


def test_every_label_is_declared() -> None:
    declared = {key for dialect in standard_dialects().values() for key in dialect.card_label_keys}
    assert declared == labels("Tesla T4").keys()
