"""The benchmark of usage measures what it says: every process is attributed, and both scrapes have the same series."""

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from bench import usage
from bench.handing_over.sleepers import sleeping

SIZE = usage.Size(cards=2, pods=3, processes=6)
MEMORY = "aliquot_container_memory_used_bytes"


def test_every_process_is_attributed_to_its_pod(tmp_path: Path) -> None:
    with sleeping(SIZE.processes) as pids:
        node = usage.Node(tmp_path, SIZE, pids)
        for collect in (node.collect, node.collect_anew):
            collect()
            used = _values(node.scrape())
            assert sum(used) == SIZE.processes * 2**20
        assert _values(node.library_scrape()().decode()) == used
        node.read("stat", "cgroup")


def _values(text: str) -> list[float]:
    families = [family for family in text_string_to_metric_families(text) if family.name == MEMORY]
    return [sample.value for family in families for sample in family.samples]
