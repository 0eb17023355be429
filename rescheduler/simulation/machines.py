"""The machines of the cluster's nodes, and the cloud that has them: orders to end and start machines, spot losses."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from predicates.snapshot import DRAIN_TAINT
from rescheduler.clock import Clock
from rescheduler.errors import BackendUnavailable, ReschedulerError, Withheld
from rescheduler.housekeeping.node_writes import SOFT_TAINT
from rescheduler.providers.base import (
    Accepted,
    AlreadyGone,
    Deleted,
    DeleteOutcome,
    Failed,
    MayEnd,
    NodeGroup,
    NodeRef,
    Refusal,
    Refused,
    any_may_end,
    below_minimum,
)
from rescheduler.providers.none import NoProvider
from rescheduler.simulation.kubelet import Kubelets
from rescheduler.simulation.store import Json, Store

_ZONE: Final = "topology.kubernetes.io/zone"

_INTERRUPTED: Final = "aws-node-termination-handler/spot-itn"
#: Taints of a single node: of its state, of a drain, of an interruption, and the one that the daemon maintains.
_PASSING: Final = ("node.kubernetes.io/", _INTERRUPTED, DRAIN_TAINT.key, SOFT_TAINT.key)

#: Seconds from an order until a machine is gone, and until a new one has joined the cluster.
_END_SECONDS, JOIN_SECONDS = 20.0, 90.0


@dataclass(frozen=True, slots=True)
class Termination:
    """A machine that was ended: when that was ordered, and by whom."""

    at: float
    node: str
    machine: str
    by: str  #: ``daemon``, ``autoscaler`` or ``cloud``


@dataclass(slots=True)
class Machines:
    """All machines. One that ends takes its kubelet along, and later its Node."""

    store: Store
    kubelets: Kubelets
    ended: dict[str, float] = field(default_factory=dict)  #: by provider ID: when it ended
    ordered: set[str] = field(default_factory=set)  #: provider IDs of machines whose end has been accepted
    terminations: list[Termination] = field(default_factory=list)
    on_end: list[Callable[[Termination], object]] = field(default_factory=list)
    _number: int = 0

    def end(self, node: Json, by: str, ordered: float | None = None) -> None:
        """End the machine of *node*, as was *ordered* at that time; by default, now."""
        name, machine = node["metadata"]["name"], node["spec"].get("providerID", "")
        if machine in self.ended:
            return
        now = self.ended[machine] = self.store.engine.now
        termination = Termination(now if ordered is None else ordered, name, machine, by)
        self.terminations.append(termination)
        for listener in self.on_end:
            listener(termination)
        self.store.engine.after(_END_SECONDS if by != "cloud" else 0.0, lambda: self.kubelets.stop(name))

    def join(self, like: Json, seconds: float = JOIN_SECONDS) -> str:
        """Start a machine with a Node like *like*, which joins after *seconds*. Return its name."""
        self._number += 1
        meta = like["metadata"]
        name = f"{meta['name'].partition('.')[0].partition('-new-')[0]}-new-{self._number}"
        labels = {**(meta.get("labels") or {}), "kubernetes.io/hostname": name}
        zone = labels.get(_ZONE, "zone")
        spec = {"providerID": f"simulated:///{zone}/i-{self._number:08x}", "taints": lasting_taints(like)}
        ready = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
        status = {
            "allocatable": like["status"]["allocatable"],
            "capacity": like["status"].get("capacity", {}),
            "conditions": ready,
        }
        item = {"metadata": {"name": name, "labels": labels, "annotations": {}}, "spec": spec, "status": status}
        driver = self.store.get("csinodes", meta["name"])

        def joined() -> None:
            self.store.create("nodes", item)
            if driver is not None:
                self.store.create("csinodes", {"metadata": {"name": name}, "spec": driver["spec"]})

        self.store.engine.after(seconds, joined)
        return name


def lasting_taints(node: Json) -> list[Json]:
    """Return the taints of *node* that another machine of its pool has, too."""
    return [taint for taint in node["spec"].get("taints") or () if not taint.get("key", "").startswith(_PASSING)]


@dataclass(frozen=True, slots=True)
class PoolFaults:
    """What the cloud's API does wrong: shares of calls."""

    unavailable: float = 0.0
    slow: float = 0.0  #: an order is accepted, and carried out minutes later
    failed: float = 0.0


class SimulatedPool(NoProvider):
    """The provider of a pool of on-demand machines: one group with all of them."""

    name = "simulated"

    def __init__(
        self, machines: Machines, clock: Clock, is_on_demand: Callable[[Json], bool], faults: PoolFaults, least: int = 0
    ) -> None:
        self._machines = machines
        self._clock = clock
        self._is_on_demand = is_on_demand
        self._faults = faults
        self._least = least
        self._random = machines.store.engine.random("pool")

    def refresh(self, *, deadline: float) -> None:  # noqa: ARG002 - the protocol's
        if self._random.random() < self._faults.unavailable:
            raise BackendUnavailable("the pool does not respond")

    def group_for(self, node: NodeRef, *, deadline: float) -> NodeGroup | None:  # noqa: ARG002 - the protocol's
        if node.on_control_plane or not node.provider_id:
            return None
        return NodeGroup("on-demand", self._least, 1000)

    def refusals(self, group: str, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, Refused]:  # noqa: ARG002
        found = {}
        for place, node in enumerate(nodes, 1):
            if (refused := below_minimum(group, self._least, self._size() - place)) is not None:
                found[node.name] = refused
        return found

    def _size(self) -> int:
        alive = (node for node in self._machines.store.all("nodes") if self._is_on_demand(node))
        return sum(node["spec"].get("providerID", "") not in self._machines.ended for node in alive)

    def has_instance(self, node: NodeRef, *, deadline: float) -> bool | None:  # noqa: ARG002 - the protocol's
        return node.provider_id not in self._machines.ended

    def delete_nodes(
        self,
        group: str,
        nodes: Sequence[NodeRef],
        *,
        deadline: float,  # noqa: ARG002
        may_end: MayEnd = any_may_end,
    ) -> Mapping[str, DeleteOutcome]:
        return {node.name: self._delete(group, node, may_end) for node in nodes}

    def _delete(self, group: str, node: NodeRef, may_end: MayEnd) -> DeleteOutcome:
        engine = self._machines.store.engine
        since = self._machines.ended.get(node.provider_id)
        if since is not None:
            return Deleted() if engine.now - since >= _END_SECONDS else Accepted("the machine is being terminated")
        if node.provider_id in self._machines.ordered:
            return Accepted("the order is in progress")
        item = self._machines.store.get("nodes", node.name)
        if item is None or item["spec"].get("providerID") != node.provider_id:
            return AlreadyGone()
        if (refused := below_minimum(group, self._least, self._size() - 1)) is not None:
            return refused
        try:
            may_end(node)
            if self._random.random() < self._faults.failed:  # the request did not arrive, so it is sent again
                self._clock.wait(self._random.uniform(3.0, 8.0), threading.Event())
                may_end(node)
        except Withheld as error:
            return Refused(Refusal.WITHHELD, str(error))
        except ReschedulerError as error:
            return Failed(str(error), retryable=True)
        slow = self._random.random() < self._faults.slow
        if slow:
            ordered = engine.now
            self._machines.ordered.add(node.provider_id)
            engine.after(self._random.uniform(20, 120), lambda: self._machines.end(item, "daemon", ordered))
            return Accepted("the order is in progress")
        self._machines.end(item, "daemon")
        return Accepted("the machine is being terminated")


@dataclass(slots=True)
class SpotMarket:
    """Interruptions of spot machines, and capacity that comes back.

    *losses_per_node_day* is the rate at which a node is lost, unless *pool_losses* has another one for its pool. A
    share of *correlated* losses takes the node's pool along: each other node of it is lost with a probability of one
    half, within three minutes.
    """

    machines: Machines
    is_spot: Callable[[Json], bool]
    pool_of: Callable[[Json], str]
    losses_per_node_day: float = 0.0
    pool_losses: Mapping[str, float] = field(default_factory=dict)
    correlated: float = 0.1
    notice_seconds: float = 120.0
    noticed: float = 0.9  #: the share of interruptions with a notice
    back_after: tuple[float, float] = (300.0, 3600.0)  #: seconds until a lost machine is replaced
    lost: int = 0

    def start(self) -> None:
        """Draw the losses of all spot nodes, and of those that join later."""
        store = self.machines.store
        store.listen("nodes", lambda change: self._watch(change.after.object) if change.type == "ADDED" else None)
        for node in store.all("nodes"):
            self._watch(node)

    def _watch(self, node: Json) -> None:
        rate = self.pool_losses.get(self.pool_of(node), self.losses_per_node_day) if self.is_spot(node) else 0.0
        if not rate:
            return
        engine, name = self.machines.store.engine, node["metadata"]["name"]
        # Its own source, so that a node is lost at the same time whatever happens to the others.
        seconds = engine.random(f"loss of {name}").expovariate(rate / 86400.0)
        uid = node["metadata"]["uid"]
        engine.after(seconds, lambda: self._due(name, uid))

    def _due(self, name: str, uid: str) -> None:
        engine = self.machines.store.engine
        source = engine.random(f"kind of loss of {name}")
        node = self.machines.store.same("nodes", name, uid)
        if node is None:
            return
        self.interrupt(name, with_notice=source.random() < self.noticed)
        if source.random() < self.correlated:
            pool = self.pool_of(node)
            for other in self.machines.store.all("nodes"):
                if self.is_spot(other) and self.pool_of(other) == pool and source.random() < 1 / 2:
                    other_name = other["metadata"]["name"]
                    engine.after(source.uniform(0, 180), partial(self.interrupt, other_name))

    def interrupt(self, name: str, *, with_notice: bool = True) -> None:
        """Let the cloud take the machine of spot node *name*, with a notice two minutes before or without."""
        node = self.machines.store.get("nodes", name)
        if node is None or node["spec"].get("providerID", "") in self.machines.ended:
            return
        uid, engine = node["metadata"]["uid"], self.machines.store.engine
        if with_notice:
            taint = {
                "key": _INTERRUPTED,
                "value": f"simulated-{int(engine.now)}",
                "effect": "NoSchedule",
            }
            taints = [*(node["spec"].get("taints") or ()), taint]
            self.machines.store.patch("nodes", name, {"spec": {"unschedulable": True, "taints": taints}})
        engine.after(self.notice_seconds if with_notice else 0.0, lambda: self._take(name, uid))

    def _take(self, name: str, uid: str) -> None:
        node = self.machines.store.same("nodes", name, uid)
        if node is None or node["spec"].get("providerID", "") in self.machines.ended:
            return
        self.lost += 1
        self.machines.end(node, "cloud")
        seconds = self.machines.store.engine.random(f"return of {name}").uniform(*self.back_after)
        self.machines.join(node, seconds)
