"""Series of the real exporter: replicas receive events, and their /metrics is scraped over HTTP at simulated times."""

import contextlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import httpx2
from prometheus_client import CollectorRegistry

from rescheduler.clock import SystemClock
from rescheduler.cloudpool.proxy.paths import ProxyMetrics
from rescheduler.net.server import serving
from rescheduler.observe.events import Event, Report, tee
from rescheduler.observe.metrics import Metrics
from rescheduler.observe.pages import Health, application
from rescheduler.settings import ListenAddress

#: The events of one replica in a minute; None if it is not running and cannot be scraped.
Script: TypeAlias = Callable[[int], Iterable[Event] | None]

#: Minutes between two scrapes.
EVERY: Final = 2

BACKEND: Final = "cloudpool"
_SAMPLE: Final = re.compile(r"(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")


@dataclass
class Recording:
    """Samples by series, in the text format of Prometheus, and minute since 1970."""

    metrics: frozenset[str]  #: names of the metrics to record
    series: dict[str, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, page: str, minute: int, target: Mapping[str, str]) -> None:
        labels = ",".join(f'{name}="{value}"' for name, value in target.items())
        for sample in filter(None, map(_SAMPLE.fullmatch, page.splitlines())):
            if sample["name"] in self.metrics:
                own = f"{sample['labels']}," if sample["labels"] else ""
                self.series[f"{sample['name']}{{{own}{labels}}}"][minute] = sample["value"]

    def input_series(self, minutes: int) -> list[dict[str, str]]:
        """Return the series for ``promtool test rules``, one value per scrape. A series that ends becomes stale."""
        return [
            {"series": name, "values": " ".join(self._values(samples, minutes))}
            for name, samples in self.series.items()
        ]

    def of_cluster(self, cluster: str) -> "Recording":
        """Return the series of one cluster."""
        own = {name: samples for name, samples in self.series.items() if f'cluster="{cluster}"' in name}
        return Recording(self.metrics, own)

    def openmetrics(self) -> str:
        """Return the samples for ``promtool tsdb create-blocks-from openmetrics``."""
        lines = [
            f"{name} {value} {minute * 60}"
            for name, samples in self.series.items()
            for minute, value in samples.items()
        ]
        return "\n".join([*lines, "# EOF\n"])

    @staticmethod
    def _values(samples: Mapping[int, str], minutes: int) -> Iterable[str]:
        for minute in range(0, minutes, EVERY):
            ended = minute - EVERY in samples and minute not in samples
            yield samples.get(minute, "stale" if ended else "_")


def record(
    clusters: Mapping[str, Mapping[str, Script]], metrics: frozenset[str], minutes: int, *, proxy: str = "proxy"
) -> Recording:
    """Scrape the replicas of *clusters*: scripts by cluster and replica. The replica named *proxy* is a proxy."""
    recording = Recording(metrics)
    for cluster, replicas in clusters.items():
        for pod, script in replicas.items():
            target = {"cluster": cluster, "namespace": "spot-rescheduler", "job": "spot-rescheduler", "pod": pod}
            target["instance"] = f"{pod}:9235"
            if pod == proxy:
                target["job"] = "cloudpool-proxy"
            _record_replica(recording, script, minutes, target, is_proxy=pod == proxy)
    return recording


def _record_replica(
    recording: Recording, script: Script, minutes: int, target: Mapping[str, str], *, is_proxy: bool
) -> None:
    registry = CollectorRegistry()
    listeners: list[Report] = [Metrics(registry, BACKEND)]
    if is_proxy:
        listeners.append(ProxyMetrics(registry))
    report = tee(*listeners)
    health = Health(SystemClock(), 10, lambda: True)
    with contextlib.ExitStack() as parts:
        address = parts.enter_context(serving(application(registry, health), ListenAddress("127.0.0.1", 0)))
        client = parts.enter_context(httpx2.Client(base_url=f"http://{address}", trust_env=False, timeout=60))
        for minute in range(minutes):
            if (events := script(minute)) is None:
                continue
            for event in events:
                report(event)
            if minute % EVERY == 0:
                recording.add(client.get("/metrics").raise_for_status().text, minute, target)
