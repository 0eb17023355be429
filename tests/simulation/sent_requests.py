"""The promises about single requests of the daemon: what it orders and changes, beside what it read right before."""

import datetime as dt
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from predicates.snapshot import DRAIN_TAINT
from rescheduler.draining.actions import ANNOTATION
from rescheduler.housekeeping.node_writes import SOFT_TAINT
from rescheduler.simulation.engine import Process
from rescheduler.simulation.eviction import is_ready
from rescheduler.simulation.machines import Termination
from rescheduler.simulation.requests import ApiRequest, Target
from rescheduler.simulation.store import PLURALS, Json, StoredChange, controller_of
from rescheduler.simulation.world import World
from tests.invariants.evictions import DO_NOT_DRAIN, SCALE_DOWN_DISABLED
from tests.invariants.history import ObservedTermination, Revision, seconds
from tests.invariants.marks import DRAINING, NodeMark, mark_on
from tests.invariants.objects import SeenNode
from tests.invariants.opt_outs import DO_NOT_DISRUPT
from tests.invariants.rules import Rules
from tests.simulation.drain_acts import step_of

#: Annotations of a node that is to be kept.
_KEEPING: Final = (DO_NOT_DRAIN, DO_NOT_DISRUPT, SCALE_DOWN_DISABLED)


def _kept(node: SeenNode) -> bool:
    return any(node.metadata.annotations.get(key) == "true" for key in _KEEPING)


#: What must not be true of a node whose machine is ordered away.
_UNLIKE: Final[dict[str, Callable[[SeenNode, NodeMark | None], bool]]] = {
    "it had no taint of a drain": lambda node, _: all(taint.key != DRAIN_TAINT.key for taint in node.spec.taints),
    "it had no mark of this installation": lambda _, mark: mark is None or not mark.annotated,
    "it is to be kept": lambda node, _: _kept(node),
}

#: What the daemon may change of a Node: our taints, and annotations of ours that people do not set.
_OUR_TAINTS: Final = (DRAIN_TAINT.key, SOFT_TAINT.key)
_OUR_ANNOTATIONS: Final = "spot-rescheduler/"

_ON_NODE: Final = "spec.nodeName="

#: The longest time from the first read of a last look to the order, in seconds, with the request itself.
_OLDEST: Final = 11.0


#: Seconds until the Lease of a Node tells that its kubelet is gone: two of four renewals have failed.
_LEASE_SECONDS: Final = 22.0


class _Meta(msgspec.Struct, rename="camel"):
    uid: str
    resource_version: str


class _Head(msgspec.Struct):
    metadata: _Meta


class _Answers:
    """When requests about a node were answered, and the UID of the Node in the answer."""

    def __init__(self) -> None:
        self._entries: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)

    def add(self, node: str, at: float, uid: str = "") -> None:
        self._entries[node].append((at, uid))

    def last(self, node: str, until: float) -> tuple[float, str]:
        """Return the last answer *until* a time; one of the time -1 if there is none."""
        place = bisect_right(self._entries[node], until, key=lambda entry: entry[0])
        return self._entries[node][place - 1] if place else (-1.0, "")


class _Refuges:
    """The pods of owners that evictions have moved, and whether the kubelets of their nodes live."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._before: dict[tuple[str, str, str, str], int] = {}  #: Ready pods by UID of the node, and the owner

    def evicted(self, key: str) -> None:
        """Note the owner of the pod *key*, whose eviction has been accepted."""
        pod = self._world.store.get("pods", key)
        owner = None if pod is None else controller_of(pod)
        if pod is not None and owner is not None and owner["kind"] in PLURALS and is_ready(pod):
            above = f"{pod['metadata']['namespace']}/{owner['name']}"
            node = self._world.store.get("nodes", pod["spec"]["nodeName"])
            left = "" if node is None else node["metadata"]["uid"]
            entry = left, PLURALS[owner["kind"]], above, owner["uid"]
            self._before.setdefault(entry, 1 + len(self._ready(owner["uid"])))

    def dead(self, node: str, at: float) -> str:
        """Return which owner lacks pods that left *node* on nodes whose kubelets lived shortly before *at*, or "".

        *node* is a UID.
        """
        for (left, plural, key, uid), before in self._before.items():
            owner = self._world.store.same(plural, key, uid)
            if left == node and owner is not None:
                ready = self._ready(uid)
                dead = [pod for pod in ready if self._is_dead(pod["spec"]["nodeName"], at)]
                if dead and len(ready) - len(dead) < min(before, owner["spec"].get("replicas", 1)):
                    return f"{len(dead)} pods of {key} run on nodes whose kubelets do not report"
        return ""

    def _ready(self, uid: str) -> list[Json]:
        pods = self._world.store.owned_by(uid)
        return [pod for pod in pods if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]]

    def _is_dead(self, name: str, at: float) -> bool:
        node = self._world.store.get("nodes", name)
        since = None if node is None else self._world.kubelets.dead.get(node["metadata"]["uid"])
        return since is not None and since < at - _LEASE_SECONDS


class SentRequests:
    """Reads the requests of the daemon in *world* from now on."""

    def __init__(self, world: World, rules: Rules) -> None:
        self._world = world
        self._rules = rules
        self._began = world.engine.time - dt.timedelta(seconds=world.engine.now)
        self._looks = _Answers()  #: a Node was read
        self._lists = _Answers()  #: the pods of a node were read
        self._marks = _Answers()  #: a mark was written
        self._intents = _Answers()  #: a machine was about to be ordered
        self._releases = _Answers()  #: the mark of such a machine was removed
        self._refuges = _Refuges(world)
        self._change: StoredChange | None = None  #: the last one of a Node
        self._broken: list[str] = []
        world.store.listen("nodes", self._changed)
        world.network.audit.append(self._answered)

    def looked(self, termination: Termination) -> dt.datetime | None:
        """Return when the daemon last read the Node before it ordered *termination*."""
        at, _ = self._looks.last(termination.node, termination.at)
        return None if at < 0 else self._began + seconds(at)

    def ordered(self, termination: Termination) -> None:
        """Check that the node and its pods were read between the intent and the order."""
        name, at = termination.node, termination.at
        look, seen = self._looks.last(name, at)
        released, _ = self._releases.last(name, self._world.engine.now)
        wrong = {
            "its Node was not read right before": look < at - _OLDEST,
            "its pods were not read after the intent": self._lists.last(name, at) < self._intents.last(name, at),
            "it is another Node of the same name": seen != self._marks.last(name, at)[1],
            "it was reopened while the order could take effect": released > at,
        }
        if dead := self._refuges.dead(seen, look):
            wrong[dead] = True
        for why, is_so in wrong.items():
            if is_so:
                self._break("the last look", f"the machine of node {name} was ordered away although {why}")

    def broken(self, orders: Sequence[ObservedTermination], revisions: Sequence[Revision]) -> list[str]:
        """Return the promises that the requests so far have broken."""
        return [*self._broken, *_unlike(orders, revisions, self._rules)]

    def _break(self, promise: str, what: str) -> None:
        self._broken.append(f"{self._world.engine.time:%H:%M:%S.%f} promise ({promise}): {what}")

    def _changed(self, change: StoredChange) -> None:
        self._change = change

    def _answered(
        self, _: Process, request: ApiRequest, target: Target | None, __: float, code: int, body: bytes
    ) -> None:
        if target is None or code not in (200, 201):
            return
        now = self._world.engine.now
        match request.method, target.plural:
            case "GET", "nodes" if target.name:
                self._looks.add(target.name, now, msgspec.json.decode(body, type=_Head).metadata.uid)
            case "GET", "pods" if not target.name:
                fields = request.query.get("fieldSelector", "")
                if fields.startswith(_ON_NODE):
                    self._lists.add(fields.removeprefix(_ON_NODE).partition(",")[0], now)
            case "POST", "pods" if target.subresource == "eviction" and not request.dry_run:
                self._refuges.evicted(target.key)
            case "PATCH", "nodes" if not target.subresource:
                change = self._change
                version = msgspec.json.decode(body, type=_Head).metadata.resource_version
                if change is not None and change.before is not None and str(change.after.revision) == version:
                    self._edited(change.before, change.after.object)

    def _edited(self, before: Json, after: Json) -> None:
        """Judge a PATCH of a Node by the daemon."""
        name, uid, now = after["metadata"]["name"], after["metadata"]["uid"], self._world.engine.now
        for what in _edits(before, after, self._rules):
            self._break("what others write to a Node stays", f"a PATCH of node {name} {what}")
        earlier, step = step_of(before), step_of(after)
        if step not in ("", DRAINING, earlier):
            self._intents.add(name, now)
        if earlier not in ("", DRAINING) and not step:
            self._releases.add(name, now)
        if step and not earlier and _kept(_seen(before)):
            self._break("what is to be kept stays", f"node {name} was marked although it is to be kept")
        if step:
            self._marks.add(name, now, uid)


def _edits(before: Json, after: Json, rules: Rules) -> Iterator[str]:
    """Yield what a PATCH of the daemon has changed that is not its own."""
    if _others_taints(before) != _others_taints(after):
        yield "changed taints of others"
    notes, changed = (each["metadata"].get("annotations") or {} for each in (before, after))
    if any(notes.get(key) != changed.get(key) for key in {*notes, *changed} if not key.startswith(_OUR_ANNOTATIONS)):
        yield "changed annotations of others"
    if any(notes.get(key) != changed.get(key) for key in _KEEPING):
        yield "changed what people have set"
    theirs = mark_on(_seen(before), rules.identity) is None and ANNOTATION in notes
    if theirs and notes[ANNOTATION] != changed.get(ANNOTATION):
        yield "replaced the mark of another installation"


def _others_taints(item: Json) -> list[Json]:
    return [taint for taint in item["spec"].get("taints") or () if taint["key"] not in _OUR_TAINTS]


def _unlike(orders: Sequence[ObservedTermination], revisions: Sequence[Revision], rules: Rules) -> Iterator[str]:
    """Yield the machines that were ordered away although their node was not the daemon's, or was to be kept.

    What has changed after the daemon's last look at the node does not count.
    """
    states: dict[str, list[Revision]] = {}
    for revision in revisions:
        if isinstance(revision.object, SeenNode):
            states.setdefault(revision.object.metadata.name, []).append(revision)
    for order in orders:
        seen = [each for each in states.get(order.node, ()) if each.at <= order.at]
        since = order.at - seconds(order.look(rules.look))
        window = [each for each in seen if each.at > since] + [each for each in seen if each.at <= since][-1:]
        nodes = [each.object for each in window if isinstance(each.object, SeenNode) and not each.gone]
        for what, holds in _UNLIKE.items():
            if nodes and all(holds(node, mark_on(node, rules.identity)) for node in nodes):
                text = f"promise (the last look at a node): the machine of node {order.node} was ordered away"
                yield f"{order.at:%H:%M:%S.%f} {text} although {what}"


def _seen(item: Json) -> SeenNode:
    return msgspec.convert(item, SeenNode)
