"""The agent's metrics as Prometheus reads them."""

from prometheus_client.parser import text_string_to_metric_families

from aliquot.agent.card_health import CardState
from aliquot.agent.devices import CardError
from aliquot.agent.metrics import METRICS, AgentMetrics
from tests.factories import make_gpu


def test_prometheus_can_parse_the_text() -> None:
    metrics = AgentMetrics()
    odd = 'a "card" \\ of\nours'
    metrics.cards = [CardState(make_gpu(0, model=odd), fault="lost"), CardState(make_gpu(1), cordon="XID 74")]
    for code in (79, 79, 0, 1000, 2**40):
        metrics.count_xid(CardError("GPU-n1-0", code))
    families = {family.name: family for family in text_string_to_metric_families(metrics.text())}
    assert {(family.name, family.type, family.documentation) for family in families.values()} == {
        (metric.name.removesuffix("_total"), metric.kind, metric.help) for metric in METRICS
    }
    samples = {name: [(s.labels, s.value) for s in family.samples] for name, family in families.items()}
    first, second = (
        {"uuid": "GPU-n1-0", "index": "0", "model": odd},
        {"uuid": "GPU-n1-1", "index": "1", "model": "Tesla T4"},
    )
    assert samples["aliquot_card_healthy"] == [(first, 0), (second, 1)]
    assert samples["aliquot_card_cordoned"] == [(first, 0), (second, 1)]
    errors = {"79": 2, "other": 3}
    assert samples["aliquot_xid_errors"] == [({"uuid": "GPU-n1-0", "xid": xid}, n) for xid, n in errors.items()]
