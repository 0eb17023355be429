"""Tests of the progress that drains report, on the in-memory cluster."""

import itertools
import logging
import re

import pytest

from rescheduler.draining.events import NodeGone, NodeSeen
from rescheduler.draining.state import Drain
from rescheduler.execution.drain_execution import LOOK_SECONDS, POLL_SECONDS
from rescheduler.execution.observation import Observation
from rescheduler.housekeeping.loop import RoundOutcome
from rescheduler.observe.events import DrainProgressed, DrainWaits
from rescheduler.observe.logs import Logs
from tests.housekeeping.world import LoopWorld, Replacement, world
from tests.planning.builders import ON_DEMAND, node, pod

NODE = (node("od-1", ON_DEMAND), node("spot-1", cpu="16"), pod("web-1", "od-1"), pod("db-1", "od-1"))


def states(here: LoopWorld) -> list[dict[str, str]]:
    """Return the state of each pod, by its name, for each change."""
    seen: list[dict[str, str]] = []
    for event in here.of(DrainProgressed):
        pods = {pod.name: state.value for pod, state in event.pods}
        if pods and (not seen or seen[-1] != pods):
            seen.append(pods)
    return seen


def test_each_pod_is_evicted_and_its_replacement_becomes_ready() -> None:
    with world(*NODE) as here:
        assert here.loop().round() is RoundOutcome.DRAINED
        assert states(here)[0] == {"web-1": "waiting", "db-1": "waiting"}
        assert states(here)[-1] == {"web-1": "ready", "db-1": "ready"}
        phases = list(dict.fromkeys(event.phase for event in here.of(DrainProgressed)))
        assert phases == ["evicting", "looking"]


def test_a_replacement_that_is_bound_is_not_ready() -> None:
    with world(*NODE) as here:
        here.replacements["web"] = Replacement.UNREADY
        assert here.loop().round() is RoundOutcome.FAILED
        assert {"web-1": "bound", "db-1": "ready"} in states(here)
        assert "ready" not in {pods["web-1"] for pods in states(here)}


def test_a_replacement_that_is_not_bound_is_only_evicted() -> None:
    with world(*NODE) as here:
        here.replacements["db"] = Replacement.UNBOUND
        assert here.loop().round() is RoundOutcome.FAILED
        assert {"bound", "ready"}.isdisjoint({pods["db-1"] for pods in states(here)})


def test_progress_is_reported_only_when_it_changes() -> None:
    with world(*NODE) as here:
        here.loop().round()
        events = here.of(DrainProgressed)
        assert [first for first, second in itertools.pairwise(events) if first == second] == []


def test_a_drain_that_waits_says_every_half_minute_for_which_pods_and_since_when(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with world(*NODE) as here, caplog.at_level(logging.INFO):
        here.replacements["web"] = Replacement.UNREADY
        assert here.loop().round() is RoundOutcome.FAILED
        waits = here.of(DrainWaits)
        assert len(waits) > 2
        times = [event.at.timestamp() for event in waits]
        assert min(later - earlier for earlier, later in itertools.pairwise(times)) >= 30
        last = waits[-1]
        assert last.progress.targets == {"default/web-1": "spot-1", "default/db-1": "spot-1"}
        [since] = {event.progress.since["default/web-1"] for event in waits if _state(event, "web-1") == "bound"}
        assert since < waits[-1].at
        listener = Logs()
        for event in waits:
            listener(event)
        lines = [record.message for record in caplog.records if record.message.startswith("waiting")]
        assert len(lines) >= len(waits)
        assert re.fullmatch(r"waiting for [0-9]+[sm] for its replacement to be Ready; planned to spot-1", lines[-1])


def test_the_watched_state_is_not_evaluated_again_at_once_while_nothing_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with world(*NODE) as here:
        here.replacements["web"] = Replacement.UNREADY
        event, looks = Observation.event, list[float]()

        def looked(observation: Observation, drain: Drain) -> NodeSeen | NodeGone:
            looks.append(here.now)
            return event(observation, drain)

        monkeypatch.setattr(Observation, "event", looked)
        assert here.loop().round() is RoundOutcome.FAILED
        polls = (looks[-1] - looks[0]) / POLL_SECONDS
        assert len(looks) < polls / 2
        assert max(later - earlier for earlier, later in itertools.pairwise(looks)) < LOOK_SECONDS + 2 * POLL_SECONDS


def _state(event: DrainWaits, name: str) -> str:
    return next(state.value for pod, state in event.progress.pods if pod.name == name)
