"""Simulate a cluster for a time with one setting of the daemon, and return the course."""

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from rescheduler.observe.events import Event
from rescheduler.simulation.course import Course, CourseRecorder
from rescheduler.simulation.daemon import DaemonSettings
from rescheduler.simulation.happenings import Happening
from rescheduler.simulation.store import Json
from rescheduler.simulation.world import World, WorldSettings

#: Seconds in which the controllers of the cluster settle before the daemon starts.
_SETTLE = 60.0


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What is simulated: the same for all settings that are compared."""

    items: Sequence[Json]
    world: WorldSettings
    seconds: float
    happenings: Sequence[Happening] = ()


def simulate(plan: RunPlan, daemon: DaemonSettings, progress: Callable[[float], object] = lambda _: None) -> Course:
    """Run the daemon with the settings *daemon* in the cluster of *plan*.

    *progress* is called every simulated ten minutes with the share that is done. It may raise KeyboardInterrupt: then
    the course until then is returned.
    """
    recorders: list[CourseRecorder] = []

    def report(_: str, event: Event) -> None:
        for recorder in recorders:
            recorder.report(event)

    world = World(
        plan.items,
        plan.world,
        daemon,
        report,
    )
    for happening in plan.happenings:
        happening.check(world)
    world.run(_SETTLE)
    recorder = CourseRecorder(world, daemon.prices)
    recorders.append(recorder)
    for happening in plan.happenings:
        world.engine.after(happening.at, partial(_happen, happening, world, recorder))
    world.start_daemons()
    done, step = 0.0, 600.0
    try:
        while done < plan.seconds:
            world.run(min(step, plan.seconds - done))
            done += step
            progress(min(done / plan.seconds, 1.0))
    except KeyboardInterrupt:
        pass
    course = recorder.finish()
    world.close()
    return course


def _happen(happening: Happening, world: World, recorder: CourseRecorder) -> None:
    recorder.say(happening.happen(world))


def as_of(items: Iterable[Json]) -> dt.datetime:
    """Return when the simulation starts: when the newest of *items* was created."""
    texts = [item["metadata"].get("creationTimestamp") or "" for item in items]
    newest = max(texts, default="")
    return dt.datetime.fromisoformat(newest) if newest else dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
