"""The text of metrics when the text of unchanged metric objects is reused."""

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.exposition import choose_encoder

from rescheduler.observe.metric_families import NodeCounts
from rescheduler.observe.prepared_pages import Exposition

FORMATS = pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text; version=1.0.0"])


class Exported:
    def __init__(self) -> None:
        self.registry, self.nodes = CollectorRegistry(), NodeCounts("test_")
        self.registry.register(self.nodes)
        self.gauge = Gauge("value", "A value.", registry=self.registry)
        self.exposition = Exposition(self.registry)

    def expected(self, accept: str) -> list[bytes]:
        """Return the lines that the library renders. The order of metrics is not significant."""
        return sorted(choose_encoder(accept)[0](self.registry).splitlines())


@FORMATS
def test_each_text_has_the_same_lines_as_that_of_the_library(accept: str) -> None:
    exported = Exported()
    for pods in ({}, {"worker": {"a": 1}}, {"worker": {"a": 1, "b": 2}}, {}):
        exported.nodes.pods = pods
        for value in (0, 1, 2):
            exported.gauge.set(value)
            text = exported.exposition.render(accept)
            assert sorted(text.splitlines()) == exported.expected(accept)
            assert text.endswith(b"# EOF\n") is ("openmetrics" in accept)


def test_metrics_of_nodes_are_the_same_objects_until_the_pods_change() -> None:
    exported = Exported()
    first = exported.nodes.collect()
    assert exported.nodes.collect() is first
    exported.nodes.pods = {"worker": {"a": 1}}
    assert exported.nodes.collect() is not first


def test_both_formats_are_rendered_in_turn() -> None:
    exported = Exported()
    exported.nodes.pods = {"worker": {"a": 1}}
    for accept in ("text/plain", "application/openmetrics-text; version=1.0.0") * 3:
        assert sorted(exported.exposition.render(accept).splitlines()) == exported.expected(accept)
