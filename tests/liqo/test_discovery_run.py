"""What discovery does by itself: it forgets what has expired, counts, and says when it is ready."""

import datetime as dt
import logging
import threading

import pytest
from prometheus_client import CollectorRegistry

from rescheduler.liqo.discovery.messages import Said
from rescheduler.liqo.discovery.metrics import Metrics
from rescheduler.liqo.discovery.run import STEP_SECONDS, Rounds
from rescheduler.liqo.discovery.secrets import Secrets
from rescheduler.liqo.discovery.store import AGENT, SECRET, Store, Word
from tests.backends.clocks import StepClock


class Told(StepClock):
    """Tells the rounds to end after the third one."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds: Rounds
        self.waits: list[float] = []

    def wait(self, seconds: float, until: threading.Event) -> bool:
        self.waits.append(seconds)
        if len(self.waits) == 3:
            self.rounds.told("SIGTERM")
        return super().wait(seconds, until)


def test_rounds_forget_count_and_end_when_told(caplog: pytest.LogCaptureFixture) -> None:
    clock, store, registry = Told(), Store(":memory:"), CollectorRegistry()
    secrets = Secrets(store, clock, "demo")
    secrets.unreadable = {"broken": "info: expected JSON"}
    clock.rounds = Rounds(store, secrets, Metrics(registry), clock)
    soon = clock.now() + dt.timedelta(seconds=STEP_SECONDS)
    store.change(SECRET, {"milan": Word(Said(price=1.0))}, (), clock.now())
    store.change(AGENT, {"turin": Word(Said(price=1.0), soon), "milan": Word(Said(), soon)}, (), clock.now())
    with caplog.at_level(logging.WARNING, logger="rescheduler"):
        clock.rounds.run()
    assert clock.waits == [STEP_SECONDS] * 3
    assert [one.name for one in store.clusters(clock.now())] == ["milan"]
    values = {
        name: registry.get_sample_value(f"spot_rescheduler_liqo_{name}")
        for name in ("clusters", "unreadable_secrets", "expired_total")
    }
    assert values == {"clusters": 1, "unreadable_secrets": 1, "expired_total": 2}
    silent = "its agent has fallen silent, what it said is forgotten"
    assert [one.getMessage() for one in caplog.records] == [
        f"cluster milan: {silent}",
        f"cluster turin: {silent}",
        "SIGTERM: ending, calls under way are answered",
    ]
    store.close()


def test_it_is_ready_when_the_secrets_were_read_once_or_there_are_none_to_read() -> None:
    clock, store = StepClock(), Store(":memory:")
    secrets = Secrets(store, clock, "demo")
    rounds = Rounds(store, secrets, Metrics(CollectorRegistry()), clock)
    assert rounds.health.unready
    secrets.read = True
    assert not rounds.health.unready
    assert not Rounds(store, None, Metrics(CollectorRegistry()), clock).health.unready
    store.close()


def test_a_database_that_fails_is_told_of_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    clock, store = Told(), Store(":memory:")
    clock.rounds = Rounds(store, None, Metrics(CollectorRegistry()), clock)
    store.close()
    with caplog.at_level(logging.WARNING, logger="rescheduler"):
        clock.rounds.run()
    assert caplog.text.count("--database :memory:: Cannot operate on a closed database.") == 3
