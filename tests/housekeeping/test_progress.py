"""Tests of the progress that drains report, on the in-memory cluster."""

import itertools

from rescheduler.housekeeping.loop import RoundOutcome
from rescheduler.observe.events import DrainProgressed
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
