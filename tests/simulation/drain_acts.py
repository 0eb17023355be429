"""What others do to a drain: at a time in the middle of it, or right before a request of the daemon is carried out."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from predicates.snapshot import DRAIN_TAINT
from rescheduler.draining.actions import ANNOTATION, Intent, Step
from rescheduler.simulation.engine import Process
from rescheduler.simulation.eviction import is_ready
from rescheduler.simulation.requests import ApiRequest
from rescheduler.simulation.store import PLURALS, Json, StoredChange, controller_of, key_of
from rescheduler.simulation.world import World
from tests.simulation.acts import DO_NOT_EVICT, OPT_OUTS, Acts
from tests.simulation.worlds import budget

#: Another installation, and the taint of another client.
OTHERS, OTHERS_TAINT = "other/other", "example.com/other"

#: What a pod of the same name has, too.
_OF_POD: Final = ("name", "namespace", "labels", "annotations", "ownerReferences")

_ON_NODE: Final = "spec.nodeName="


@dataclass(frozen=True, slots=True)
class _Drain:
    """A drain of *node*; *owners* are the UIDs of the controllers of the pods on it when it began."""

    node: str
    owners: set[str]
    began: str


class DrainActs:
    """Lets events happen in drains. Each waits for the next drain that has its step, or its request in that step.

    Of the events that wait for a request, one happens in each step of a drain at most.
    """

    def __init__(self, world: World, acts: Acts) -> None:
        self._world = world
        self._acts = acts
        self._store = world.store
        self._timed: list[Json] = []
        self._at_calls: list[Json] = []
        self._drains: dict[str, _Drain] = {}  #: by node, in their order
        self._calls: Counter[tuple[str, str, str]] = Counter()  #: by UID of the node, step and request
        self._touched: set[tuple[str, str]] = set()  #: UID of the node, and step
        self._store.listen("nodes", self._node_changed)
        world.network.before = self._before

    def happen(self, entry: Json) -> None:
        """Do what *entry* says, now or in the next drain."""
        if "in a drain" not in entry:
            self._acts.happen(entry)
        elif "before" in entry:
            self._at_calls.append(entry)
        else:
            self._timed.append(entry)

    def end(self) -> None:
        """Let nothing more happen."""
        self._timed.clear()
        self._at_calls.clear()
        self._acts.failing.clear()

    def _node_changed(self, change: StoredChange) -> None:
        before, after = step_of(change.before), step_of(change.after.object)
        name = change.after.object["metadata"]["name"]
        if change.type == "DELETED" or not after:
            self._drains.pop(name, None)
            return
        if name not in self._drains:
            self._drains[name] = self._drain_of(name)
        timed = next((each for each in self._timed if each["step"] == after != before), None)
        if timed is not None:
            self._timed.remove(timed)
            self._world.engine.after(timed["after"], partial(self._interfere, timed, self._drains[name]))

    def _drain_of(self, name: str) -> _Drain:
        owners = {(controller_of(pod) or {}).get("uid", "") for pod in self._store.pods_of(name)} - {""}
        return _Drain(name, owners, self._world.engine.timestamp)

    def _interfere(self, entry: Json, drain: _Drain) -> None:
        item = self._store.get("nodes", drain.node)
        if item is not None and step_of(item):
            _IN_DRAINS[entry["in a drain"]](self, entry, drain, item)

    def _before(self, _: Process, request: ApiRequest) -> None:
        """Let an event happen that waits for *request*."""
        if not self._at_calls:
            return
        call, name = self._call(request)
        item = self._store.get("nodes", name)
        if item is None or not self._world.is_on_demand(item):
            return
        uid, step = item["metadata"]["uid"], step_of(item)
        self._calls[uid, step, call] += 1
        if (uid, step) in self._touched:
            return
        fits = (each for each in self._at_calls if (each["before"], each["step"]) == (call, step))
        entry = next((each for each in fits if each["skip"] < self._calls[uid, step, call]), None)
        if entry is not None:
            self._at_calls.remove(entry)
            self._touched.add((uid, step))
            _IN_DRAINS[entry["in a drain"]](self, entry, self._drains.get(name) or self._drain_of(name), item)

    def _call(self, request: ApiRequest) -> tuple[str, str]:
        """Return what *request* asks for, and the node that it is about; of the last drain if it names none."""
        target = self._world.server.target(request)
        last = next(reversed(self._drains), "")
        if target is None:
            return "", ""
        match request.method, target.plural:
            case "GET", "nodes":
                return "read node", target.name or last
            case "PATCH", "nodes":
                return "patch node", target.name
            case "POST", "pods" if target.subresource == "eviction":
                pod = self._store.get("pods", target.key)
                return "try eviction" if request.dry_run else "evict", (pod or {"spec": {}})["spec"].get("nodeName", "")
            case "GET", "pods":
                fields = request.query.get("fieldSelector", "")
                named = fields.startswith(_ON_NODE)
                return "read pods", fields.removeprefix(_ON_NODE).partition(",")[0] if named else last
            case "GET", "leases" | "deployments" | "replicasets" | "statefulsets":
                return "read others", last
        return "", ""

    def _moved(self, drain: _Drain) -> list[Json]:
        """Return the pods that replace pods of the drained node."""
        pods = (pod for uid in sorted(drain.owners) for pod in self._store.owned_by(uid))
        return [
            pod
            for pod in pods
            if pod["metadata"]["creationTimestamp"] >= drain.began
            and pod["spec"].get("nodeName", "") not in ("", drain.node)
        ]

    def untaint(self, _: Json, __: _Drain, item: Json) -> None:
        self._remove_taint(item, DRAIN_TAINT.key)

    def _remove_taint(self, item: Json, key: str) -> None:
        current = self._store.same("nodes", item["metadata"]["name"], item["metadata"]["uid"])
        taints = [each for each in (current or item)["spec"].get("taints") or () if each["key"] != key]
        self._acts.edit("nodes", item, {"spec": {"taints": taints or None}})

    def unmark(self, _: Json, __: _Drain, item: Json) -> None:
        self._acts.edit("nodes", item, {"metadata": {"annotations": {ANNOTATION: None}}})

    def mark_as_other(self, entry: Json, _: _Drain, item: Json) -> None:
        """Let another installation drain the node."""
        mark = Intent("other", Step(step_of(item) or Step.DRAINING), self._world.engine.time, identity=OTHERS)
        text = mark.dump()
        self._acts.edit("nodes", item, {"metadata": {"annotations": {ANNOTATION: text}}})
        self._world.engine.after(entry["for"], lambda: self.unmark(entry, _, item))

    def keep_node(self, entry: Json, _: _Drain, item: Json) -> None:
        self._acts.annotate("nodes", item, OPT_OUTS[entry["number"] % len(OPT_OUTS)], entry["for"])

    def replace_node(self, _: Json, __: _Drain, item: Json) -> None:
        self._acts.replace(item)

    def turn_into_spot(self, _: Json, __: _Drain, item: Json) -> None:
        labels = {"node-role.kubernetes.io/worker": None, "node-role.kubernetes.io/spot-worker": ""}
        self._acts.edit("nodes", item, {"metadata": {"labels": labels}})

    def lose_moved(self, entry: Json, drain: _Drain, _: Json) -> None:
        self._acts.lose_pods(self._moved(drain), entry["number"])

    def restart_moved(self, entry: Json, drain: _Drain, __: Json) -> None:
        """Let the containers of pods start again, at once or after some seconds."""
        for pod in self._moved(drain):
            if pod["status"].get("containerStatuses"):
                self._world.kubelets.set_ready(pod, ready=False)
                again = partial(self._restarted, key_of(pod), pod["metadata"]["uid"])
                if entry["number"] > 1:
                    again()
                else:
                    self._world.engine.after(3.0, again)

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

    def lose_targets(self, entry: Json, drain: _Drain, _: Json) -> None:
        for name in sorted({pod["spec"]["nodeName"] for pod in self._moved(drain)}):
            self._world.market.interrupt(name, with_notice=entry["number"] > 1)

    def silence_targets(self, entry: Json, drain: _Drain, _: Json) -> None:
        for name in sorted({pod["spec"]["nodeName"] for pod in self._moved(drain)}):
            self._acts.silence(name, entry["for"])

    def silence_others(self, entry: Json, drain: _Drain, _: Json) -> None:
        for each in self._acts.on_demand():
            if each["metadata"]["name"] != drain.node:
                self._acts.silence(each["metadata"]["name"], entry["for"])

    def add_pod(self, entry: Json, drain: _Drain, __: Json) -> None:
        """Create another pod of an owner on the node, as for a pod that tolerates our taint."""
        owned = (pod for uid in sorted(drain.owners) for pod in self._store.owned_by(uid))
        if (like := next(owned, None)) is not None:
            meta = {name: like["metadata"][name] for name in ("namespace", "labels")}
            meta["name"] = f"late-{self._store.revision}"
            late = {"metadata": meta, "spec": {**like["spec"], "nodeName": drain.node}, "status": {}}
            key = key_of(self._store.create("pods", late))
            self._world.engine.after(entry["for"], lambda: self._store.delete("pods", key))

    def touch_node(self, _: Json, __: _Drain, item: Json) -> None:
        """Let the Node have a new resourceVersion."""
        change = {"annotations": {"example.com/touched": str(self._store.revision)}}
        self._acts.edit("nodes", item, {"metadata": change})

    def taint_node(self, entry: Json, _: _Drain, item: Json) -> None:
        """Add the taint of another client for a while."""
        taints = [*(item["spec"].get("taints") or ()), {"key": OTHERS_TAINT, "effect": "PreferNoSchedule"}]
        self._acts.edit("nodes", item, {"spec": {"taints": taints}})
        self._world.engine.after(entry["for"], partial(self._remove_taint, item, OTHERS_TAINT))

    def cordon_node(self, entry: Json, _: _Drain, item: Json) -> None:
        self._cordon([item], entry["for"])

    def cordon_targets(self, entry: Json, _: _Drain, __: Json) -> None:
        """Cordon most spot nodes."""
        nodes = [each for each in self._store.all("nodes") if self._world.is_spot(each)]
        self._cordon(nodes[: -entry["number"]], entry["for"])

    def _cordon(self, nodes: list[Json], seconds: float) -> None:
        for each in nodes:
            self._acts.edit("nodes", each, {"spec": {"unschedulable": True}})
            uncordon = partial(self._acts.edit, "nodes", each, {"spec": {"unschedulable": None}})
            self._world.engine.after(seconds, uncordon)

    def register_again(self, entry: Json, _: _Drain, item: Json) -> None:
        """Replace the Node by one of the same name and machine. A restored one has all marks."""
        meta = {name: value for name, value in item["metadata"].items() if name in ("name", "labels")}
        restored = entry["number"] > 1
        spec = dict(item["spec"]) if restored else {"providerID": item["spec"]["providerID"]}
        if restored:
            meta["annotations"] = item["metadata"].get("annotations") or {}
        self._store.delete("nodes", meta["name"])
        self._store.create("nodes", {**item, "metadata": meta, "spec": spec})
        if spec["providerID"] in self._world.machines.ended:
            self._world.kubelets.stop(meta["name"])  # the cloud controller deletes this Node, too

    def remove_others(self, entry: Json, drain: _Drain, __: Json) -> None:
        """Let another client end the machines of all other on-demand nodes, except for some."""
        others = [each for each in self._acts.on_demand() if each["metadata"]["name"] != drain.node]
        for each in others[entry["number"] - 1 :]:
            self._world.machines.end(each, "cloud")
            self._world.kubelets.delete_node(each["metadata"]["name"], each["metadata"]["uid"])

    def turn_others_into_spot(self, entry: Json, drain: _Drain, __: Json) -> None:
        """Let all other on-demand nodes have the label of spot nodes for a while."""
        for each in self._acts.on_demand():
            if each["metadata"]["name"] != drain.node:
                self.turn_into_spot(entry, drain, each)
                labels = {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/spot-worker": None}
                back = partial(self._acts.edit, "nodes", each, {"metadata": {"labels": labels}})
                self._world.engine.after(entry["for"], back)

    def keep_pods(self, entry: Json, drain: _Drain, __: Json) -> None:
        for pod in self._store.pods_of(drain.node):
            self._acts.annotate("pods", pod, DO_NOT_EVICT, entry["for"])

    def edit_pods(self, _: Json, drain: _Drain, __: Json) -> None:
        for pod in self._store.pods_of(drain.node):
            change = {"annotations": {"example.com/touched": str(self._store.revision)}}
            self._acts.edit("pods", pod, {"metadata": change})

    def replace_pods(self, _: Json, drain: _Drain, __: Json) -> None:
        """Let each pod of the node be another one of the same name, which is not yet scheduled."""
        for pod in self._store.pods_of(drain.node):
            meta = {name: pod["metadata"][name] for name in _OF_POD if name in pod["metadata"]}
            spec = {name: value for name, value in pod["spec"].items() if name != "nodeName"}
            self._store.delete("pods", key_of(pod))
            self._store.create("pods", {"metadata": meta, "spec": spec, "status": {"phase": "Pending"}})

    def lock_pods(self, entry: Json, drain: _Drain, __: Json) -> None:
        """Add a budget that allows no disruption of a pod of the node."""
        for pod in [*self._store.pods_of(drain.node)][:1]:
            labels = pod["metadata"].get("labels") or {}
            name, namespace = f"locked-{self._store.revision}", pod["metadata"]["namespace"]
            item = budget(name, namespace=namespace, selector={"matchLabels": labels}, maxUnavailable=0)
            key = key_of(self._store.create("poddisruptionbudgets", item))
            self._world.engine.after(entry["for"], partial(self._store.delete, "poddisruptionbudgets", key))

    def unready_moved(self, entry: Json, drain: _Drain, __: Json) -> None:
        for pod in self._moved(drain):
            if is_ready(pod):
                self._world.kubelets.set_ready(pod, ready=False)
                key, uid = key_of(pod), pod["metadata"]["uid"]
                self._world.engine.after(entry["for"], partial(self._restarted, key, uid))

    def scale_owners(self, entry: Json, drain: _Drain, _: Json) -> None:
        for plural, owner in self._owners(drain):
            more = owner["spec"].get("replicas", 1) + (entry["number"] if entry["for"] > 60 else -entry["number"])
            self._acts.edit(plural, owner, {"spec": {"replicas": max(more, 0)}})

    def roll_owners_out(self, _: Json, drain: _Drain, __: Json) -> None:
        for plural, owner in self._owners(drain):
            again = {"kubectl.kubernetes.io/restartedAt": self._world.engine.timestamp}
            self._acts.edit(plural, owner, {"spec": {"template": {"metadata": {"annotations": again}}}})

    def stick_owners(self, entry: Json, drain: _Drain, __: Json) -> None:
        for _, owner in self._owners(drain):
            self._acts.happen({"stuck": key_of(owner), "for": f"{entry['for']}s"})

    def _owners(self, drain: _Drain) -> list[tuple[str, Json]]:
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

    def kill(self, entry: Json, _: _Drain, __: Json) -> None:
        for replica in self._world.daemons[: entry["number"]]:
            replica.kill()

    def freeze(self, entry: Json, _: _Drain, __: Json) -> None:
        """Let the daemon not run for about as long as its Lease lasts."""
        for replica in self._world.daemons[: entry["number"]]:
            replica.freeze(entry["for"] / 8)

    def outrank(self, entry: Json, _: _Drain, __: Json) -> None:
        self._acts.outrank(entry["number"], entry["for"])


def step_of(item: Json | None) -> str:
    """Return the step in the mark of a Node, or ""."""
    text = ((item or {"metadata": {}})["metadata"].get("annotations") or {}).get(ANNOTATION)
    return str(msgspec.json.decode(text).get("step", "")) if text else ""


_IN_DRAINS: Final[dict[str, Callable[[DrainActs, Json, _Drain, Json], None]]] = {
    each.__name__.replace("_", " "): each
    for each in (
        DrainActs.untaint,
        DrainActs.unmark,
        DrainActs.mark_as_other,
        DrainActs.keep_node,
        DrainActs.touch_node,
        DrainActs.taint_node,
        DrainActs.cordon_node,
        DrainActs.cordon_targets,
        DrainActs.register_again,
        DrainActs.replace_node,
        DrainActs.turn_into_spot,
        DrainActs.remove_others,
        DrainActs.turn_others_into_spot,
        DrainActs.keep_pods,
        DrainActs.edit_pods,
        DrainActs.replace_pods,
        DrainActs.lock_pods,
        DrainActs.lose_moved,
        DrainActs.restart_moved,
        DrainActs.unready_moved,
        DrainActs.lose_targets,
        DrainActs.silence_targets,
        DrainActs.silence_others,
        DrainActs.add_pod,
        DrainActs.scale_owners,
        DrainActs.roll_owners_out,
        DrainActs.stick_owners,
        DrainActs.kill,
        DrainActs.outrank,
        DrainActs.freeze,
    )
}

#: The names of all acts.
ACTS_IN_DRAINS: Final = tuple(_IN_DRAINS)
