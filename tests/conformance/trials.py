"""One snapshot of ours through changes: trial placements, what they leave behind, and events of the cluster.

After each change every pod is judged on every node, by what explains and by what plans, and held against the
scheduler's verdicts on the same state.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from copy import deepcopy
from random import Random

import msgspec
import numpy as np

from predicates import plugins
from predicates.filters import Filters, Targets
from predicates.objects import Pod
from predicates.snapshot import DRAIN_TAINT, Snapshot, Trial, key_of
from predicates.wire import KINDS, Decoder, Interner
from rescheduler.planning.explain import explain
from tests.conformance.generate.world import Json
from tests.conformance.oracle import Oracle
from tests.conformance.ours import of_explanation
from tests.conformance.verdicts import claiming, differences, of_oracle


class Live:
    """A snapshot that is kept from state to state, with the filters' caches on it."""

    def __init__(self, given: Json) -> None:
        self.table = Snapshot()
        self._decoder = Decoder(Interner())
        self.filters = Filters(self.table, plugins.DEFAULT)
        for item in given["items"]:
            self.put(item)

    def put(self, item: Json) -> None:
        if item["kind"] in KINDS:
            self.table.upsert(item["kind"], self._decoder.decode(item["kind"], msgspec.json.encode(item)))

    def drop(self, item: Json) -> None:
        if item["kind"] in KINDS:
            one = self._decoder.decode(item["kind"], msgspec.json.encode(item))
            self.table.delete(item["kind"], key_of(one))

    def problems(self, oracle: Oracle, given: Json, moved: Collection[str] = ()) -> Iterator[str]:
        """Where the snapshot, said to be in the state of *given*, is judged otherwise than *given*.

        A node that a trial drains is no target, and what is said of it has the taint missing: it is left out. So
        are the pods *moved* in a trial. Trying nodes one after the other may miss one that pods have left in a
        trial, where none was ever a target.
        """
        in_trial = bool(self.table.touched)
        theirs = of_oracle(oracle.explain(given))
        ghosts = {self.table.nodes.names[row] for row in self.table.draining_rows}
        rows = np.array(
            [row for row in np.flatnonzero(self.table.nodes.alive) if row not in self.table.draining_rows], np.intp
        )
        pods = [pod for name, pod in self.table.pods.items() if name not in moved]
        # The planner's answers first: they are kept from question to question, and must not need the others.
        masks = {pod.key: self.mask(pod) for pod in pods}
        tried = {pod.key: self._tried(pod, Targets(rows)) for pod in pods}
        alone = {pod.key: self._alone(pod, rows.tolist()) for pod in pods}
        mine = {pod.key: of_explanation(explain(pod, self.table, self.filters, rows, ())) for pod in pods}
        yield from map(str, differences(theirs, mine, claiming(given)))
        for name, nodes in mine.items():
            fitting = {node for node, refusals in nodes.items() if not refusals}
            sure = set() if in_trial else fitting - {self.table.pods[name].node_name}
            if masks[name] - ghosts != fitting or not sure <= tried[name] <= fitting or alone[name] != fitting:
                yield (
                    f"{name}: explained {sorted(fitting)}, masked {sorted(masks[name])}, tried {sorted(tried[name])}, "
                    f"judged one by one {sorted(alone[name])}"
                )
            if not all(theirs[name][node] for node in ghosts - masks[name]):
                yield f"{name}: refused on the drained node, which the scheduler does not"

    def mask(self, pod: Pod) -> set[str]:
        """The nodes that take the pod, all at once."""
        with self._evicted(pod):
            return {self.table.nodes.names[row] for row in np.flatnonzero(self.filters.feasible(pod.cls))}

    def _tried(self, pod: Pod, targets: Targets) -> set[str]:
        """The nodes that take the pod, one after the other."""
        with self._evicted(pod):
            return {self.table.nodes.names[row] for row in self.filters.fitting(pod.cls, targets)}

    def _alone(self, pod: Pod, rows: list[int]) -> set[str]:
        """Those of *rows* that take the pod, each judged by itself."""
        with self._evicted(pod):
            return {self.table.nodes.names[row] for row in rows if self.filters.fits(pod.cls, row)}

    @contextmanager
    def _evicted(self, pod: Pod) -> Iterator[None]:
        with self.table.trial() as trial:
            if pod.node_name in self.table.nodes.row:
                trial.evict(pod)
            yield


class Moves:
    """Random moves in *given*: pods that leave for other nodes that take them, and a node that is drained."""

    def __init__(self, given: Json, rng: Random) -> None:
        self._given, self._rng = given, rng
        nodes = [one["metadata"]["name"] for one in given["items"] if one["kind"] == "Node"]
        movable = [_key(one) for one in given["items"] if one["kind"] == "Pod" and _may_move(one, nodes)]
        self._movable = rng.sample(movable, min(len(movable), rng.randint(1, 12)))
        self._drained = rng.choice(nodes)
        self.to: dict[str, str] = {}

    def perform(self, live: Live, trial: Trial) -> None:
        table = live.table
        for name in self._movable:
            pod = table.pods[name]
            if targets := sorted(live.mask(pod)):
                node = self._rng.choice(targets)
                trial.evict(pod)
                trial.place(pod.cls, table.nodes.row[node])
                self.to[name] = node
        trial.drain(table.nodes.row[self._drained])

    def result(self) -> Json:
        """The state after the moves, as the API server would tell it."""
        changed = deepcopy(self._given)
        for one in changed["items"]:
            if one["kind"] == "Pod" and _key(one) in self.to:
                one["metadata"]["uid"] += "-again"
                one["spec"]["nodeName"] = self.to[_key(one)]
                one["status"] = {"phase": "Pending"}
            if one["kind"] == "Node" and one["metadata"]["name"] == self._drained:
                one["spec"].setdefault("taints", []).append({"key": DRAIN_TAINT.key, "effect": DRAIN_TAINT.effect})
        return changed


def _may_move(pod: Json, nodes: Collection[str]) -> bool:
    """Pods with claims stay: where they are placed, a trial takes volumes for them, and a state has no such note."""
    meta, spec = pod["metadata"], pod["spec"]
    unbound = any("persistentVolumeClaim" in one or "ephemeral" in one for one in spec.get("volumes", ()))
    alive = pod["status"].get("phase") not in {"Succeeded", "Failed"} and "deletionTimestamp" not in meta
    return alive and not unbound and spec.get("nodeName") in nodes


def _key(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def through_changes(oracle: Oracle, given: Json, rng: Random) -> Iterator[str]:
    """What is judged wrongly of *given* in a trial, after it, after the same as events, and after deletions."""
    live, moves = Live(given), Moves(given, rng)
    with live.table.trial() as trial:
        moves.perform(live, trial)
        moved = moves.result()
        yield from live.problems(oracle, moved, moves.to)
    yield from live.problems(oracle, given)
    for before, after in zip(given["items"], moved["items"], strict=True):
        if before != after:
            live.put(after)
    yield from live.problems(oracle, moved)
    gone = [one for one in moved["items"] if rng.random() < 0.1]
    for one in gone:
        live.drop(one)
    yield from live.problems(oracle, {**moved, "items": [one for one in moved["items"] if one not in gone]})
    for one in rng.sample(gone, len(gone)):
        live.put(one)
    yield from live.problems(oracle, moved)
