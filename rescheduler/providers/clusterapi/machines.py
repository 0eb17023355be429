"""Groups of Machines, and which Machine goes when their replicas are lowered. No I/O.

Sources in sigs.k8s.io/cluster-api: ``core/reconcilers/machineset`` (``machineset_deletion_order.go``: which Machine
goes when replicas are lowered; ``syncReplicas``: how many), ``core/reconcilers/machinedeployment`` (which MachineSet
is lowered), ``api/core/v1beta2/common_types.go`` (annotations). In github.com/openshift/machine-api-operator:
``pkg/controller/machineset`` (``controller.go``, ``delete_policy.go``).
"""

import datetime as dt
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from predicates.objects.api import ObjectMeta
from rescheduler.providers.base import InstanceState, NodeGroup, ObjectVersion, Refusal, Refused
from rescheduler.providers.clusterapi.objects import (
    OPENSHIFT,
    ApiObjects,
    CapiMachine,
    Cluster,
    MachineApi,
    MachineStatus,
    Scaled,
)
from rescheduler.providers.fleet import OBJECT_PACE, UNLIMITED, SystemMachine, SystemView

#: How long a mark may be used for orders, in seconds. Each may take effect until OBJECT_PACE.settle after it was sent.
MARK_LIFE: Final = OBJECT_PACE.settle
#: How far the clocks of two hosts may differ, in seconds.
_SKEW: Final = 10.0

#: The annotation by which a MachineDeployment or MachineSet shows for which order it was lowered: the UID of the
#: Machine, the time of its mark, and the time of the change. It is written in the same request as the replicas.
REMOVED: Final = "spot-rescheduler/removed-machine"
#: The beginning of our marks, which continue with the time.
_OURS: Final = "spot-rescheduler "


_PAUSED: Final = "cluster.x-k8s.io/paused"
_REVISION: Final = "machinedeployment.clusters.x-k8s.io/revision"
_TOPOLOGY_NAME: Final = "topology.cluster.x-k8s.io/deployment-name"
_CONTROL_PLANE: Final = "cluster.x-k8s.io/control-plane"
_OPENSHIFT_ROLE: Final = "machine.openshift.io/cluster-api-machine-role"
_MIN_SIZE: Final = "cluster-api-autoscaler-node-group-min-size"
_MAX_SIZE: Final = "cluster-api-autoscaler-node-group-max-size"
#: By which HyperShift and Hive mark what they scale. Without autoscaling of theirs, they set the replicas themselves.
_NODE_POOL: Final = "hypershift.openshift.io/nodePool"
_HIVE_POOL: Final = "hive.openshift.io/machine-pool"


@dataclass
class MachineGroup:
    """A MachineDeployment, or a MachineSet of none, with its MachineSets and their Machines."""

    objects: ApiObjects
    kind: str
    scaled: Scaled
    cluster: Cluster | None
    sets: list[Scaled] = field(default_factory=list)
    alive: list[CapiMachine] = field(default_factory=list)  #: without those that are being deleted

    @property
    def id(self) -> str:
        kind = f"{self.kind}.{OPENSHIFT.group}" if self.objects.api is OPENSHIFT else self.kind
        return f"{kind}/{self.scaled.metadata.namespace}/{self.scaled.metadata.name}"

    @property
    def version(self) -> ObjectVersion:
        return self.objects.object(f"{self.kind.lower()}s", self.scaled.metadata)

    @property
    def replicas(self) -> int:
        return self.scaled.spec.replicas or 0

    @property
    def node_group(self) -> NodeGroup:
        """The limits are those of Cluster Autoscaler's annotations. Without them nothing is kept, and nothing added."""
        debug = f"{self.kind} {self.scaled.metadata.name}: {self.replicas} replicas"
        try:
            return NodeGroup(self.id, self._limit(_MIN_SIZE, 0), self._limit(_MAX_SIZE, self.replicas), debug)
        except ValueError:  # an obstacle
            return NodeGroup(self.id, self.replicas, self.replicas, debug)

    def _limit(self, name: str, missing: int) -> int:
        """Return the limit in an annotation. Raises ValueError."""
        name = f"{self.objects.api.group}/{name}"
        text = self.scaled.metadata.annotations.get(name, str(missing))
        if not (text.isascii() and text.isdigit()) or int(text) > UNLIMITED:
            raise ValueError(f"its annotation {name} is no number from 0 to {UNLIMITED}")
        return int(text)

    @cached_property
    def marked(self) -> Sequence[str]:
        """The names of Machines that go first by the marks of other clients."""
        marks = ((each.metadata.name, marks_of(each.metadata, self.objects.api).values()) for each in self.alive)
        return sorted(name for name, own in marks if any(not mark.startswith(_OURS) for mark in own))

    @cached_property
    def failed(self) -> Sequence[str]:
        """The names of Machines that the controllers may prefer to marked ones.

        Cluster API before 1.9 does so with unhealthy Machines. From 1.11 on, which serves v1beta2, none is preferred.
        """
        openshift = self.objects.api is OPENSHIFT
        fails = _has_error if openshift else _is_unhealthy
        if not openshift and self.objects.version != "v1beta1":
            return ()
        return sorted(each.metadata.name for each in self.alive if fails(each.status))

    @cached_property
    def obstacle(self) -> str:
        """Why the replicas must not be changed at present, or ""."""
        meta, spec = self.scaled.metadata, self.scaled.spec
        openshift = self.objects.api is OPENSHIFT
        cluster = self.cluster.metadata if self.cluster else None
        paused = [each for each in (cluster, meta, *(own.metadata for own in self.sets)) if each and is_paused(each)]
        topology = self.cluster.spec.topology.workers.machine_deployments if self.cluster else ()
        name = meta.labels.get(_TOPOLOGY_NAME)
        checks = {
            "it is being deleted": meta.deletion_timestamp is not None,
            "it has no spec.replicas": spec.replicas is None,
            "its Cluster does not exist": self.cluster is None and not openshift,
            "it or its Cluster is paused": paused or spec.paused or (self.cluster and self.cluster.spec.paused),
            "another API is in charge of it": self.scaled.status.authoritative_api not in ("", "MachineAPI"),
            "its Cluster sets its replicas in spec.topology, and would raise them again; leave them unset there": any(
                each.name == name and each.replicas is not None for each in topology
            ),
            "another object controls it, and sets its replicas": self._is_controlled(),
            "a roll-out is in progress": self._rolls_out(),
            # The priority of a Machine that is older than a year is that of a mark.
            "its deletePolicy is Oldest, which may prefer another Machine to a marked one": openshift
            and spec.delete_policy == "Oldest",
        }
        try:
            self._limit(_MIN_SIZE, 0), self._limit(_MAX_SIZE, 0)
        except ValueError as error:
            return str(error)
        return next((why for why, holds in checks.items() if holds), "")

    def _is_controlled(self) -> bool:
        meta, owner = self.scaled.metadata, self.scaled.metadata.controller
        pooled = _NODE_POOL in meta.annotations or _HIVE_POOL in meta.labels
        limit = meta.annotations.get(f"{self.objects.api.group}/{_MAX_SIZE}", "0")
        return owner is not None or (pooled and limit == "0")

    def _rolls_out(self) -> bool:
        """Return whether Machines are of several MachineSets, or of one that is not the newest: another may shrink."""
        used = {owner.uid for each in self.alive if (owner := each.metadata.controller)}
        used |= {each.metadata.uid for each in self.sets if each.spec.replicas}
        newest = max((_revision(each) for each in self.sets), default=0)
        return len(used) > 1 or any(each.metadata.uid in used and _revision(each) < newest for each in self.sets)

    def unsettled(self) -> str:
        """Return why the controllers have not brought the Machines to the replicas, or "".

        Otherwise lowering the replicas by one may end no Machine, or two: CAPI counts those that are being deleted, and
        creates their replacements later.
        """
        behind = (each for each in (self.scaled, *self.sets) if not each.status.has_observed(each.metadata))
        if any(behind):
            return "its controller has not seen its last change"
        wants = sum(each.spec.replicas or 0 for each in self.sets)
        if len(self.alive) != self.replicas or wants != self.replicas:
            return f"it has {len(self.alive)} Machines and wants {self.replicas}"
        return ""


def _has_error(status: MachineStatus) -> bool:
    return bool(status.error_reason or status.error_message)


def _is_unhealthy(status: MachineStatus) -> bool:
    """Return whether Cluster API before 1.9 counts the Machine as unhealthy."""
    failed = status.node_ref is None or status.failure_reason is not None or status.failure_message is not None
    types = ("NodeHealthy", "HealthCheckSucceeded")
    return failed or any(each.type in types and each.status == "False" for each in status.conditions)


def is_paused(meta: ObjectMeta) -> bool:
    return _PAUSED in meta.annotations


def _revision(each: Scaled) -> int:
    text = each.metadata.annotations.get(_REVISION, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < len(str(UNLIMITED)) else 0


# The marks of Machines that go first when replicas are lowered. Ours are orders, each with its time.


def marks_of(meta: ObjectMeta, api: MachineApi) -> Mapping[str, str]:
    """Return the marks of a Machine by their annotations. For OpenShift, an empty one is none."""
    found = {name: meta.annotations[name] for name in api.marks if name in meta.annotations}
    return {name: mark for name, mark in found.items() if mark or api is not OPENSHIFT}


def new_mark(now: dt.datetime) -> str:
    return f"{_OURS}{now.isoformat()}"


def removed(uid: str, mark: str, now: dt.datetime) -> str:
    """Return the value of :data:`REMOVED` for the order *mark* of the Machine *uid*."""
    return f"{uid} {mark.removeprefix(_OURS)} {now.isoformat()}"


def _age(text: str, now: dt.datetime) -> float | None:
    """Return how many seconds ago the time *text* was, or None if it is none."""
    try:
        return (now - dt.datetime.fromisoformat(text)).total_seconds()
    except (ValueError, TypeError):  # no time, or one without a zone
        return None


@dataclass(frozen=True, slots=True)
class Removal:
    """How a Machine is removed."""

    group: MachineGroup
    machine: ObjectVersion | None = None  #: None: one that its MachineSet has not created yet
    deleted: bool = False  #: its deletion was requested
    mark: str = ""  #: ours, or ""
    annotations: Sequence[str] = ()  #: with our mark
    age: float = 0.0  #: of our mark, in seconds
    lowered: float | None = None  #: how many seconds ago the replicas were lowered for our mark; None: they were not

    def unsettled(self) -> str:
        """Return why lowering the replicas by one would not end this Machine alone, or ""."""
        if self.machine is None:  # a Machine fewer is created
            return ""
        if self.deleted:
            return "the Machine is already being deleted"
        api = self.group.objects.api
        own = self.machine.path.rpartition("/")[2]
        if own in self.group.marked:
            return f"another client has marked Machine {own}"
        marked = sorted(each.metadata.name for each in self.group.alive if marks_of(each.metadata, api))
        if rivals := [name for name in marked if name != own]:
            return f"Machine {rivals[0]} is marked and would go instead"
        return self.group.unsettled()

    @property
    def in_progress(self) -> bool:
        """Whether the order is with the controllers. It is not if other clients have raised the replicas again."""
        excess = len(self.group.alive) > self.group.replicas
        return self.lowered is not None and (excess or self.lowered < OBJECT_PACE.settle)

    @property
    def stale(self) -> bool:
        """Whether our mark can have no effect but a wrong one: if other clients lower the replicas.

        Orders are repeated with the same mark. So its age is not that of the last one, which may still take effect.
        """
        settled = self.age >= MARK_LIFE + OBJECT_PACE.settle + _SKEW
        return bool(self.mark) and not self.deleted and settled and not self.in_progress


@dataclass(frozen=True, slots=True)
class FleetState:
    """What was read at one time."""

    view: SystemView
    groups: Mapping[str, MachineGroup]  #: by ID
    removals: Mapping[str, Removal]  #: by the key of the Machine
    keys: Mapping[str, str]  #: of Machines, by provider ID


def state_of(found: Sequence[ApiObjects], now: dt.datetime) -> FleetState:
    groups: dict[str, MachineGroup] = {}
    machines: list[SystemMachine] = []
    removals: dict[str, Removal] = {}
    keys: dict[str, list[str]] = defaultdict(list)
    for objects in found:
        for machine in objects.machines:
            keys[machine.spec.provider_id or ""].append(objects.api.key(machine.metadata))
    for objects in found:
        of_set = groups_by_set(objects)
        groups |= {group.id: group for group in of_set.values()}
        for machine in objects.machines:
            key, owner = objects.api.key(machine.metadata), machine.metadata.controller
            group = of_set.get(owner.uid) if owner is not None else None
            if group is not None:
                removals[key] = _removal(machine, group, now)
            protected = _protection(machine, removals.get(key), keys[machine.spec.provider_id or key])
            machines.append(_system_machine(key, objects, machine, removals.get(key), protected))
    for group in groups.values():
        for number in range(group.replicas - len(group.alive)):
            removals[f"{group.id}#{number}"] = Removal(group)
            machines.append(SystemMachine(f"{group.id}#{number}", "", group.id, InstanceState.CREATING))
    view = SystemView([group.node_group for group in groups.values()], machines)
    return FleetState(view, groups, removals, {each: own[0] for each, own in keys.items() if each and len(own) == 1})


def groups_by_set(objects: ApiObjects) -> Mapping[str, MachineGroup]:
    """Return the groups by the UIDs of their MachineSets, with their Machines that are not being deleted."""
    clusters = {(each.metadata.namespace, each.metadata.name): each for each in objects.clusters}
    groups: dict[str, MachineGroup] = {}

    def group(kind: str, scaled: Scaled) -> MachineGroup:
        cluster = clusters.get((scaled.metadata.namespace, scaled.spec.cluster_name))
        return groups.setdefault(scaled.metadata.uid, MachineGroup(objects, kind, scaled, cluster))

    deployments = {each.metadata.uid: each for each in objects.deployments}
    of_set: dict[str, MachineGroup] = {}
    for each in objects.sets:
        owner = each.metadata.controller
        if owner is None or owner.kind != "MachineDeployment":
            of_set[each.metadata.uid] = group("MachineSet", each)
        elif owner.uid in deployments:
            of_set[each.metadata.uid] = group("MachineDeployment", deployments[owner.uid])
    for uid, each in {each.metadata.uid: each for each in objects.sets if each.metadata.uid in of_set}.items():
        of_set[uid].sets.append(each)
    for machine in objects.machines:
        owner = machine.metadata.controller
        if owner is not None and owner.uid in of_set and machine.metadata.deletion_timestamp is None:
            of_set[owner.uid].alive.append(machine)
    return of_set


def _removal(machine: CapiMachine, group: MachineGroup, now: dt.datetime) -> Removal:
    meta = machine.metadata
    ours = {name: mark for name, mark in marks_of(meta, group.objects.api).items() if mark.startswith(_OURS)}
    mark = next(iter(ours.values()), "")
    age = _age(mark.removeprefix(_OURS), now) if ours else None
    version = group.objects.object("machines", meta)
    deleted = meta.deletion_timestamp is not None
    if age is None:
        return Removal(group, version, deleted)
    order, _, at = group.scaled.metadata.annotations.get(REMOVED, "").rpartition(" ")
    ordered = order == removed(meta.uid, mark, now).rpartition(" ")[0]
    return Removal(group, version, deleted, mark, tuple(ours), age, _age(at, now) if ordered else None)


def _protection(machine: CapiMachine, removal: Removal | None, sharing: Sequence[str]) -> Refused | None:
    """Return why the Machine must not be removed, or None. *sharing* are the Machines with its provider ID."""
    meta, name = machine.metadata, machine.metadata.name
    if _CONTROL_PLANE in meta.labels or meta.labels.get(_OPENSHIFT_ROLE) == "master":
        return Refused(Refusal.CONTROL_PLANE, f"Machine {name} belongs to the control plane")
    if removal is None:
        owner = meta.controller
        if owner is not None and owner.kind == "MachinePool":
            why = f"Machine {name} belongs to a MachinePool, whose infrastructure chooses the machine that ends"
            return Refused(Refusal.NOT_IN_GROUP, why)
        return Refused(Refusal.NOT_IN_GROUP, f"Machine {name} belongs to no MachineSet")
    if len(sharing) > 1:
        return Refused(Refusal.AMBIGUOUS, f"several Machines have its provider ID: {', '.join(sorted(sharing))}")
    group = removal.group
    if is_paused(meta):
        return Refused(Refusal.PROTECTED, f"Machine {name} is paused")
    why = group.obstacle
    if not why and group.marked:
        why = f"another client has marked Machine {group.marked[0]}, which would go instead"
    if not why and (failed := [each for each in group.failed if each != name]):
        why = f"Machine {failed[0]} has failed or is not ready, and may go instead"
    return Refused(Refusal.PROTECTED, f"{group.kind} {group.scaled.metadata.name}: {why}") if why else None


def _system_machine(
    key: str, objects: ApiObjects, machine: CapiMachine, removal: Removal | None, protected: Refused | None
) -> SystemMachine:
    meta, node = machine.metadata, machine.status.node_ref
    ends = meta.deletion_timestamp is not None or (removal is not None and removal.in_progress)
    state = InstanceState.RUNNING if node is not None else InstanceState.CREATING
    return SystemMachine(
        key,
        machine.spec.provider_id or "",
        removal.group.id if removal is not None else "",
        InstanceState.DELETING if ends else state,
        names=frozenset({node.name} if node is not None else ()),
        protected=protected,
        object=objects.object("machines", meta),
    )
