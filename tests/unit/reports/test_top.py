"""The order of `top`."""

from aliquot.reports.pods import PodCard, PodReport, PodsReport
from aliquot.reports.report import Use
from aliquot.reports.top import top_of_pods


def pod(name: str, cards: int, cores: float | None) -> PodReport:
    held = tuple(PodCard(index=i, uuid=str(i), model="m", cores=100, memory_mib=1) for i in range(cards))
    return PodReport(
        namespace="default",
        name=name,
        uid=name,
        state="Running",
        node="n",
        dialect="",
        asks="",
        cards=held,
        use=Use(cores=cores),
    )


def test_the_busiest_by_the_share_that_is_shown_come_first() -> None:
    pods = [pod("unknown", 1, None), pod("idle", 1, 0.0), pod("wide", 4, 1.2), pod("busy", 1, 0.9)]
    assert [row.name[1] for row in top_of_pods(PodsReport(pods=pods)).rows] == ["busy", "wide", "idle", "unknown"]
