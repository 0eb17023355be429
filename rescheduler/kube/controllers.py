"""Controllers of pods, read by GET when a drain needs them."""

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

from predicates.objects import OwnerReference
from rescheduler import shapes
from rescheduler.clock import Clock
from rescheduler.errors import Forbidden, InputError, NotFound, ReschedulerError
from rescheduler.kube.answers import one_line
from rescheduler.kube.client import Client
from rescheduler.kube.failed_creates import latest_message
from rescheduler.kube.jobs import Job, JobPod, facts, restarts, wanted
from rescheduler.kube.resources import Resource
from rescheduler.kube.structs import read_structs
from rescheduler.kube.workloads import Workload, controller_of, digest
from rescheduler.planning.controllers import Controller, ControllerState

#: ReplicaSets whose controller is remembered. It changes only where one is orphaned, and adopted by another.
REMEMBERED: Final = 20_000

S = TypeVar("S", Workload, Job)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of controller that can be read."""

    group: str
    path: str  #: of its API group and version
    plural: str


_KINDS: Final[Mapping[str, _Kind]] = {
    "Deployment": _Kind("apps", "/apis/apps/v1", "deployments"),
    "ReplicaSet": _Kind("apps", "/apis/apps/v1", "replicasets"),
    "StatefulSet": _Kind("apps", "/apis/apps/v1", "statefulsets"),
    "ReplicationController": _Kind("", "/api/v1", "replicationcontrollers"),
    "Job": _Kind("batch", "/apis/batch/v1", "jobs"),
}

#: Kinds that replace pods on behalf of what controls them, where something does.
_CONTROLLED: Final = frozenset({"ReplicaSet", "ReplicationController"})

#: The API group that some of the kinds had before they got their own.
_FORMER_GROUP: Final = "extensions"


class ControllerReader:
    """Reads controllers. Safe for use by many threads.

    Only the kinds of Kubernetes are read; the state of any other controller has no `wanted`. Methods raise
    Forbidden (it names the verb and the resource), Unauthorized, Retryable, and InputError for an object that cannot
    be decoded. No request is repeated; the caller may try again.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._forbidden = False  #: whether it was told that words may not be read
        self._lock = threading.Lock()
        self._above: dict[str, tuple[Controller, Controller]] = {}  # UID of a ReplicaSet → itself, its controller

    def topmost(self, namespace: str, reference: OwnerReference) -> Controller:
        """The topmost controller that replaces pods whose controller is *reference*.

        A Job is its own: a CronJob creates Jobs, and does not replace their pods.
        """
        own = _controller(namespace, reference)
        if own.kind not in _CONTROLLED:
            return own
        with self._lock:
            known = self._above.get(own.uid)
        if known is not None:
            return known[1]
        read = self._get(own, Workload)
        above = controller_of(read.metadata.owner_references) if read is not None else None
        if above is None:
            return own
        topmost = _controller(namespace, above)
        with self._lock:
            if len(self._above) >= REMEMBERED:
                del self._above[next(iter(self._above))]
            self._above[own.uid] = own, topmost
        return topmost

    def topmost_of(self, owners: Iterable[tuple[str, OwnerReference]]) -> dict[tuple[str, str], Controller]:
        """:meth:`topmost` of each namespace and controller, as pods name it; by namespace and UID of the latter.

        Costs one GET for each ReplicaSet that was not asked about before.
        """
        references = {(namespace, reference.uid): reference for namespace, reference in owners}
        return {key: self.topmost(key[0], reference) for key, reference in references.items()}

    def states(self, controllers: Iterable[Controller], *, words: bool = False) -> dict[Controller, ControllerState]:
        """Each of *controllers* as the API server has it now.

        `owner_uids` of a Deployment are the UIDs of those ReplicaSets that :meth:`topmost` was asked about.
        With *words*, more is read to say why pods cannot be created where the controller's own condition does not
        say it: the conditions of its ReplicaSets, and recent ``FailedCreate`` events as far as they may be listed.
        """
        below: defaultdict[Controller, list[Controller]] = defaultdict(list)
        with self._lock:
            for lower, upper in self._above.values():
                below[upper].append(lower)
        states = {one: self._state(one, below.get(one, [])) for one in sorted(set(controllers))}
        self._forget({one for one, state in states.items() if not state.exists})
        for state in self._counted([one for one in states.values() if one.controller.kind not in _KINDS]):
            states[state.controller] = state
        if words:
            for one, state in states.items():
                if state.exists and not state.refusal:
                    states[one] = replace(state, refusal=self._words(state, below.get(one, [])))
        return states

    def _forget(self, gone: set[Controller]) -> None:
        """What they controlled may have been adopted: it is looked up again."""
        with self._lock:
            self._above = {uid: pair for uid, pair in self._above.items() if gone.isdisjoint(pair)}

    def _state(self, controller: Controller, below: Iterable[Controller]) -> ControllerState:
        uids = frozenset(one.uid for one in below)
        match controller.kind:
            case "Job":
                return self._job(controller)
            case "Deployment":
                return self._workload(controller, uids)
            case kind if kind in _KINDS:
                return self._workload(controller, frozenset({controller.uid}))
            case _:
                return self._foreign(controller, below)

    def _workload(self, controller: Controller, uids: frozenset[str]) -> ControllerState:
        workload = self._get(controller, Workload)
        if workload is None or workload.metadata.deletion_timestamp is not None:
            return ControllerState(controller, uids, wanted=0, exists=False)
        return ControllerState(
            controller,
            uids,
            wanted=workload.wanted,
            template=digest(workload.spec.template),
            refusal=one_line(workload.refusal),
        )

    def _foreign(self, controller: Controller, below: Iterable[Controller]) -> ControllerState:
        """Of a kind that cannot be read, as its ReplicaSets tell: they want what it wants, and go with it."""
        replica_sets = list(below)
        uids = frozenset({controller.uid, *(each.uid for each in replica_sets)})
        if not replica_sets:
            return ControllerState(controller, uids)
        read = (self._get(each, Workload) for each in replica_sets)
        there = [each for each in read if each is not None and each.metadata.deletion_timestamp is None]
        return ControllerState(controller, uids, wanted=sum(each.wanted for each in there), exists=bool(there))

    def _job(self, controller: Controller) -> ControllerState:
        uids, job = frozenset({controller.uid}), self._get(controller, Job)
        if job is None or job.metadata.deletion_timestamp is not None:
            return ControllerState(controller, uids, wanted=0, exists=False)
        restarted = 0
        if job.counts_restarts:
            pods = read_structs(self._client, _pods(controller.namespace, selector=job.selector), JobPod)
            restarted = restarts(pods, controller.uid)
        return ControllerState(
            controller,
            uids,
            wanted=wanted(job),
            template=digest(job.spec.template),
            suspended=job.suspended,
            job=facts(job, restarted),
        )

    def _counted(self, unreadable: list[ControllerState]) -> Iterable[ControllerState]:
        """States of kinds that cannot be read, with the number of their pods that have succeeded."""
        for namespace in sorted({one.controller.namespace for one in unreadable}):
            pods = read_structs(self._client, _pods(namespace, fields="status.phase=Succeeded"), JobPod)
            owners = (controller_of(pod.metadata.owner_references) for pod in pods)
            succeeded = Counter(owner.uid for owner in owners if owner is not None)
            for state in unreadable:
                if state.controller.namespace == namespace:
                    yield replace(state, succeeded=sum(succeeded[uid] for uid in state.owner_uids))

    def _words(self, state: ControllerState, below: Iterable[Controller]) -> str:
        """Why the controller cannot create pods, by what it or its ReplicaSets report; "" where nothing does."""
        try:
            read = (self._get(one, Workload) for one in below)
            refusal = next((one.refusal for one in read if one is not None and one.refusal), "")
            if not refusal:
                namespace, uids = state.controller.namespace, sorted(state.owner_uids)
                refusal = latest_message(self._client, self._clock, namespace, uids)
        except Forbidden as error:
            if not self._forbidden:
                log.warning("why replacement pods are refused cannot be told: %s", error)
            self._forbidden = True
            return ""
        except ReschedulerError:
            return ""  # words are welcome, and nothing depends on them
        return one_line(refusal)

    def _get(self, controller: Controller, shape: type[S]) -> S | None:
        """The object; None where it is gone, or another one has its name."""
        kind = _KINDS[controller.kind]
        act = f"get {kind.plural} {controller.namespace}/{controller.name}"
        namespace, name = quote(controller.namespace, safe=""), quote(controller.name, safe="")
        try:
            answer = self._client.request(act, "GET", f"{kind.path}/namespaces/{namespace}/{kind.plural}/{name}")
            read: S = shapes.decode(answer.body, shape)
        except NotFound:
            return None
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InputError(f"{act}: the answer is not what was expected: {error}") from error
        return read if read.metadata.uid == controller.uid else None


def _controller(namespace: str, reference: OwnerReference) -> Controller:
    """The controller that *reference* names; of a foreign kind that is called like one of ours, with its group."""
    group = reference.api_version.rpartition("/")[0]
    kind = _KINDS.get(reference.kind)
    foreign = kind is not None and group not in ("", kind.group, _FORMER_GROUP)
    return Controller(
        namespace, f"{reference.kind}.{group}" if foreign else reference.kind, reference.name, reference.uid
    )


def _pods(namespace: str, *, selector: str = "", fields: str = "") -> Resource:
    return Resource("Pod", f"/api/v1/namespaces/{quote(namespace, safe='')}/pods", selector=selector, fields=fields)
