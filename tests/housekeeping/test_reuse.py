"""A loop that reuses results reports the same as a loop that computes all results in each round."""

import gc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from predicates.objects import PodClass
from predicates.snapshot import Snapshot
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.facts.round_facts import FactsReader, Known, RoundFacts
from rescheduler.housekeeping.candidates import Candidates
from rescheduler.housekeeping.loop import Loop, RoundOutcome
from rescheduler.observe.events import Event, Planned, RoundEnded
from rescheduler.observe.kube_events import KubeEvents
from rescheduler.observe.metrics import Metrics
from rescheduler.observe.prepared_pages import StatusPage
from rescheduler.observe.status import Status, StatusJson, as_json
from rescheduler.planning.kept import Kept
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.planner import Planner
from tests.housekeeping.world import LoopWorld, world
from tests.planning.builders import ON_DEMAND, Manifest, node, pod
from tests.planning.changing import Change, ChangingCluster, changes, clock_steps, first_pods

#: The listeners of a daemon do not repeat reports; the times of processes and durations differ.
OWN_METRICS = "spot_rescheduler_"


@dataclass
class ReuseStory:
    """What happens before each round: changes, a step of the clock, and whether a person pauses drains."""

    pods: list[Change]
    rounds: list[tuple[list[Change], float, bool]]
    dry_run: bool
    soft_taint: bool


STORIES = st.builds(
    ReuseStory,
    pods=first_pods,
    rounds=st.lists(
        st.tuples(st.lists(changes, max_size=2), clock_steps, st.sampled_from((False, False, False, True))),
        min_size=1,
        max_size=6,
    ),
    dry_run=st.booleans(),
    soft_taint=st.booleans(),
)


class Published:
    """The listeners of a daemon, and everything that they publish."""

    def __init__(self, here: LoopWorld, *, scratch: bool) -> None:
        """Create the listeners. With *scratch*, they report a planning again that they have already reported."""
        self._here, self._events, self._scratch = here, list[str](), scratch
        self._registry, self._status = CollectorRegistry(), Status()
        self._metrics, self._kube_events = Metrics(self._registry), KubeEvents(self._record)
        self._listeners = self._metrics, self._status, self._kube_events
        self._json, self._html = StatusJson(), StatusPage()
        self._seen = 0

    def _record(self, subject: object, reason: str, message: str, *, warning: bool = False) -> None:
        self._events.append(f"{subject} {reason} {message} {warning}")

    def after_round(self) -> list[Any]:
        """Return the output of the listeners in this round."""
        reported = [_without_seconds(event) for _, event in self._here.reported[self._seen :]]
        self._seen = len(self._here.reported)
        for event in reported:
            if self._scratch:
                self._metrics._shown = self._kube_events._last = None
            for listener in self._listeners:
                listener(event)
        board = self._status.board
        assert self._html.as_html(board) == StatusPage().as_html(board)
        lines = generate_latest(self._registry).decode().splitlines()
        metrics = [line for line in lines if line.startswith(OWN_METRICS)]
        pages = self._json.as_bytes(board), as_json(board)
        return [reported, list(self._events), metrics, pages, list(self._here.writes)]


def _without_seconds(event: Event) -> Event:
    return replace(event, seconds=0.0) if isinstance(event, Planned | RoundEnded) else event


def _published(story: ReuseStory, *, scratch: bool) -> list[list[Any]]:
    """Return the output of the listeners in each round of a daemon."""
    with world() as here:
        cluster = ChangingCluster()
        here.cluster = cluster.snapshot
        _apply(story.pods, cluster)
        loop, published = (
            here.loop(dry_run=story.dry_run, soft_taint=story.soft_taint),
            Published(here, scratch=scratch),
        )
        return [_round(here, cluster, loop, published, parts) for parts in story.rounds]


def _round(
    here: LoopWorld,
    cluster: ChangingCluster,
    loop: Loop,
    published: Published,
    parts: tuple[list[Change], float, bool],
) -> list[Any]:
    changed, step, paused = parts
    _apply(changed, cluster)
    here.pass_time(step)
    here.paused = "a person paused drains" if paused else ""
    outcome = loop.round()
    return [outcome, *published.after_round()]


def _apply(changed: Sequence[Change], cluster: ChangingCluster) -> None:
    for change in changed:
        change(cluster)


@settings(max_examples=60)
@given(STORIES)
def test_each_round_has_the_same_output_as_a_round_from_scratch(story: ReuseStory) -> None:
    reused = _published(story, scratch=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Kept, "of", _computed)
        patch.setattr(ClusterView, "planner", property(_new_planner))
        assert _published(story, scratch=True) == reused


def _computed(value: Kept[Any, Any], snapshot: Snapshot, *others: Any) -> Any:
    return value._compute(snapshot, *others)


def _new_planner(view: ClusterView) -> Planner:
    return Planner(view.snapshot, view._policy)


def test_an_unchanged_cluster_is_planned_once() -> None:
    with world() as here:
        here.cluster = ChangingCluster().snapshot
        loop = here.loop(dry_run=True)
        for _ in range(3):
            loop.round()
            here.pass_time(10)
        first, *others = here.of(Planned)
        assert [(event.at - first.at).total_seconds() for event in others] == [10, 20]
        assert all(event.planning is first.planning and event.facts is first.facts for event in others)


@pytest.mark.parametrize("pods", [(), (pod("a-1", "od-1"),), (pod("a-1", "od-1", owner=None),)])
@pytest.mark.parametrize("dry_run", [True, False])
def test_only_drains_follow_the_watch(pods: Sequence[Manifest], *, dry_run: bool) -> None:
    """Whatever else a round reports, counts and writes is of one state; what the watch tells then is for the next."""
    with world(node("od-1", ON_DEMAND), node("spot-1"), *pods) as here, pytest.MonkeyPatch.context() as patch:
        asked: list[int] = []

        def state() -> Snapshot:
            asked.append(len(asked))
            return here.cluster

        patch.setattr(here, "snapshot", state)
        loop = here.loop(dry_run=dry_run)
        drained = [loop.round() is RoundOutcome.DRAINED for _ in range(2)]
        drains = not dry_run and bool(pods) and "ownerReferences" in pods[0]["metadata"]
        assert (len(asked) != 2, any(drained)) == (drains, drains)


def test_all_that_a_round_asks_is_of_one_moment() -> None:
    """Its checks may take time: what ends meanwhile, such as a cooldown, has not ended for a part of the round only."""
    with world(node("od-1", ON_DEMAND), node("od-2", ON_DEMAND), node("spot-1"), pod("a-1", "od-1")) as here:
        made, make = list[RoundFacts](), FactsReader.facts

        def noted(reader: FactsReader, snapshot: Snapshot, known: Known, now: datetime) -> RoundFacts:
            made.append(make(reader, snapshot, known, now))
            return made[-1]

        def slowly(*_: object) -> tuple[Blocker, ...]:
            here.pass_time(7)
            return (Blocker(Reason.FRAGILE, "no"),)

        loop = here.loop(dry_run=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FactsReader, "facts", noted)
            patch.setattr(Candidates, "judge", slowly)
            loop.round()
        assert len(made) > 1
        assert {(facts.now, facts.snapshot, facts.snapshot.changes) for facts in made} == {
            (made[0].now, here.cluster, here.cluster.changes)
        }
        assert here.clock.now() > made[0].now


def test_what_a_round_knows_of_pods_that_are_gone_is_not_kept() -> None:
    """A tenant can create classes of pods for hours: caches of the process must not keep those without pods."""
    labels = [{"app": "kept", "pod-template-hash": "1"}, {"app": "gone", "pod-template-hash": "2"}]
    pods = [pod(f"{each['app']}-1", "od-1", labels=each) for each in labels]
    with world(node("od-1", ON_DEMAND), node("spot-1"), node("spot-2"), *pods) as here:
        loop = here.loop(dry_run=True)
        for _ in range(2):
            loop.round()
            here.reported.clear()
            here.cluster.delete("Pod", "default/gone-1")
            here.cluster.compact()
            here.pass_time(11)
        gc.collect()
        alive = [item.labels for item in gc.get_objects() if isinstance(item, PodClass)]
        assert [each in alive for each in labels] == [True, False]
