"""Discovery's background work: expiry, metrics and readiness."""

import datetime as dt
import logging
import threading

import pytest
from prometheus_client import CollectorRegistry

from rescheduler.liqo.discovery.app import AGENT, SECRET, ClusterStore, DatedDescription
from rescheduler.liqo.discovery.messages import Description
from rescheduler.liqo.discovery.run import STEP_SECONDS, DiscoveryLoop, DiscoveryMetrics, Secrets
from tests.providers.clocks import StepClock


class ThreeRounds(StepClock):
    """Stops the rounds after the third one."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds: DiscoveryLoop
        self.waits: list[float] = []

    def wait(self, seconds: float, until: threading.Event) -> bool:
        self.waits.append(seconds)
        if len(self.waits) == 3:
            self.rounds.stop_on("SIGTERM")
        return super().wait(seconds, until)


def test_rounds_expire_entries_set_metrics_and_stop(caplog: pytest.LogCaptureFixture) -> None:
    clock, store, registry = ThreeRounds(), ClusterStore(":memory:"), CollectorRegistry()
    secrets = Secrets(store, clock, "demo")
    secrets.unreadable = {"broken": "info: expected JSON"}
    clock.rounds = DiscoveryLoop(store, secrets, DiscoveryMetrics(registry), clock)
    soon = clock.now() + dt.timedelta(seconds=STEP_SECONDS)
    store.change(SECRET, {"milan": DatedDescription(Description(price=1.0))}, (), clock.now())
    store.change(
        AGENT,
        {"turin": DatedDescription(Description(price=1.0), soon), "milan": DatedDescription(Description(), soon)},
        (),
        clock.now(),
    )
    with caplog.at_level(logging.WARNING, logger="rescheduler"):
        clock.rounds.run()
    assert clock.waits == [STEP_SECONDS] * 3
    assert [cluster.name for cluster in store.clusters(clock.now())] == ["milan"]
    values = {
        name: registry.get_sample_value(f"spot_rescheduler_liqo_{name}")
        for name in ("clusters", "unreadable_secrets", "expired_total")
    }
    assert values == {"clusters": 1, "unreadable_secrets": 1, "expired_total": 2}
    silent = "its agent did not renew its update in time; the update is deleted"
    assert [record.getMessage() for record in caplog.records] == [
        f"cluster milan: {silent}",
        f"cluster turin: {silent}",
        "SIGTERM: stopping after the calls in progress",
    ]
    store.close()


def test_discovery_is_ready_once_secrets_were_read_or_without_secrets() -> None:
    clock, store = StepClock(), ClusterStore(":memory:")
    secrets = Secrets(store, clock, "demo")
    rounds = DiscoveryLoop(store, secrets, DiscoveryMetrics(CollectorRegistry()), clock)
    assert rounds.health.unready
    secrets.read = True
    assert not rounds.health.unready
    assert not DiscoveryLoop(store, None, DiscoveryMetrics(CollectorRegistry()), clock).health.unready
    store.close()


def test_database_failures_are_logged_and_retried(caplog: pytest.LogCaptureFixture) -> None:
    clock, store = ThreeRounds(), ClusterStore(":memory:")
    clock.rounds = DiscoveryLoop(store, None, DiscoveryMetrics(CollectorRegistry()), clock)
    store.close()
    with caplog.at_level(logging.WARNING, logger="rescheduler"):
        clock.rounds.run()
    assert caplog.text.count("--database :memory:: Cannot operate on a closed database.") == 3
