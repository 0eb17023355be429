"""Read the controllers of pods with GET requests when a drain needs them."""

import contextlib
import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

from predicates.objects import OwnerReference
from predicates.texts import one_line
from rescheduler.clock import Clock
from rescheduler.errors import Forbidden, InputError, NotFound, ReschedulerError
from rescheduler.kube.client import Client
from rescheduler.kube.consistent_reads import LIVE
from rescheduler.kube.lister import Resource, read_structs
from rescheduler.kube.owners import CustomOwners, latest_message
from rescheduler.kube.responses import decoded
from rescheduler.kube.workloads import (
    JobObject,
    JobPod,
    StartingPod,
    WorkloadObject,
    controller_of,
    digest,
    restarts,
    wanted,
)
from rescheduler.planning.controllers import Controller, ControllerReading, ControllerState, job_facts
from rescheduler.planning.debts import Debt
from rescheduler.planning.rules.pod_traits import named_controller

#: Maximum number of ReplicaSets whose controller is cached. A controller changes only if its ReplicaSet is orphaned and
#: adopted.
CACHED_REPLICA_SETS: Final = 20_000

#: Controllers above a controller that are looked at: a LeaderWorkerSet is three levels above the pods of its workers.
_LEVELS: Final = 4


S = TypeVar("S", WorkloadObject, JobObject)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _ControllerKind:
    """A built-in kind of controller."""

    path: str  #: path of its API group and version
    plural: str


_KINDS: Final[Mapping[str, _ControllerKind]] = {
    "Deployment": _ControllerKind("/apis/apps/v1", "deployments"),
    "ReplicaSet": _ControllerKind("/apis/apps/v1", "replicasets"),
    "StatefulSet": _ControllerKind("/apis/apps/v1", "statefulsets"),
    "ReplicationController": _ControllerKind("/api/v1", "replicationcontrollers"),
    "Job": _ControllerKind("/apis/batch/v1", "jobs"),
}

#: Kinds that may have a controller themselves, for example a ReplicaSet of a Deployment.
_CONTROLLED: Final = frozenset({"ReplicaSet", "ReplicationController"})


class ControllerReader:
    """A reader of controllers. Thread-safe.

    Owners of other kinds are read by discovery (:mod:`rescheduler.kube.owners`). Where that is not permitted,
    `wanted` is derived from their ReplicaSets, or not known.

    Methods raise Forbidden (with the verb and the resource), Unauthorized and Retryable, and :meth:`topmost` InputError
    for an object that cannot be decoded. Requests are not retried; the caller may retry.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._custom = CustomOwners(client, clock)
        self._parents: dict[Controller, Controller] = {}  # by controller: its own, also if it is custom
        self._forbidden = False  #: whether the missing permission for details was logged
        self._lock = threading.Lock()
        # Namespace and UID of a ReplicaSet → itself, its controller. Pods of other namespaces may name the same UID.
        self._above: dict[tuple[str, str], tuple[Controller, Controller]] = {}
        # ReplicaSets that may be orphans of a Deployment, by its namespace and name.
        self._former: defaultdict[tuple[str, str], set[Controller]] = defaultdict(set)

    def topmost(self, namespace: str, reference: OwnerReference) -> Controller:
        """Return the topmost controller above *reference* that replaces its pods.

        For a Job this is the Job itself: a CronJob creates Jobs but does not replace their pods.
        """
        own = _controller(namespace, reference)
        if own.kind not in _CONTROLLED:
            return own
        with self._lock:
            known = self._above.get((namespace, own.uid))
        if known is not None:
            return known[1]
        read = self._get(own, WorkloadObject)
        above = controller_of(read.metadata.owner_references) if read is not None else None
        if above is None:
            with self._lock:
                self._former[own.namespace, own.name.rpartition("-")[0]].add(own)
            return own
        topmost = _controller(namespace, above)
        with self._lock:
            if len(self._above) >= CACHED_REPLICA_SETS:
                del self._above[next(iter(self._above))]
            self._above[namespace, own.uid] = own, topmost
        return topmost

    def read(
        self,
        owners: Collection[tuple[str, OwnerReference]],
        controllers: Collection[Controller] = (),
        siblings: Collection[tuple[str, OwnerReference]] = (),
        *,
        read_refusals: bool = False,
    ) -> ControllerReading:
        """Read as :class:`rescheduler.execution.context.Controllers` says."""
        topmost = self.topmost_of(owners)
        all_controllers = frozenset((*controllers, *topmost.values()))
        # The name of a ReplicaSet starts with the name of its Deployment, and custom controllers do the same. The
        # owner references decide; the name only limits how many ReplicaSets of the namespace are read.
        names = {(controller.namespace, controller.name) for controller in all_controllers}
        near = [(each, owner) for each, owner in siblings if (each, owner.name.rpartition("-")[0]) in names]
        for namespace, sibling in sorted(near, key=_rank):
            with contextlib.suppress(InputError):  # a reference that a tenant wrote concerns its own pod only
                self.topmost(namespace, sibling)
        return ControllerReading(self.states(all_controllers, read_refusals=read_refusals), topmost)

    def topmost_of(self, owners: Iterable[tuple[str, OwnerReference]]) -> dict[tuple[str, str], Controller]:
        """Return :meth:`topmost` of each owner, keyed by the owner's namespace and UID.

        Sends one GET for each ReplicaSet that is not cached.
        """
        references = {(namespace, reference.uid): reference for namespace, reference in sorted(owners, key=_rank)}
        return {key: self.topmost(key[0], reference) for key, reference in references.items()}

    def ending(self, owners: Iterable[tuple[str, OwnerReference]]) -> dict[tuple[str, str], str]:
        """Return the built-in *owners* of pods that are gone or being deleted, and why their pods do not come back.

        Sends one GET for each owner. A ReplicaSet that another controller has adopted is returned as well, and
        :meth:`topmost` reads it again.
        """
        ending = {}
        for namespace, reference in sorted({*owners}, key=_rank):
            owner = _controller(namespace, reference)
            if owner.kind not in _KINDS:
                continue
            read = self._get(owner, WorkloadObject)
            with self._lock:
                _, known = self._above.get((namespace, owner.uid), (None, None))
                above = controller_of(read.metadata.owner_references) if read is not None else None
                if adopted := known is not None and (above is None or above.uid != known.uid):
                    del self._above[namespace, owner.uid]
            if read is None or read.metadata.deleting or adopted:
                why = "is gone" if read is None else "is being deleted" if read.metadata.deleting else "was adopted"
                ending[namespace, owner.uid] = f"{owner.kind} {namespace}/{owner.name} {why}"
        return ending

    def states(
        self, controllers: Iterable[Controller], *, read_refusals: bool = False
    ) -> dict[Controller, ControllerState]:
        """Read the state of each of *controllers*.

        `owner_uids` of a Deployment contains the UIDs of the ReplicaSets that :meth:`topmost` has seen. With
        *read_refusals*, if the controller's condition does not state why pods cannot be created, the reason is read
        from the conditions of its ReplicaSets, and from recent ``FailedCreate`` events if these may be listed. Without
        such a reason, the pods are read for why they do not run.
        """
        below: defaultdict[Controller, list[Controller]] = defaultdict(list)
        with self._lock:
            for lower, upper in self._above.values():
                below[upper].append(lower)
        states = {controller: self._state(controller, below) for controller in sorted(set(controllers))}
        self._forget({controller for controller, state in states.items() if not state.exists})
        for state in self._counted(
            [controller for controller in states.values() if controller.controller.kind not in _KINDS]
        ):
            states[state.controller] = state
        for controller, state in states.items():
            if above := self._chain_above(controller):
                states[controller] = replace(state, above=above)
        if read_refusals:
            for controller, state in states.items():
                if state.exists and not state.refusal:
                    states[controller] = replace(state, refusal=self._refusal(state, below.get(controller, [])))
            self._add_hindrances(states)
        return states

    def _forget(self, gone: set[Controller]) -> None:
        """Remove deleted controllers from the cache. Their ReplicaSets may have been adopted."""
        with self._lock:
            if sum(map(len, self._former.values())) >= CACHED_REPLICA_SETS:
                self._former.clear()
            for lower, upper in self._above.values():
                if upper in gone:
                    self._former[upper.namespace, upper.name].add(lower)
            self._above = {key: pair for key, pair in self._above.items() if gone.isdisjoint(pair)}

    def _state(self, controller: Controller, below: Mapping[Controller, list[Controller]]) -> ControllerState:
        try:
            match controller.kind:
                case "Job":
                    return self._job(controller)
                case kind if kind in _KINDS:
                    return self._workload(controller, below)
                case _:
                    return self._custom_state(controller, below.get(controller, []))
        except InputError as error:
            return ControllerState(controller, _owner_uids(controller, below), unreadable=str(error))

    def _workload(self, controller: Controller, below: Mapping[Controller, list[Controller]]) -> ControllerState:
        workload = self._read(controller, WorkloadObject)
        uids = _owner_uids(controller, below)
        if workload is None:
            return self._gone(controller, uids, below)
        if workload.metadata.ends_with_its_pods and (left := self._left_behind(controller, uids, below)) is not None:
            return replace(left, deleting=True)
        heir = msgspec.structs.replace(controller, uid=workload.metadata.uid)
        if heir == controller:
            self._note_parents(controller, workload.metadata.owner_references)
        found = _state_of(controller, workload, uids | _owner_uids(heir, below))
        return replace(found, exists=heir == controller)

    def _gone(
        self, controller: Controller, uids: frozenset[str], below: Mapping[Controller, list[Controller]]
    ) -> ControllerState:
        """Return the state of a controller that is gone."""
        if (left := self._left_behind(controller, uids, below)) is not None:
            return left
        if self._returns(controller):
            return ControllerState(controller, uids, exists=False, returning=True)
        return ControllerState(controller, uids, wanted=0, exists=False)

    def _left_behind(
        self, controller: Controller, uids: frozenset[str], below: Mapping[Controller, list[Controller]]
    ) -> ControllerState | None:
        """Return what the ReplicaSets that a Deployment left behind want, or None if they want no pods.

        An orphan wants pods by itself. If another controller has adopted a ReplicaSet, that one decides.
        """
        if controller.kind != "Deployment":
            return None
        with self._lock:
            known = set(self._former[controller.namespace, controller.name])
            known |= {lower for lower, upper in self._above.values() if upper == controller}
        read = [one for one in (self._get(each, WorkloadObject) for each in sorted(known)) if one is not None]
        above = {one.metadata.uid: controller_of(one.metadata.owner_references) for one in read}
        orphans = [one for one in read if above[one.metadata.uid] is None]
        heirs = {_controller(controller.namespace, each) for each in above.values() if each is not None} - {controller}
        adopters = [state for heir in sorted(heirs) if (state := self._adopter(heir, below)) is not None]
        kept = {uid for uid, each in above.items() if each is None or each.uid != controller.uid}
        uids = uids.union(kept, *(adopter.owner_uids for adopter in adopters))
        if any(adopter.wanted is None for adopter in adopters):
            return ControllerState(controller, uids, exists=False, returning=True)
        wanted = sum(orphan.wanted for orphan in orphans) + sum(adopter.wanted or 0 for adopter in adopters)
        if not wanted:
            return None
        if not orphans and len(adopters) == 1:
            return replace(adopters[0], controller=controller, owner_uids=uids, exists=False)
        return ControllerState(controller, uids, wanted=wanted, exists=False)

    def _adopter(self, heir: Controller, below: Mapping[Controller, list[Controller]]) -> ControllerState | None:
        """Return the state of a controller that adopted a ReplicaSet, or None if it is gone, too."""
        if heir.kind in _KINDS:
            workload = self._get(heir, WorkloadObject)
            return None if workload is None else _state_of(heir, workload, _owner_uids(heir, below))
        return self._custom_state(heir, below.get(heir, []))

    def _custom_state(self, controller: Controller, below: Iterable[Controller]) -> ControllerState:
        """Return the state of a custom controller, as it says itself. An unreadable one is derived from ReplicaSets."""
        replica_sets = list(below)
        uids = frozenset({controller.uid, *(replica_set.uid for replica_set in replica_sets)})
        try:
            found = self._custom.read(controller)
        except (Forbidden, InputError) as error:
            if replica_sets:
                return self._of_replica_sets(controller, uids, replica_sets)
            return ControllerState(controller, uids, unreadable=str(error))
        if found is None and replica_sets:
            return self._of_replica_sets(controller, uids, replica_sets)
        if found is None:
            returns = self._returns(controller)
            return ControllerState(controller, uids, wanted=None if returns else 0, exists=False, returning=returns)
        heir = found.uid != controller.uid
        if not heir and found.above is not None:
            self._note_parents(controller, (found.above,))
        return ControllerState(
            controller,
            uids | {found.uid},
            wanted=0 if found.finished or found.suspended else found.wanted,
            exists=not heir,
            deleting=found.deleting,
            suspended=found.suspended,
            finished=found.finished,
            returning=heir and not found.finished,
        )

    def _of_replica_sets(
        self, controller: Controller, uids: frozenset[str], replica_sets: Iterable[Controller]
    ) -> ControllerState:
        read = (self._get(replica_set, WorkloadObject) for replica_set in replica_sets)
        present = [
            replica_set
            for replica_set in read
            if replica_set is not None and replica_set.metadata.deletion_timestamp is None
        ]
        return ControllerState(
            controller, uids, wanted=sum(replica_set.wanted for replica_set in present), exists=bool(present)
        )

    def _job(self, controller: Controller) -> ControllerState:
        job = self._read(controller, JobObject)
        if job is None:
            returns = self._returns(controller)
            wants = None if returns else 0
            return ControllerState(
                controller, frozenset({controller.uid}), wanted=wants, exists=False, returning=returns
            )
        if job.metadata.uid == controller.uid:
            self._note_parents(controller, job.metadata.owner_references)
        restarted = 0
        if job.counts_restarts:
            pods = read_structs(self._client, _pods(controller.namespace, selector=job.selector), JobPod)
            restarted = restarts(pods, job.metadata.uid)
        return ControllerState(
            controller,
            frozenset({controller.uid, job.metadata.uid}),
            wanted=wanted(job),
            template=digest(job.spec.template),
            suspended=job.suspended,
            job=job_facts(job.spec, job.status, restarted),
            exists=job.metadata.uid == controller.uid,
            deleting=job.metadata.deleting,
        )

    def _counted(self, unreadable: list[ControllerState]) -> Iterable[ControllerState]:
        """Yield states of custom controllers with the number of their succeeded pods."""
        for namespace in sorted({state.controller.namespace for state in unreadable}):
            pods = read_structs(self._client, _pods(namespace, fields="status.phase=Succeeded"), JobPod)
            owners = (controller_of(pod.metadata.owner_references) for pod in pods)
            succeeded = Counter(owner.uid for owner in owners if owner is not None)
            for state in unreadable:
                if state.controller.namespace == namespace:
                    yield replace(state, succeeded=sum(succeeded[uid] for uid in state.owner_uids))

    def _refusal(self, state: ControllerState, below: Iterable[Controller]) -> str:
        """Return why the controller cannot create pods, from its ReplicaSets or from events, or ""."""
        try:
            read = (self._get(lower, WorkloadObject) for lower in below)
            refusal = next((workload.refusal for workload in read if workload is not None and workload.refusal), "")
            if not refusal:
                namespace, uids = state.controller.namespace, sorted(state.owner_uids)
                refusal = latest_message(self._client, self._clock, namespace, uids)
        except Forbidden as error:
            if not self._forbidden:
                log.warning("cannot read why replacement pods are rejected: %s", error)
            self._forbidden = True
            return ""
        except ReschedulerError:
            return ""  # the text is optional
        return one_line(refusal)

    def _add_hindrances(self, states: dict[Controller, ControllerState]) -> None:
        """Add to *states* why one of their pods does not run. The texts are optional, so errors are ignored."""
        unexplained = {owner: each for each, state in states.items() if not state.refusal for owner in state.owners}
        for namespace in sorted({namespace for namespace, _ in unexplained}):
            with contextlib.suppress(ReschedulerError):
                for pod in read_structs(self._client, _pods(namespace, fields=LIVE), StartingPod):
                    owner = controller_of(pod.metadata.owner_references)
                    controller = unexplained.get((namespace, owner.uid)) if owner is not None else None
                    leaving = pod.metadata.deletion_timestamp is not None
                    if controller is not None and not leaving and (why := pod.hindrance):
                        text = one_line(f"pod {namespace}/{pod.metadata.name}: {why}")
                        states[controller] = replace(states[controller], hindrance=text)

    def _returns(self, controller: Controller) -> bool:
        """Return whether *controller*, which is gone, may be created again: one of the controllers above it exists.

        A CronJob does not create a Job again.
        """
        lower = controller
        for _ in range(_LEVELS):
            with self._lock:
                above = self._parents.get(lower)
            if above is None or (controller.kind == "Job" and above.built_in):
                return False
            if self._is_there(above):
                return True
            lower = above
        return False

    def recall(self, debts: Iterable[Debt]) -> None:
        """Learn from *debts* of earlier processes which controllers were above those that may be gone by now."""
        with self._lock:
            for debt in debts:
                for lower, above in pairwise((debt.controller, *debt.above)):
                    self._parents.setdefault(lower, above)

    def _chain_above(self, controller: Controller) -> tuple[Controller, ...]:
        """Return the controllers above *controller* that are known, its own first."""
        above: list[Controller] = []
        with self._lock:
            while len(above) < _LEVELS and (upper := self._parents.get(above[-1] if above else controller)):
                above.append(upper)
        return tuple(above)

    def _is_there(self, controller: Controller) -> bool:
        """Return whether a controller of another one, or one with the same name, exists, or may exist."""
        try:
            if controller.kind in _KINDS:
                workload = self._read(controller, WorkloadObject)
                return workload is not None and not workload.metadata.deleting
            found = self._custom.read(controller)
        except ReschedulerError:
            return True
        return found is not None and not found.deleting

    def _note_parents(self, controller: Controller, references: Iterable[OwnerReference]) -> None:
        """Record the controllers above *controller* while it exists, each with its own one."""
        for _ in range(_LEVELS):
            above = controller_of(references)
            with self._lock:
                if above is None or controller in self._parents:
                    return
                if len(self._parents) >= CACHED_REPLICA_SETS:
                    self._parents.clear()
                parent = self._parents[controller] = _controller(controller.namespace, above)
            controller, references = parent, self._owners_of(parent)

    def _owners_of(self, controller: Controller) -> Iterable[OwnerReference]:
        try:
            if controller.kind in _KINDS:
                workload = self._get(controller, WorkloadObject)
                return () if workload is None else workload.metadata.owner_references
            found = self._custom.read(controller)
        except ReschedulerError:
            return ()
        return () if found is None or found.above is None else (found.above,)

    def _get(self, controller: Controller, shape: type[S]) -> S | None:
        """Read the object. Return None if it is gone or was replaced by another object with the same name."""
        read = self._read(controller, shape)
        return read if read is not None and read.metadata.uid == controller.uid else None

    def _read(self, controller: Controller, shape: type[S]) -> S | None:
        """Read the object with the name of *controller*, which may have another UID. Return None if it is gone."""
        kind = _KINDS[controller.kind]
        act = f"get {kind.plural} {controller.namespace}/{controller.name}"
        namespace, name = quote(controller.namespace, safe=""), quote(controller.name, safe="")
        try:
            response = self._client.request(act, "GET", f"{kind.path}/namespaces/{namespace}/{kind.plural}/{name}")
            return decoded(act, response.body, shape)
        except NotFound:
            return None


def _rank(owner: tuple[str, OwnerReference]) -> tuple[str, ...]:
    """Return the order in which owners are read: *owner* may be one of a set, whose order differs by process."""
    namespace, reference = owner
    return namespace, reference.name, reference.kind, reference.uid


def _state_of(controller: Controller, workload: WorkloadObject, owner_uids: frozenset[str]) -> ControllerState:
    return ControllerState(
        controller,
        owner_uids,
        wanted=workload.wanted,
        least_available=workload.least_available if workload.rolling_out else None,
        template=digest(workload.spec.template),
        refusal=one_line(workload.refusal),
        min_ready_seconds=workload.spec.min_ready_seconds,
        deleting=workload.metadata.deleting,
    )


def _owner_uids(controller: Controller, below: Mapping[Controller, list[Controller]]) -> frozenset[str]:
    """Return the UIDs that pods of *controller* name as their owner: of the ReplicaSets *below*, or its own."""
    if controller.kind != "Deployment":
        return frozenset({controller.uid})
    return frozenset(lower.uid for lower in below.get(controller, ()))


def _controller(namespace: str, reference: OwnerReference) -> Controller:
    """Return the controller in *reference*.

    Raises InputError if no object can have its texts. Tenants write references to owners: what is not a name must
    never become part of a request or of a stored value.
    """
    if fault := reference.fault:
        raise InputError(f"owner of pods in {namespace}: {fault}")
    return named_controller(namespace, reference)


def _pods(namespace: str, *, selector: str = "", fields: str = "") -> Resource:
    return Resource("Pod", f"/api/v1/namespaces/{quote(namespace, safe='')}/pods", selector=selector, fields=fields)
