"""The first target that accepts a pod is found although most results are not updated while pods are only added."""

from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from predicates import local_results
from predicates.filters import Filters
from predicates.local_results import Targets
from predicates.objects import PodClass
from predicates.plugins import DEFAULT
from predicates.snapshot import Snapshot, Trial
from tests.planning.builders import node, pod, repels, snapshot

NODES: Final = 6
KINDS: Final = {
    "small-1": pod("small-1", cpu="1"),
    "large-1": pod("large-1", cpu="2"),
    "apart-1": pod("apart-1", cpu="1", affinity=repels("apart")),
    "alone-1": pod("alone-1", cpu="1", affinity=repels("small")),
    "port-1": pod(
        "port-1", containers=[{"name": "main", "image": "app:1", "ports": [{"containerPort": 80, "hostPort": 80}]}]
    ),
}
PLACED: Final = tuple(f"small-{number}" for number in range(2, 2 + NODES))

_STEPS: Final = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.sampled_from(sorted(KINDS))),
        st.tuples(st.just("place"), st.sampled_from(sorted(KINDS))),
        st.tuples(st.just("unplace"), st.just("")),
        st.tuples(st.just("evict"), st.sampled_from(PLACED)),
        st.tuples(st.just("keep"), st.just("")),
        st.tuples(st.just("back"), st.just("")),
        st.tuples(st.just("reset"), st.just("")),
        st.tuples(st.just("end"), st.just("")),
        st.tuples(st.just("delete"), st.sampled_from(PLACED)),
    ),
    max_size=40,
)
_ASK: Final = [("ask", "small-1")]
_FULL: Final = [("place", "small-1")] * 3
_LATE: Final = [("ask", "large-1")]
_EACH: Final = frozenset(KINDS)


@pytest.fixture(autouse=True, scope="module")
def _short_lists() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_results, "_LISTED", 2)
        yield


@example([("place", "large-1"), ("place", "small-1"), *_ASK, ("unplace", ""), *_ASK], _EACH)
@example([("evict", "small-2"), ("keep", ""), *[("place", "large-1")] * 2, *_ASK, *_ASK, ("back", ""), *_ASK], _EACH)
@example([*_FULL, *_LATE, ("back", ""), ("place", "small-1"), *_LATE], frozenset())
@example([*_FULL, *_LATE, ("end", ""), ("place", "small-1"), *_LATE], frozenset())
@settings(max_examples=400)
@given(_STEPS, st.frozensets(st.sampled_from(sorted(KINDS))))
def test_no_earlier_target_accepts_the_pod(steps: list[tuple[str, str]], known: frozenset[str]) -> None:
    """Nodes that the open trial has touched may be missed; the planner evaluates these nodes again later.

    Until changes are kept, those that accepted the class at the start of the trial are not missed. Only *known* classes
    are asked for before the first placement.
    """
    names = [f"n{number}" for number in range(NODES)]
    placed = [pod(name, names[number], cpu="1") for number, name in enumerate(PLACED)]
    table = snapshot([*(node(name, cpu="4") for name in names), *placed, *KINDS.values()])
    filters, targets = Filters(table, DEFAULT), Targets([table.nodes.row[name] for name in names])
    classes = {name: table.pods[f"default/{name}"].cls for name in KINDS}
    for part in _by_trial(steps):
        opened = {cls: {row for row in targets.rows.tolist() if filters.fits(cls, row)} for cls in classes.values()}
        for name in sorted(known):
            filters.first(classes[name], targets)
        with table.trial() as trial:
            start = mark = trial.savepoint()
            moved: list[tuple[PodClass, int]] = []
            evicted, evicted_before = set[str](), set[str]()
            for action, argument in part:
                if action in ("ask", "place"):
                    row = _checked_first(table, filters, targets, classes[argument], opened)
                    if action == "place" and row is not None:
                        trial.place(classes[argument], row)
                        moved.append((classes[argument], row))
                elif action == "unplace" and moved:
                    trial.unplace(*moved.pop())
                elif action == "evict" and (key := f"default/{argument}") in table.pods and key not in evicted:
                    trial.evict(table.pods[key])
                    evicted.add(key)
                elif action == "keep":
                    trial.keep()
                    opened.clear()
                    mark = trial.savepoint()
                    moved, evicted_before = [], set(evicted)
                elif action == "back":
                    trial.revert(mark)
                    moved, evicted = [], set(evicted_before)
                elif action == "reset":
                    trial.revert(start)
                    mark, moved, evicted, evicted_before = start, [], set(), set()
                elif action in ("end", "delete"):
                    break
        if part and part[-1][0] == "delete":
            table.delete("Pod", f"default/{part[-1][1]}")
    for cls in classes.values():
        assert filters.first(cls, targets) == _first_by_row(filters, targets, cls)


@settings(max_examples=200)
@given(st.lists(st.sampled_from(sorted(KINDS)), max_size=20), st.sampled_from(sorted(KINDS)))
def test_pods_that_are_placed_together_have_the_places_of_one_after_the_other(names: list[str], last: str) -> None:
    """Also if an index is created in between, as by the first pod that repels others."""
    placed = []
    for together in (True, False):
        table = snapshot([*(node(f"n{number}", cpu="4") for number in range(NODES)), *KINDS.values()])
        filters, targets = Filters(table, DEFAULT), Targets(range(NODES))
        pods = [table.pods[f"default/{name}"].cls for name in names]
        free = table.nodes.free.copy()
        with table.trial() as trial:
            start = trial.savepoint()
            if together:
                rows = filters.first_fit(pods, targets, trial)
            else:
                rows = [_placed(pod, filters, targets, trial) for pod in pods]
            after = table.nodes.free.tolist(), filters.first(table.pods[f"default/{last}"].cls, targets)
            counts = [dict(table.rows_of(table.pods[f"default/{name}"].cls)) for name in sorted(KINDS)]
            trial.revert(start)
            assert (table.nodes.free == free).all()
            assert [filters.first(pod, targets) for pod in pods] == [0] * len(pods)
            placed.append((rows, after, counts))
    assert placed[0] == placed[1]


def _placed(pod: PodClass, filters: Filters, targets: Targets, trial: Trial) -> int | None:
    if (row := filters.first(pod, targets)) is not None:
        trial.place(pod, row)
    return row


def _by_trial(steps: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """Split *steps* after each end of a trial, and each deletion: the cluster changes only between trials."""
    parts: list[list[tuple[str, str]]] = [[]]
    for step in steps:
        parts[-1].append(step)
        if step[0] in ("end", "delete"):
            parts.append([])
    return parts


def _checked_first(
    table: Snapshot, filters: Filters, targets: Targets, cls: PodClass, opened: dict[PodClass, set[int]]
) -> int | None:
    first = filters.first(cls, targets)
    assert first is None or filters.fits(cls, first)
    earlier = targets.rows.tolist() if first is None else targets.rows.tolist()[: targets.rows.tolist().index(first)]
    judged = [row for row in earlier if row not in table.touched or row in opened.get(cls, ())]
    assert [row for row in judged if filters.fits(cls, row)] == []
    return first


def _first_by_row(filters: Filters, targets: Targets, cls: PodClass) -> int | None:
    return next((row for row in targets.rows.tolist() if filters.fits(cls, row)), None)
