"""The demo's stream of jobs."""

from itertools import islice

import msgspec

from aliquot.app.demo.samples import Sample
from aliquot.app.demo.workload import LABEL, jobs, menu
from aliquot.dialects import demand_of, standard_dialects
from aliquot.embedded.nodes.scripts import script_of
from aliquot.errors import BadDemand
from aliquot.model import Pod

DIALECTS = standard_dialects()
SAMPLES = [Sample(dialect) for dialect in DIALECTS.values()]


def is_taken(pod: Pod) -> bool:
    try:
        return demand_of(pod, DIALECTS) is not None
    except BadDemand:
        return False


CHOICES = menu(SAMPLES, is_taken)


def the_first(count: int, seed: int = 1) -> list[Pod]:
    return [msgspec.convert(manifest, Pod) for manifest in islice(jobs(CHOICES, seed), count)]


def test_every_dialect_comes_and_every_job_is_one_that_its_dialect_takes() -> None:
    demands = [demand_of(pod, DIALECTS) for pod in the_first(300)]
    assert {demand.dialect.name for demand in demands if demand} == set(DIALECTS)
    assert all(demands)


def test_jobs_are_of_several_sizes() -> None:
    sizes = [pod.spec.containers[0].limits["aliyun.com/gpu-mem"] for pod in the_first(300) if "gpushare" in spoken(pod)]
    assert set(sizes) == {"3", "6", "9", "12"}


def spoken(pod: Pod) -> str:
    dialect = DIALECTS.of(pod)
    return dialect.name if dialect else ""


def test_every_job_ends_and_some_fail() -> None:
    scripts = [script_of(pod) for pod in the_first(300)]
    assert all(script.seconds and script.uses for script in scripts)
    assert 0 < sum(bool(script.exit_code) for script in scripts) < 60


def test_jobs_have_names_of_their_own_and_carry_the_label_of_the_stream() -> None:
    pods = the_first(300)
    assert len({pod.key for pod in pods}) == 300
    assert all(pod.metadata.labels == {LABEL: "true"} for pod in pods)


def test_the_same_seed_gives_the_same_jobs() -> None:
    assert the_first(50) == the_first(50) != the_first(50, seed=2)


def test_a_sample_that_fits_nowhere_is_not_on_the_menu() -> None:
    assert menu(SAMPLES, lambda pod: "gpushare" not in spoken(pod)) == menu(
        [sample for sample in SAMPLES if sample.dialect.name != "gpushare"], lambda _: True
    )
