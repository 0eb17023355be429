"""Checks one of our snapshots while it changes: trial placements, their undoing, and events of the cluster.

After each change, every pod is evaluated on every node, as ``explain`` and as the planner do it, and compared with the
scheduler's verdicts on the same state.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from copy import deepcopy
from random import Random

import msgspec
import numpy as np

from predicates.filters import Filters
from predicates.local_results import Targets
from predicates.objects import Pod
from predicates.scheduler import Scheduler
from predicates.snapshot import DRAIN_TAINT, Snapshot, Trial, key_of
from predicates.wire import KINDS, Decoder, Interner
from rescheduler.planning.placement.explain import explain
from tests.conformance.generate.admission import adds_labels, bind_again
from tests.conformance.generate.world import Json
from tests.conformance.oracle import Oracle
from tests.conformance.ours import of_explanation
from tests.conformance.verdicts import accepted, differences, of_oracle


class LiveSnapshot:
    """A snapshot that is updated from state to state, and filters with caches on it."""

    def __init__(self, snapshot: Json, scheduler: Scheduler | None = None) -> None:
        self.table = Snapshot(scheduler)
        self._decoder = Decoder(Interner())
        self.filters = Filters(self.table)
        for item in snapshot["items"]:
            self.put(item)

    def put(self, item: Json) -> None:
        """Add or update an object."""
        if item["kind"] in KINDS:
            self.table.upsert(item["kind"], self._decoder.decode(item["kind"], msgspec.json.encode(item)))

    def drop(self, item: Json) -> None:
        """Delete an object."""
        if item["kind"] in KINDS:
            obj = self._decoder.decode(item["kind"], msgspec.json.encode(item))
            self.table.delete(item["kind"], key_of(obj))

    def problems(self, oracle: Oracle, snapshot: Json, moved: Collection[str] = ()) -> Iterator[str]:
        """Yield differences between the results for the snapshot and for *snapshot*, which must be the same state.

        Nodes that a trial drains are left out, because they are not targets and lack the taint in our results. So are
        the pods *moved* in a trial. In a trial, evaluating the targets in order may miss a node that pods have left,
        because the planner never uses such a node as a target.
        """
        in_trial = bool(self.table.touched)
        expected = of_oracle(oracle.explain(snapshot))
        draining = {self.table.nodes.names[row] for row in self.table.draining_rows}
        rows = np.array(
            [row for row in np.flatnonzero(self.table.nodes.alive) if row not in self.table.draining_rows], np.intp
        )
        pods = [pod for name, pod in self.table.pods.items() if name not in moved]
        # First as the planner does it: its results are cached, and must not depend on the other evaluations.
        masks = {pod.key: self.mask(pod) for pod in pods}
        in_order = {pod.key: self._in_order(pod, Targets(rows)) for pod in pods}
        single = {pod.key: self._single_rows(pod, rows.tolist()) for pod in pods}
        mine = {pod.key: of_explanation(explain(pod, pod, self.table, self.filters, rows, ())) for pod in pods}
        yield from map(str, differences(expected, mine, accepted(snapshot)))
        for name, nodes in mine.items():
            fitting = {node for node, rejections in nodes.items() if not rejections}
            required = set() if in_trial else fitting - {self.table.pods[name].node_name}
            if (
                masks[name] - draining != fitting
                or not required <= in_order[name] <= fitting
                or single[name] != fitting
            ):
                yield (
                    f"{name}: explain {sorted(fitting)}, mask {sorted(masks[name])}, "
                    f"in order {sorted(in_order[name])}, single rows {sorted(single[name])}"
                )
            if not all(expected[name][node] for node in draining - masks[name]):
                yield f"{name}: rejected on the drained node, which the scheduler accepts"

    def mask(self, pod: Pod) -> set[str]:
        """Return the nodes that accept the pod, evaluated at once."""
        with self._evicted(pod):
            return {self.table.nodes.names[row] for row in np.flatnonzero(self.filters.feasible(pod.cls))}

    def _in_order(self, pod: Pod, targets: Targets) -> set[str]:
        """Return the nodes that accept the pod, evaluated in order."""
        with self._evicted(pod):
            return {self.table.nodes.names[row] for row in self.filters.fitting(pod.cls, targets)}

    def _single_rows(self, pod: Pod, rows: list[int]) -> set[str]:
        """Return those of *rows* that accept the pod, evaluated one by one."""
        with self._evicted(pod):
            return {self.table.nodes.names[row] for row in rows if self.filters.fits(pod.cls, row)}

    @contextmanager
    def _evicted(self, pod: Pod) -> Iterator[None]:
        with self.table.trial() as trial:
            if pod.node_name in self.table.nodes.row:
                trial.evict(pod)
            yield


class Moves:
    """Random moves of pods to nodes that accept them, a drained node, and one whose drain is given up before."""

    def __init__(self, snapshot: Json, rng: Random) -> None:
        self._given, self._rng = snapshot, rng
        nodes = [item["metadata"]["name"] for item in snapshot["items"] if item["kind"] == "Node"]
        movable = [_key(item) for item in snapshot["items"] if item["kind"] == "Pod" and _may_move(item, nodes)]
        self._movable = rng.sample(movable, min(len(movable), rng.randint(1, 12)))
        self._tried, self._drained = rng.choice(nodes), rng.choice(nodes)
        self.to: dict[str, str] = {}

    def perform(self, live: LiveSnapshot, trial: Trial) -> None:
        """Perform the moves in *trial*, after the drain of a node that is given up."""
        table, mark = live.table, trial.savepoint()
        trial.drain(table.nodes.row[self._tried])
        for name in self._movable:
            live.mask(table.pods[name])
        trial.revert(mark)
        for name in self._movable:
            pod = table.pods[name]
            if targets := sorted(live.mask(pod)):
                node = self._rng.choice(targets)
                trial.evict(pod)
                trial.place(pod.cls, table.nodes.row[node])
                self.to[name] = node
        trial.drain(table.nodes.row[self._drained])

    def result(self) -> Json:
        """Return the state after the moves, as the API server would show it."""
        changed = deepcopy(self._given)
        labels_added = adds_labels(self._given["items"])
        nodes = {item["metadata"]["name"]: item for item in changed["items"] if item["kind"] == "Node"}
        for item in changed["items"]:
            if item["kind"] == "Pod" and _key(item) in self.to:
                item["metadata"]["uid"] += "-again"
                bind_again(item, nodes[self.to[_key(item)]], labels_added=labels_added)
                item["status"] = {"phase": "Pending"}
            if item["kind"] == "Node" and item["metadata"]["name"] == self._drained:
                item["spec"].setdefault("taints", []).append({"key": DRAIN_TAINT.key, "effect": DRAIN_TAINT.effect})
        return changed


def _may_move(pod: Json, nodes: Collection[str]) -> bool:
    """Return whether the pod can be moved; not with claims: a state does not show volumes assumed in a trial."""
    meta, spec = pod["metadata"], pod["spec"]
    unbound = any("persistentVolumeClaim" in volume or "ephemeral" in volume for volume in spec.get("volumes", ()))
    alive = pod["status"].get("phase") not in {"Succeeded", "Failed"} and "deletionTimestamp" not in meta
    return alive and not unbound and spec.get("nodeName") in nodes


def _key(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def through_changes(oracle: Oracle, snapshot: Json, rng: Random) -> Iterator[str]:
    """Make random moves in a trial, undo them, repeat them as events, and delete objects; yield all differences."""
    live, moves = LiveSnapshot(snapshot, oracle.scheduler), Moves(snapshot, rng)
    with live.table.trial() as trial:
        moves.perform(live, trial)
        moved = moves.result()
        yield from live.problems(oracle, moved, moves.to)
    yield from live.problems(oracle, snapshot)
    for before, after in zip(snapshot["items"], moved["items"], strict=True):
        if before != after:
            live.put(after)
    yield from live.problems(oracle, moved)
    deleted = [item for item in moved["items"] if rng.random() < 0.1]
    for item in deleted:
        live.drop(item)
    yield from live.problems(oracle, {**moved, "items": [item for item in moved["items"] if item not in deleted]})
    for item in rng.sample(deleted, len(deleted)):
        live.put(item)
    yield from live.problems(oracle, moved)
