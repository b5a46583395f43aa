"""Keys about metrics, and about what is known of the past."""

from typing import Annotated

from msgspec import Meta

from aliquot.config.keys import Key, Section

_Series = Annotated[int, Meta(ge=0, le=100_000)]


class MetricsSection(Section, frozen=True):
    """Metrics"""

    nodes: Annotated[
        _Series, Key("Nodes with series of their own in /metrics, those with most cards allocated.", live=True)
    ] = 5000
    cards: Annotated[
        _Series,
        Key("Cards with series of their own in the server's /metrics, the fullest ones; 0 for none.", live=True),
    ] = 1000
    pods: Annotated[
        _Series, Key("Pods with series of their own in the server's /metrics, the largest ones; 0 for none.", live=True)
    ] = 1000


class HistorySection(Section, frozen=True):
    """Metrics"""

    prometheus: Annotated[
        str,
        Meta(pattern=r"^(https?://[^\s?#]+)?$", description="a URL of http or https"),
        Key(
            "Address of a Prometheus that scrapes the agents, for load of more than the last hour.",
            metavar="URL",
            default="no Prometheus",
        ),
    ] = ""
