"""Render metrics in the formats of Prometheus. The text of a metric object that was rendered before is reused.

A collector can have a series for each node, and nodes rarely change between two scrapes.
"""

import threading
from collections.abc import Iterable, Sequence
from typing import Final, cast

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder

#: The last line of OpenMetrics.
_END: Final = b"# EOF\n"


def content_type_of(accept: str) -> str:
    """Return the content type of the response to a request with this Accept header."""
    return choose_encoder(accept)[1]


class Exposition:
    """Renders the metrics of a registry. Thread-safe."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._lock = threading.Lock()
        self._last: Sequence[Metric] = ()
        self._texts: dict[tuple[int, str], bytes] = {}  # of metrics in _last that were collected twice

    def render(self, accept: str) -> bytes:
        """Return the current metrics in the format that the Accept header *accept* requests."""
        metrics = list(self._registry.collect())
        with self._lock:
            known = {id(metric) for metric in self._last}
            reused = [metric for metric in metrics if id(metric) in known]
            ids = {id(metric) for metric in reused}
            self._texts = {key: text for key, text in self._texts.items() if key[0] in ids}
            self._last = metrics  # keeps them alive, so that no other metric gets the same id
            texts = [_encoded([metric for metric in metrics if id(metric) not in known], accept)]
            texts += [self._text(metric, accept) for metric in reused]
        end = _END if any(text.endswith(_END) for text in texts) else b""
        return b"".join(text.removesuffix(_END) for text in texts) + end

    def _text(self, metric: Metric, accept: str) -> bytes:
        key = id(metric), content_type_of(accept)
        if (text := self._texts.get(key)) is None:
            text = self._texts[key] = _encoded([metric], accept)
        return text


class _CollectedMetrics:
    """Metrics to encode, with the interface of a registry."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _encoded(metrics: Sequence[Metric], accept: str) -> bytes:
    text: bytes = choose_encoder(accept)[0](cast("CollectorRegistry", _CollectedMetrics(metrics)))
    return text
