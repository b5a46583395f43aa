"""A real Prometheus scrapes server and agent: it reads what the fakes were told, and every panel of the dashboards has
data."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.integration.monitoring.cluster import BROKEN, BUSY, SPENT_JOULES, UNIT, shown_cluster
from tests.integration.monitoring.prometheus import Prometheus, lint, scraping
from tests.integration.room import Room

DASHBOARDS = sorted((Path(__file__).parents[3] / "deploy" / "monitoring" / "dashboards").glob("*.json"))
MIB = 2**20
ON_N2 = 'namespace="default",node="n2"'
LEFT, RIGHT = (f'namespace="kube-system",pod="user",container="{name}",uuid="{BUSY}"' for name in ("left", "right"))

pytestmark = pytest.mark.embedded_only("time is moved by hand")


@pytest.fixture
async def prometheus(programs: dict[str, Path], room: Room, folder: Path, tmp_path: Path) -> AsyncIterator[Prometheus]:
    async with shown_cluster(room, folder) as targets, scraping(programs, tmp_path, targets) as running:
        yield running


TOLD = {
    f'aliquot_card_cores_busy_ratio{{uuid="{BUSY}"}}': 0.42,
    f'aliquot_card_temperature_celsius{{uuid="{BUSY}"}}': 61,
    f'aliquot_card_power_watts{{uuid="{BUSY}"}}': 70.5,
    f'aliquot_card_memory_used_bytes{{uuid="{BUSY}"}}': 1000 * MIB,
    f'aliquot_card_energy_joules_total{{uuid="{BUSY}"}}': 5100,
    f'aliquot_card_core_clock_hertz{{uuid="{BUSY}"}}': 1_410_000_000,
    f'aliquot_card_memory_clock_hertz{{uuid="{BUSY}"}}': 1_215_000_000,
    f'aliquot_card_ecc_errors_total{{uuid="{BUSY}",kind="corrected"}}': 3,
    f'aliquot_card_ecc_errors_total{{uuid="{BUSY}",kind="uncorrected"}}': 1,
    f'aliquot_card_nvlinks{{uuid="{BUSY}"}}': 2,
    f'aliquot_card_nvlink_sent_bytes_total{{uuid="{BUSY}"}}': 2000 * 1024,
    f'aliquot_card_nvlink_received_bytes_total{{uuid="{BUSY}"}}': 1000 * 1024,
    f'aliquot_card_nvlink_errors_total{{uuid="{BUSY}"}}': 4,
    f'aliquot_card_nvlinks{{uuid="{BROKEN}"}}': None,
    f"aliquot_container_memory_used_bytes{{{LEFT}}}": 600 * MIB,
    f"aliquot_container_memory_used_bytes{{{RIGHT}}}": 200 * MIB,
    f'aliquot_container_cores_busy_ratio{{{LEFT},method="measured"}}': 0.3,
    f'aliquot_container_cores_busy_ratio{{{RIGHT},method="measured"}}': 0.1,
    f"aliquot_container_energy_joules_total{{{LEFT}}}": 0.3 * SPENT_JOULES,
    f"aliquot_container_energy_joules_total{{{RIGHT}}}": 0.1 * SPENT_JOULES,
    "aliquot_process_owners_known": 1,
    f'aliquot_card_healthy{{uuid="{BROKEN}"}}': 0,
    f'aliquot_xid_errors_total{{uuid="{BROKEN}",xid="79"}}': 1,
    f'aliquot_pod_allocated_cards{{{ON_N2},pod="trains"}}': 0.2,
    f'aliquot_pod_allocated_memory_bytes{{{ON_N2},pod="idles"}}': 6 * UNIT,
    f'aliquot_pod_used_cards{{{ON_N2},pod="trains"}}': 0.5,
    f'aliquot_pod_used_cards{{{ON_N2},pod="idles"}}': 0,
    f'aliquot_pod_used_memory_bytes{{{ON_N2},pod="trains"}}': UNIT,
    'aliquot_node_allocated_cards{node="n2"}': 0.6,
    'aliquot_node_allocated_memory_bytes{node="n2"}': 9 * UNIT,
    'aliquot_namespace_allocated_cards{namespace="default"}': 0.6,
    'aliquot_namespace_used_cards{namespace="default"}': 0.5,
    'aliquot_quota_limit{namespace="default",measure="cards"}': 2,
    'aliquot_quota_used{namespace="default",measure="cards"}': 0.6,
    'aliquot_waiting_pods{reason="QuotaUsedUp"}': 1,
    'sum(aliquot_commits_total{outcome="bound"}) > bool 1': 1,
    "sum(up)": 2,
}


async def test_prometheus_reads_what_the_fakes_were_told(prometheus: Prometheus) -> None:
    found = {expression: await prometheus.value(expression) for expression in TOLD}
    assert found == {expression: value if value is None else pytest.approx(value) for expression, value in TOLD.items()}


async def test_every_panel_of_every_dashboard_has_data(prometheus: Prometheus) -> None:
    asked = [(path.stem, panel["title"], target["expr"]) for path in DASHBOARDS for panel, target in _targets(path)]
    assert len(asked) > 40
    empty = [
        (board, title, expression)
        for board, title, expression in asked
        if not await prometheus.query(expression.replace("$namespace", ".*"))
    ]
    assert empty == []


async def test_promtool_finds_nothing_wrong_with_the_text(
    programs: dict[str, Path], room: Room, folder: Path, tmp_path: Path
) -> None:
    """Names, units and help, of everything that we name ourselves."""
    async with shown_cluster(room, folder) as targets, aiohttp.ClientSession() as session:
        for job, where in targets.items():
            async with session.get(f"http://{where}/metrics") as answer:
                (tmp_path / job).write_text(await answer.text())
    for job in targets:
        assert lint(programs, tmp_path / job) == []


def _targets(path: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    panels = json.loads(path.read_text())["panels"]
    return [(panel, target) for panel in panels for target in panel.get("targets", ())]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_do_not_overlap_and_have_their_own_numbers(path: Path) -> None:
    board = json.loads(path.read_text())
    places = [panel["gridPos"] for panel in board["panels"]]
    cells = [
        (x, y) for at in places for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
