"""Invariant 13: a pod that moved as a leftover, to another on-demand node, is not moved again within the rest."""

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.invariants.history import seconds
from tests.invariants.judging import JudgedMoment
from tests.invariants.moments import HistoryMoment, PodEvicted
from tests.invariants.objects import SeenPod
from tests.invariants.rules import Rules, Violation


@dataclass(slots=True)
class LeftoversRest:
    """Pods with a nodeSelector for on-demand nodes are leftovers: a drain moves them to other on-demand nodes only.

    A pod rests that was created since pods of its owner first moved, if the last one moved within the rest. Those that
    leave a node together do not make each other rest: only moves from other nodes count.
    """

    _first: dict[str, int] = field(default_factory=dict)  #: the revision of the first eviction, by UID of the owner
    _last: dict[str, dict[str, dt.datetime]] = field(default_factory=dict)  #: the last one, by owner and node

    def check(self, moment: HistoryMoment, scene: JudgedMoment) -> Iterator[Violation]:
        if not isinstance(moment, PodEvicted) or not is_leftover(moment.pod, scene.rules):
            return
        pod, rest = moment.pod, scene.rules.leftover_rest
        owner, created = pod.controller, pod.metadata.creation_timestamp
        if owner is None:
            return
        first = self._first.setdefault(owner.uid, moment.revision.number)
        moved = self._last.setdefault(owner.uid, {})
        since = scene.now.created[pod.metadata.uid] > first
        others = [at for node, at in moved.items() if node != pod.spec.node_name]
        moved[pod.spec.node_name] = moment.at
        rested = not others or moment.at >= max(others) + seconds(rest)
        if since and not rested and created is not None and moment.at < created + seconds(rest):
            what = f"leftover {pod.key}, created at {created:%H:%M:%S} when pods of {owner.name} had moved, moved again"
            yield Violation(13, moment.at, f"{what}; the rest is {rest:g} s")

    def end(self, _: JudgedMoment) -> Iterator[Violation]:
        return iter(())


def is_leftover(pod: SeenPod, rules: Rules) -> bool:
    """Return whether only on-demand nodes have the labels of the pod's nodeSelector."""
    key, _, value = rules.on_demand.partition("=")
    wanted = pod.spec.node_selector.get(key)
    return wanted is not None and value in ("", wanted)
