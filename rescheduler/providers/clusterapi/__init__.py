"""The cloud provider for Machines of Cluster API, and of OpenShift's Machine API.

A Machine is removed as Cluster Autoscaler does it: it gets the annotation that lets it go first, and then the replicas
of its MachineDeployment or MachineSet are lowered by one; the controllers delete the Machine. Unlike there, the
replicas are lowered only if nothing has changed since they were read, and in the same request they get an annotation
that names the order. So replicas are lowered once for each order, also if responses are lost or processes are killed.
It is imported by name when it is selected.
"""

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from rescheduler.clock import Clock
from rescheduler.errors import AuthError, BackendUnavailable, ConfigError, Permanent, ReschedulerError
from rescheduler.net.config_files import Section, read
from rescheduler.net.http_errors import Missing, NoResponse, Unsent
from rescheduler.providers.base import (
    CloudProvider,
    NodeGroup,
    NodeRef,
    NodeTemplate,
    NotSupported,
    ObjectVersion,
    Refusal,
    Refused,
    Unserved,
)
from rescheduler.providers.clusterapi.machines import (
    MARK_LIFE,
    REMOVED,
    FleetState,
    Removal,
    new_mark,
    removed,
    state_of,
)
from rescheduler.providers.clusterapi.objects import APIS, ApiObjects, CapiMachine, Cluster, MachineApi, Scaled
from rescheduler.providers.fleet import OBJECT_PACE, SystemMachine, SystemView
from rescheduler.providers.fleet.objects import ObjectProvider, ObjectSystem

T = TypeVar("T", bound=msgspec.Struct)

#: How long an order may take from the caller's last look on, in seconds. Later, the caller is asked again.
_PROMPTLY: Final = 10.0

#: How long a refresh may wait to remove marks, in seconds. After a failure, none are removed for OBJECT_PACE.settle.
_UNMARKING: Final = 2.0

log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class ClusterApiFile(Section, frozen=True, kw_only=True):
    """The ``--cloud-config`` file."""

    kubeconfig: str = ""  #: of the management cluster, if it is another one; relative to the file
    namespace: str = ""  #: of the Machines; default: all
    cluster: str = ""  #: the name of the Cluster whose nodes are drained; default: all


def load(config: Path | None, clock: Clock) -> CloudProvider:
    """Load the provider. Raises ConfigError that names the file and the key."""
    file = ClusterApiFile() if config is None else read(config, ClusterApiFile, may_be_empty=False)
    for key in ("namespace", "cluster"):
        name = getattr(file, key)
        if name and not _NAME.fullmatch(name):
            raise ConfigError(f"cloud configuration {config}: {key}: expected a name of Kubernetes, got {name!r}")
    if config is not None and file.kubeconfig:
        path = config.parent / file.kubeconfig
        try:
            path.open().close()
        except OSError as error:
            raise ConfigError(f"cloud configuration {config}: kubeconfig: {path}: {error.strerror}") from error
    return ClusterApiProvider(file, clock, config.parent if config is not None else Path())


class ClusterApiSystem(ObjectSystem):
    """Cluster API as a fleet. A machine's key is the API group, the namespace and the name of its Machine."""

    name = "clusterapi"
    kind, manager, group_kind = "Machine", "Cluster API", "MachineSet"

    def __init__(self, file: ClusterApiFile, clock: Clock) -> None:
        super().__init__(clock)
        self._file = file
        keys = {"namespace": file.namespace, "cluster": file.cluster}
        self.selected = " and ".join(f"the {key} {value}" for key, value in keys.items() if value)
        self._served = set[MachineApi]()  #: to this process
        self.state = FleetState(SystemView((), ()), {}, {}, {})  #: as last read

    def read(self, *, deadline: float) -> SystemView:
        found, denied = list[ApiObjects](), None
        for api in APIS:
            try:
                each = self._objects_of(api, deadline)
            except AuthError as error:
                if api in self._served:
                    raise
                denied = error  # also of a group that is not served
                continue
            if each is not None:
                found.append(each)
            elif api in self._served:  # its Machines have not gone
                raise BackendUnavailable(f"clusterapi: the API server does not serve {api.group} any more")
        if not found:
            if denied is not None:
                raise denied
            groups = " nor of ".join(api.group for api in APIS)
            raise Permanent(f"clusterapi: the API server serves neither machines of {groups}")
        self.state = state_of(found, self._clock.now())
        return self.state.view

    def _objects_of(self, api: MachineApi, deadline: float) -> ApiObjects | None:
        """Return the objects of *api* in the newest version that is served, or None."""
        for version in api.versions:
            with suppress(Unserved):
                machines = self._all(api, version, "machines", CapiMachine, deadline)
                self._served.add(api)
                sets = self._all(api, version, "machinesets", Scaled, deadline)
                if not api.has_clusters:
                    return ApiObjects(api, version, machines, sets)
                deployments = self._all(api, version, "machinedeployments", Scaled, deadline)
                clusters = self._all(api, version, "clusters", Cluster, deadline)
                return ApiObjects(api, version, machines, sets, deployments, clusters)
        return None

    def _all(self, api: MachineApi, version: str, plural: str, shape: type[T], deadline: float) -> list[T]:
        namespace = f"namespaces/{self._file.namespace}/" if self._file.namespace else ""
        path = f"/apis/{api.group}/{version}/{namespace}{plural}"
        found = self.connected().all(path, shape, seconds=self.seconds(deadline))
        wanted = ("", self._file.cluster)
        return [each for each in found if not wanted[1] or getattr(each.spec, "cluster_name", "") in wanted]  # type: ignore[attr-defined]

    def key_of(self, node: NodeRef) -> str | None:
        """Return the key of the Machine with the Node's provider ID, or of the one that its annotations name."""
        known = self.state.keys.get(node.provider_id)
        return known or next(filter(None, (api.key_of(node) for api in APIS)), node.provider_id) or None

    def contradiction(self, node: NodeRef, machine: SystemMachine) -> str:
        if node.provider_id and machine.id and node.provider_id != machine.id:
            return f"its Machine has the provider ID {machine.id}"
        return super().contradiction(node, machine)

    def delete(self, machine: SystemMachine, *, deadline: float) -> None:
        """Mark the Machine, and lower the replicas. Raises Unsent while the controllers have not settled."""
        removal = self._ready(machine.key)
        if removal.machine is None:  # none that exists goes
            self._change(removal.group.version, {"spec": {"replicas": removal.group.replicas - 1}}, deadline)
            return
        mark, promptly = removal.mark, min(deadline, self._clock.monotonic() + _PROMPTLY)
        if not mark or removal.lowered is not None or removal.stale:  # the same order is never sent twice
            mark = new_mark(self._clock.now())
            self._set_mark(removal, mark, promptly)
        elif abs(removal.age) > MARK_LIFE - _PROMPTLY:  # of the future: by another clock
            raise Unsent(f"clusterapi: {removal.group.id}: an earlier order for the Machine may still take effect")
        try:
            self._lower(machine, mark, promptly)
        except NoResponse:
            raise  # it may be lowered: the mark stays
        except ReschedulerError:
            if mark != removal.mark:  # otherwise an earlier request may still take effect
                with suppress(ReschedulerError):
                    self.read(deadline=deadline)
                    self.unmark([machine.key], deadline)
            raise

    def _lower(self, machine: SystemMachine, mark: str, deadline: float) -> None:
        """Read again, because others may have marked Machines or changed replicas meanwhile, and lower the replicas."""
        view = self.read(deadline=deadline)
        removal = self._ready(machine.key)
        group = removal.group
        joined = machine.names != next(each.names for each in view.machines if each.key == machine.key)
        changes = {
            "the node of the Machine has joined, or is another one": joined,
            "the mark of the Machine has gone, or is another one": removal.mark != mark,
            f"it is at its minimum size of {group.node_group.min_size}": group.replicas <= group.node_group.min_size,
        }
        if why := next((why for why, holds in changes.items() if holds), ""):
            raise Unsent(f"clusterapi: {group.id}: {why}")
        assert removal.machine is not None
        order = removed(removal.machine.uid, mark, self._clock.now())
        change = {"metadata": {"annotations": {REMOVED: order}}, "spec": {"replicas": group.replicas - 1}}
        self._change(group.version, change, deadline)

    def _ready(self, key: str) -> Removal:
        """Return how the Machine is removed. Raises Unsent if it cannot be at present."""
        removal = self.state.removals.get(key)
        if removal is None:
            raise Unsent(f"clusterapi: {key} was not listed")
        if why := removal.group.obstacle or removal.unsettled():
            raise Unsent(f"clusterapi: {removal.group.id}: {why}")
        return removal

    def _set_mark(self, removal: Removal, mark: str | None, deadline: float) -> None:
        """Set or remove the mark of a Machine. Raises Missing if the Machine does not exist."""
        assert removal.machine is not None
        marks = dict.fromkeys(removal.group.objects.api.marks if mark else removal.annotations, mark)
        change = {"metadata": {"annotations": marks}}
        self.connected().patch(removal.machine, change, seconds=self.seconds(deadline))

    def _change(self, scaled: ObjectVersion, change: Mapping[str, object], deadline: float) -> None:
        try:
            self.connected().patch(scaled, change, seconds=self.seconds(deadline))
        except Missing as error:  # it is not the Machine that is missing
            raise Unsent(str(error)) from error

    def unmark(self, keys: Iterable[str], deadline: float) -> None:
        """Remove our marks from the Machines *keys*."""
        for key in keys:
            removal = self.state.removals.get(key)
            if removal is not None and removal.mark and not removal.in_progress:
                self._set_mark(removal, None, deadline)

    def stale(self) -> list[str]:
        """Return the keys of Machines with a mark of ours that was left by an order that did not come about."""
        return [key for key, removal in self.state.removals.items() if removal.stale]

    def create(self, group: NodeGroup, count: int, created: Callable[[str], None], *, deadline: float) -> None:  # noqa: ARG002
        """Raise the replicas. What is not created yet is listed as machines without a name."""
        scaled = self.state.groups[group.id]
        if why := scaled.obstacle:
            raise Permanent(f"clusterapi: {group.id}: {why}")
        self._change(scaled.version, {"spec": {"replicas": scaled.replicas + count}}, deadline)


class ClusterApiProvider(ObjectProvider):
    """The provider of Machines: each MachineDeployment, and each MachineSet of none, is a group."""

    def __init__(self, file: ClusterApiFile, clock: Clock, folder: Path) -> None:
        self._capi = ClusterApiSystem(file, clock)
        self.kubeconfig = str(folder / file.kubeconfig) if file.kubeconfig else None
        self._clock, self._unmark_from = clock, 0.0
        super().__init__(self._capi, clock)

    def refresh(self, *, deadline: float) -> None:
        """Read the state if it is too old, and remove marks of ours that no request needs any more."""
        super().refresh(deadline=deadline)
        now = self._clock.monotonic()
        if not self._capi.stale() or now < self._unmark_from:
            return
        deadline = min(deadline, now + _UNMARKING)  # another process may hold the pool: the round goes on
        try:
            with self._fleet.changing(deadline=deadline):
                index, stale = self._fleet.read(deadline=deadline).index, self._capi.stale()
                machines = [machine for key in stale if (machine := index.get(key)) is not None]
                self._capi.unmark([each.key for each in machines if not self._fleet.leaving(each)], deadline)
        except ReschedulerError as error:
            self._unmark_from = now + OBJECT_PACE.settle
            log.warning("clusterapi: a mark of an order that did not come about is not removed yet: %s", error)

    def refusals(self, group: str, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, Refused]:
        """Return the nodes that would be refused, also for now: while Machines of their group come or go."""
        refused = dict(super().refusals(group, nodes, deadline=deadline))
        for node in nodes:
            machine = self.machine(node, deadline=deadline)
            removal = self._capi.state.removals.get(machine.key) if machine is not None and machine.alive else None
            if removal is not None and not removal.mark and (why := removal.unsettled()):
                refused.setdefault(node.name, Refused(Refusal.PROTECTED, f"{removal.group.id}: {why}"))
        return refused

    def decrease_target_size(self, group: str, delta: int, *, deadline: float) -> None:
        """Lower the replicas one by one: the controllers delete a Machine before the next is marked."""
        for _ in range(self._positive(-delta)):
            while True:
                try:
                    self._fleet.decrease_unfulfilled(group, 1, deadline=deadline)
                    break
                except Unsent as error:
                    self._fleet.pause(str(error), deadline)

    def template(self, group: str, *, deadline: float) -> NodeTemplate:
        name = self.group(group, deadline=deadline).id
        raise NotSupported(f"clusterapi: {name} has no template: its first node shows what the next ones are like")
