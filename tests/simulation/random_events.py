"""Random events of a course: what happens to the cluster and to the daemon, at any time and in the middle of drains."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec

from predicates.snapshot import DRAIN_TAINT
from rescheduler.draining.actions import ANNOTATION
from rescheduler.planning.pauses import PAUSED
from rescheduler.settings import LEASE
from rescheduler.simulation.happenings import Happening
from rescheduler.simulation.store import PLURALS, Json, StoredChange, controller_of, key_of
from rescheduler.simulation.world import World
from tests.simulation.worlds import LARGE, workload

#: Seconds without events and faults at the end of a course.
CALM: Final = 600.0


@dataclass(slots=True)
class Choice:
    """Random choices. *names* are the workloads of the course."""

    source: random.Random
    names: list[str] = field(default_factory=list)

    def one(self, *options: Any) -> Any:
        return self.source.choice(options)

    def chance(self, share: float) -> bool:
        return self.source.random() < share


@dataclass(frozen=True, slots=True)
class RandomEvent:
    """An event at a time: a line of an events file, or something that happens to the daemon."""

    at: float
    entry: Json

    def __str__(self) -> str:
        return f"{self.at:8.1f} s  {self.entry}"

    @property
    def delays(self) -> bool:
        """Whether the daemon acts late because of the event."""
        return not self.entry.keys().isdisjoint({"freeze", "watches silent", "forbidden", "requests fail"})


def random_events(choice: Choice, seconds: float) -> Sequence[RandomEvent]:
    """Return the events, in order: about one in a minute, half of them in the middle of the next drain.

    On-demand nodes with pods join again and again, so that there is something to drain.
    """
    events = [
        RandomEvent(at, {"back": choice.source.randint(6, 20)}) for at in _times(choice, seconds, 150.0, 150.0, 300.0)
    ]
    events += [RandomEvent(at, choice.one(*_ACTS)(choice)) for at in _times(choice, seconds, 5.0, 120.0, 240.0)]
    for at in _times(choice, seconds, 60.0, 120.0):
        step = choice.one("draining", "removing")
        after = choice.source.uniform(0.0, 45.0) if step == "draining" else choice.source.expovariate(2.0)
        act = choice.one(*(sorted(_IN_DRAINS.keys() - _OF_MARKS) if step == "draining" else _AT_ORDERS))
        entry = {"in a drain": act, "step": step, "after": round(after, 3)}
        events.append(RandomEvent(at, entry | {"number": choice.source.randint(1, 3), "for": choice.one(40, 90, 200)}))
    return sorted(events, key=lambda each: each.at)


def _times(choice: Choice, seconds: float, *means: float) -> Iterator[float]:
    at = 30.0
    while (at := at + choice.source.expovariate(1 / choice.one(*means))) < seconds - CALM:
        yield round(at, 1)


def _app(choice: Choice) -> str:
    return f"default/{choice.one(*choice.names)}"


#: Annotations of a Node that forbid its drain.
_OPT_OUTS: Final = (
    "spot-rescheduler/do-not-drain",
    "karpenter.sh/do-not-disrupt",
    "cluster-autoscaler.kubernetes.io/scale-down-disabled",
)

_ACTS: Final[tuple[Callable[[Choice], Json], ...]] = (
    lambda choice: {"scale": _app(choice), "replicas": choice.source.randint(0, 7)},
    lambda choice: {"scale": _app(choice), "replicas": choice.source.randint(1, 5)},
    lambda choice: {"roll-out": _app(choice)},
    lambda choice: {"stuck": _app(choice), "for": f"{choice.one(30, 200)}s"},
    lambda choice: {"lose": 1, "notice": choice.chance(0.7)},
    lambda choice: {"silent": choice.one("od-0", "od-1", "spot-0", "spot-1"), "for": f"{choice.one(20, 90, 200)}s"},
    lambda choice: {"delete": f"Deployment {_app(choice)}"},
    lambda choice: {"kill": choice.source.randint(0, 1)},
    lambda choice: {"kill": choice.source.randint(0, 1)},
    lambda choice: {"freeze": choice.source.randint(0, 1), "seconds": choice.one(3, 9, 18)},
    lambda choice: {"join": choice.one("od-0", "od-1", "spot-0")},
    lambda choice: {"lose pods": choice.source.randint(1, 3)},
    lambda choice: {"scheduler away": choice.one(10, 60, 200)},
    lambda choice: {"opt out": choice.one(*_OPT_OUTS), "for": choice.one(60, 300)},
    lambda choice: {"keep pods": choice.source.randint(1, 4), "for": choice.one(60, 200)},
    lambda choice: {"same name": choice.source.randint(0, 5)},
    lambda choice: {"watches silent": choice.one(20, 60, 140)},
    lambda choice: {"forbidden": choice.one("nodes", "pods", "poddisruptionbudgets"), "for": choice.one(20, 100)},
    lambda choice: {"pause": choice.one(30, 90)},
    lambda choice: {"requests fail": choice.one(500, 409, 0), "number": choice.source.randint(1, 8)},
    lambda choice: {"outranked": choice.source.randint(1, 3), "for": choice.one(60, 200)},
)


class Acts:
    """Lets the events of a course happen in *world*."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._store = world.store
        self._armed: list[Json] = []  #: events that happen in the next drain
        self.failing: list[int] = []  #: the codes with which the next requests fail; 0: no response
        self._store.listen("nodes", self._node_changed)

    def end(self) -> None:
        """Let nothing more happen."""
        self._armed.clear()
        self.failing.clear()

    def happen(self, entry: Json) -> None:
        """Do what *entry* says."""
        world = self._world
        match entry:
            case {"in a drain": _}:
                self._armed.append(entry)
            case {"kill": number}:
                world.daemons[number % len(world.daemons)].kill()
            case {"freeze": number, "seconds": seconds}:
                world.daemons[number % len(world.daemons)].freeze(seconds)
            case {"join": name}:
                like = self._store.get("nodes", name)
                if like is not None:
                    world.machines.join({**like, "metadata": {**like["metadata"], "annotations": {}}})
            case {"back": number}:
                self._move_back(number)
            case {"lose pods": number}:
                self._lose_pods(list(self._store.all("pods")), number)
            case {"opt out": key, "for": seconds}:
                for item in self._on_demand()[::2]:
                    self._annotate("nodes", item, key, seconds)
            case {"keep pods": number, "for": seconds}:
                for pod in list(self._store.all("pods"))[:: max(len(self._store.tables["pods"]) // number, 1)]:
                    self._annotate("pods", pod, "spot-rescheduler/do-not-evict", seconds)
            case {"same name": number}:
                if nodes := self._on_demand():
                    self._replace(nodes[number % len(nodes)])
            case {"watches silent": seconds}:
                world.network.silent_until = world.engine.now + seconds
            case {"forbidden": plural, "for": seconds}:
                world.network.forbidden[plural] = world.engine.now + seconds
            case {"requests fail": code, "number": number}:
                self.failing += [code] * number
            case {"pause": seconds}:
                named = (each for each in self._store.all("leases") if each["metadata"]["name"] == LEASE)
                if (lease := next(named, None)) is not None:
                    self._annotate("leases", lease, PAUSED, seconds)
            case {"scheduler away": seconds}:
                world.scheduling.pause(paused=True)
                world.engine.after(seconds, lambda: world.scheduling.pause(paused=False))
            case {"outranked": number, "for": seconds}:
                self._outrank(number, seconds)
            case _:
                Happening(0, {"at": "0s", **entry}, "course").happen(world)

    # The cluster

    def _on_demand(self) -> list[Json]:
        return [item for item in self._store.all("nodes") if self._world.is_on_demand(item)]

    def _move_back(self, number: int) -> None:
        """Add an on-demand node, and let *number* pods be created again while no spot node takes pods."""
        self._world.machines.join(LARGE, 5.0)

        def cordon(*, closed: bool) -> None:
            for item in self._store.all("nodes"):
                if self._world.is_spot(item):
                    self._edit("nodes", item, {"spec": {"unschedulable": closed or None}})

        def begin() -> None:
            cordon(closed=True)
            self._lose_pods(list(self._store.all("pods")), number)
            self._world.engine.after(10.0, lambda: cordon(closed=False))

        self._world.engine.after(6.0, begin)

    def _lose_pods(self, pods: list[Json], number: int) -> None:
        """Delete *number* of *pods*, as a user does."""
        alive = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
        for pod in alive[:: max(len(alive) // number, 1)][:number]:
            self._world.server.deletion.delete_pod(pod)

    def _outrank(self, number: int, seconds: float) -> None:
        """Let pods that preempt others run for *seconds*."""
        item = workload("Deployment", f"urgent-{self._store.revision}", number, "1500m")
        item["spec"]["template"]["spec"]["priorityClassName"] = "high"
        created = self._store.create("deployments", item)
        self._world.engine.after(seconds, lambda: self._edit("deployments", created, {"spec": {"replicas": 0}}))

    def _edit(self, plural: str, item: Json, change: Json) -> None:
        """Change *item* if it still exists."""
        current = self._store.get(plural, key_of(item))
        if current is not None and current["metadata"]["uid"] == item["metadata"]["uid"]:
            self._store.patch(plural, key_of(item), change)

    def _annotate(self, plural: str, item: Json, key: str, seconds: float) -> None:
        """Let *item* have the annotation *key* for *seconds*."""
        self._edit(plural, item, {"metadata": {"annotations": {key: "true"}}})
        change = {"metadata": {"annotations": {key: None}}}
        self._world.engine.after(seconds, lambda: self._edit(plural, item, change))

    def _replace(self, old: Json) -> None:
        """Delete a Node. Soon, another machine has a Node of the same name."""
        meta = {name: old["metadata"][name] for name in ("name", "labels")}
        new = {**old, "metadata": meta, "spec": {"providerID": f"{old['spec']['providerID']}-again"}}
        self._world.machines.end(old, "cloud")
        self._store.delete("nodes", meta["name"])
        self._world.engine.after(5.0, lambda: self._store.create("nodes", new))

    # In the middle of a drain

    def _node_changed(self, change: StoredChange) -> None:
        before, after = _step(change.before), _step(change.after.object)
        if change.type == "DELETED" or after == before:
            return
        name = change.after.object["metadata"]["name"]
        armed = next((each for each in self._armed if each["step"] == after), None)
        if armed is not None:
            self._armed.remove(armed)
            owners = {(controller_of(pod) or {}).get("uid", "") for pod in self._store.pods_of(name)} - {""}
            drain = _Drain(name, owners, self._world.engine.timestamp)
            self._world.engine.after(armed["after"], partial(self._interfere, armed, drain))

    def _interfere(self, entry: Json, drain: "_Drain") -> None:
        item = self._store.get("nodes", drain.node)
        if item is not None and _step(item):
            _IN_DRAINS[entry["in a drain"]](self, entry, drain, item)

    def _moved(self, drain: "_Drain") -> list[Json]:
        """Return the pods that replace pods of the drained node."""
        pods = (pod for uid in sorted(drain.owners) for pod in self._store.owned_by(uid))
        return [
            pod
            for pod in pods
            if pod["metadata"]["creationTimestamp"] >= drain.began
            and pod["spec"].get("nodeName", "") not in ("", drain.node)
        ]

    def untaint(self, _: Json, __: "_Drain", item: Json) -> None:
        taints = [each for each in item["spec"].get("taints") or () if each["key"] != DRAIN_TAINT.key]
        self._edit("nodes", item, {"spec": {"taints": taints or None}})

    def unmark(self, _: Json, __: "_Drain", item: Json) -> None:
        self._edit("nodes", item, {"metadata": {"annotations": {ANNOTATION: None}}})

    def mark_as_other(self, entry: Json, _: "_Drain", item: Json) -> None:
        mark = msgspec.json.decode(item["metadata"]["annotations"][ANNOTATION])
        text = msgspec.json.encode({**mark, "holder": "other", "identity": "other/other"}).decode()
        self._edit("nodes", item, {"metadata": {"annotations": {ANNOTATION: text}}})
        self._world.engine.after(entry["for"], lambda: self.unmark(entry, _, item))

    def keep_node(self, entry: Json, _: "_Drain", item: Json) -> None:
        self._annotate("nodes", item, _OPT_OUTS[entry["number"] % len(_OPT_OUTS)], entry["for"])

    def replace_node(self, _: Json, __: "_Drain", item: Json) -> None:
        self._replace(item)

    def turn_into_spot(self, _: Json, __: "_Drain", item: Json) -> None:
        labels = {"node-role.kubernetes.io/worker": None, "node-role.kubernetes.io/spot-worker": ""}
        self._edit("nodes", item, {"metadata": {"labels": labels}})

    def lose_moved(self, entry: Json, drain: "_Drain", _: Json) -> None:
        self._lose_pods(self._moved(drain), entry["number"])

    def restart_moved(self, _: Json, drain: "_Drain", __: Json) -> None:
        for pod in self._moved(drain):
            if pod["status"].get("containerStatuses"):
                self._world.kubelets.set_ready(pod, ready=False)
                self._world.engine.after(3.0, partial(self._restarted, key_of(pod), pod["metadata"]["uid"]))

    def _restarted(self, key: str, uid: str) -> None:
        pod = self._world.kubelets.current(key, uid)
        if pod is not None and not pod["metadata"].get("deletionTimestamp"):
            state = {"running": {"startedAt": self._world.engine.timestamp}}
            again = [
                {**each, "restartCount": each["restartCount"] + 1, "state": state}
                for each in pod["status"]["containerStatuses"]
            ]
            self._world.kubelets.set_ready(
                self._store.patch("pods", key, {"status": {"containerStatuses": again}}), ready=True
            )

    def lose_targets(self, entry: Json, drain: "_Drain", _: Json) -> None:
        for name in sorted({pod["spec"]["nodeName"] for pod in self._moved(drain)}):
            self._world.market.interrupt(name, with_notice=entry["number"] > 1)

    def silence_targets(self, entry: Json, drain: "_Drain", _: Json) -> None:
        for name in sorted({pod["spec"]["nodeName"] for pod in self._moved(drain)}):
            self._silence(name, entry["for"])

    def silence_others(self, entry: Json, drain: "_Drain", _: Json) -> None:
        for each in self._on_demand():
            if each["metadata"]["name"] != drain.node:
                self._silence(each["metadata"]["name"], entry["for"])

    def _silence(self, name: str, seconds: float) -> None:
        self._world.kubelets.stop(name, delete=False)
        self._world.engine.after(seconds, lambda: self._world.kubelets.revive(name))

    def add_pod(self, entry: Json, drain: "_Drain", __: Json) -> None:
        """Create another pod of an owner on the node, as for a pod that tolerates our taint."""
        owned = (pod for uid in sorted(drain.owners) for pod in self._store.owned_by(uid))
        if (like := next(owned, None)) is not None:
            meta = {name: like["metadata"][name] for name in ("namespace", "labels")}
            meta["name"] = f"late-{self._store.revision}"
            late = {"metadata": meta, "spec": {**like["spec"], "nodeName": drain.node}, "status": {}}
            key = key_of(self._store.create("pods", late))
            self._world.engine.after(entry["for"], lambda: self._store.delete("pods", key))

    def scale_owners(self, entry: Json, drain: "_Drain", _: Json) -> None:
        for plural, owner in self._owners(drain):
            more = owner["spec"].get("replicas", 1) + (entry["number"] if entry["for"] > 60 else -entry["number"])
            self._edit(plural, owner, {"spec": {"replicas": max(more, 0)}})

    def roll_owners_out(self, _: Json, drain: "_Drain", __: Json) -> None:
        for plural, owner in self._owners(drain):
            again = {"kubectl.kubernetes.io/restartedAt": self._world.engine.timestamp}
            self._edit(plural, owner, {"spec": {"template": {"metadata": {"annotations": again}}}})

    def stick_owners(self, entry: Json, drain: "_Drain", __: Json) -> None:
        for _, owner in self._owners(drain):
            self.happen({"stuck": key_of(owner), "for": f"{entry['for']}s"})

    def _owners(self, drain: "_Drain") -> list[tuple[str, Json]]:
        """Return the workloads whose pods were on the drained node."""
        found = {}
        for plural in ("replicasets", "statefulsets"):
            for item in self._store.all(plural):
                if item["metadata"]["uid"] in drain.owners:
                    above = controller_of(item)
                    key = f"{item['metadata']['namespace']}/{above['name']}" if above else key_of(item)
                    kind = PLURALS[str(above["kind"])] if above else plural
                    if (owner := self._store.get(kind, key)) is not None:
                        found[kind, key] = owner
        return [(kind, owner) for (kind, _), owner in sorted(found.items())]

    def kill(self, entry: Json, _: "_Drain", __: Json) -> None:
        for replica in self._world.daemons[: entry["number"]]:
            replica.kill()

    def outrank(self, entry: Json, _: "_Drain", __: Json) -> None:
        self._outrank(entry["number"], entry["for"])


@dataclass(frozen=True, slots=True)
class _Drain:
    """A drain of *node*; *owners* are the UIDs of the controllers of the pods on it, when its step began."""

    node: str
    owners: set[str]
    began: str


def _step(item: Json | None) -> str:
    """Return the step in the mark of a Node, or ""."""
    text = ((item or {"metadata": {}})["metadata"].get("annotations") or {}).get(ANNOTATION)
    return str(msgspec.json.decode(text).get("step", "")) if text else ""


_IN_DRAINS: Final[dict[str, Callable[[Acts, Json, _Drain, Json], None]]] = {
    each.__name__.replace("_", " "): each
    for each in (
        Acts.untaint,
        Acts.unmark,
        Acts.mark_as_other,
        Acts.keep_node,
        Acts.replace_node,
        Acts.turn_into_spot,
        Acts.lose_moved,
        Acts.restart_moved,
        Acts.lose_targets,
        Acts.silence_targets,
        Acts.silence_others,
        Acts.add_pod,
        Acts.scale_owners,
        Acts.roll_owners_out,
        Acts.stick_owners,
        Acts.kill,
        Acts.outrank,
    )
}
#: What ends a drain at once. It happens before orders only, so that most drains go on.
_OF_MARKS: Final = frozenset({"unmark", "mark as other"})

#: What a last look must see, between the intent and an order that is given again.
_AT_ORDERS: Final = (
    "untaint",
    "unmark",
    "mark as other",
    "keep node",
    "turn into spot",
    "lose moved",
    "restart moved",
    "silence targets",
    "silence others",
    "lose targets",
    "add pod",
    "kill",
)
