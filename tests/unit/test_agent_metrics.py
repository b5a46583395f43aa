"""The agent's metrics as Prometheus reads them."""

from prometheus_client.parser import text_string_to_metric_families

from aliquot.agent.card_health import CardState
from aliquot.agent.devices import CardError, Usage
from aliquot.agent.metrics import METRICS, AgentMetrics
from tests.factories import make_gpu


def test_prometheus_can_parse_the_text() -> None:
    metrics = AgentMetrics()
    odd = 'a "card" \\ of\nours'
    busy = Usage(cores=0.73, memory_bytes=85899345920, celsius=61, watts=250.125)
    metrics.cards = [
        CardState(make_gpu(0, model=odd), fault="lost"),
        CardState(make_gpu(1), cordon="XID 74", usage=busy),
    ]
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
    assert samples["aliquot_card_cores_busy_ratio"] == [(second, 0.73)]
    assert samples["aliquot_card_memory_used_bytes"] == [(second, 85899345920)]
    assert samples["aliquot_card_temperature_celsius"] == [(second, 61)]
    assert samples["aliquot_card_power_watts"] == [(second, 250.125)]
    errors = {"79": 2, "other": 3}
    assert samples["aliquot_xid_errors"] == [({"uuid": "GPU-n1-0", "xid": xid}, n) for xid, n in errors.items()]
