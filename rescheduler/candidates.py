"""Facts that are read only for a node that is about to be drained: its machine's provider, its pods' controllers.

What forbids the drain becomes a veto of the node, and the next candidate is planned. A veto stands for a minute, and
twice as long when it is found again, so that a cluster full of nodes that cannot go costs few requests.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from predicates.objects import OwnerReference, Pod
from rescheduler.access import Controllers, Read
from rescheduler.clock import Clock
from rescheduler.errors import InputError
from rescheduler.planning.controllers import ControllerState
from rescheduler.planning.jobs import job_blockers
from rescheduler.planning.outcome import Blocker, Plan, Reason
from rescheduler.planning.policy import Policy
from rescheduler.planning.waits import Doubling
from rescheduler.recollection import Recollection
from rescheduler.view import View

#: How long a veto stands without another read, doubling as long as it is found again.
VETOES: Final = Doubling(timedelta(minutes=1), timedelta(minutes=10))


@dataclass(frozen=True, slots=True)
class _Veto:
    blockers: tuple[Blocker, ...]
    until: float  #: monotonic seconds
    times: int  #: how often it was found in a row


class Candidates:
    """For the loop's thread."""

    def __init__(
        self,
        view: View,
        controllers: Controllers,
        recollection: Recollection,
        policy: Policy,
        clock: Clock,
        refusal: Callable[[str], Blocker | None] | None = None,
    ) -> None:
        """*refusal*: why the provider keeps the machine of a node; it may raise ReschedulerError. None: not asked."""
        self._view = view
        self._controllers = controllers
        self._recollection = recollection
        self._policy = policy
        self._clock = clock
        self._refusal = refusal
        self._vetoes: dict[str, _Veto] = {}  # also those that have ended not long ago

    def vetoes(self) -> Mapping[str, tuple[Blocker, ...]]:
        """The vetoes that stand."""
        now = self._clock.monotonic()
        known = VETOES.longest.total_seconds()
        self._vetoes = {node: veto for node, veto in self._vetoes.items() if now < veto.until + known}
        return {node: veto.blockers for node, veto in self._vetoes.items() if now < veto.until}

    def judge(self, plan: Plan) -> tuple[Blocker, ...]:
        """What forbids that *plan* is carried out.

        Raises ReschedulerError where a controller cannot be read, or the provider cannot be asked. A controller that
        can be read and not decoded concerns this node only.
        """
        refused = self._refusal(plan.node) if self._refusal is not None else None
        blockers = (refused,) if refused is not None else self._of_controllers(plan)
        self._veto(plan.node, blockers)
        return blockers

    def _of_controllers(self, plan: Plan) -> tuple[Blocker, ...]:
        uids = {placement.pod.uid for placement in plan.placements}
        movers = [pod for pod in self._view.pods_of(plan.node) if pod.uid in uids]
        owners = frozenset((pod.namespace, pod.owner) for pod in movers if pod.owner is not None)
        if not owners:
            return ()
        try:
            read = self._read(owners)
        except InputError as error:
            return (Blocker(Reason.UNREADABLE_OBJECT, str(error)),)
        return (*self._of_pods(read, movers), *self._recollection.vetoes(plan.node, self._all_pods(read)))

    def _veto(self, node: str, blockers: tuple[Blocker, ...]) -> None:
        before = self._vetoes.pop(node, None)
        if blockers:
            times = 1 if before is None else before.times + 1
            until = self._clock.monotonic() + VETOES.after(times).total_seconds()
            self._vetoes[node] = _Veto(blockers, until, times)

    def _read(self, owners: Collection[tuple[str, OwnerReference]]) -> Read:
        siblings = self._view.siblings({namespace for namespace, _ in owners})
        return self._controllers.read(owners, (), siblings)

    def _of_pods(self, read: Read, movers: Sequence[Pod]) -> tuple[Blocker, ...]:
        """Jobs that the drain would let fail, and StatefulSets of which other pods are not Ready."""
        states = [state for _, state in sorted(read.states.items())]
        blockers = [*job_blockers(states, movers, self._policy.move_jobs)]
        for state in filter(lambda state: state.ordered, states):
            pods = [pod for pod in movers if pod.owner is not None and pod.owner.uid in state.owner_uids]
            for pod in pods:
                if unready := self._unready(state, pod):
                    detail = f"pods of {state.controller} are moved only while all others are Ready: {unready}"
                    blockers.append(Blocker(Reason.REPLICAS_NOT_READY, detail, pod.key))
                    break
        return tuple(blockers)

    def _unready(self, state: ControllerState, mover: Pod) -> str:
        """How many of the StatefulSet's other pods are not Ready, in words; "" where all are."""
        replicas = self._view.replicas([state], evicted=(mover.uid,)).get(state.controller)
        ready = replicas.ready if replicas is not None else 0
        missing = (state.wanted or 1) - 1 - ready
        return f"{missing} are not" if missing > 0 else ""

    def _all_pods(self, read: Read) -> dict[ControllerState, list[Pod]]:
        states = {uid: state for state in read.states.values() for uid in state.owner_uids}
        pods: dict[ControllerState, list[Pod]] = {state: [] for state in read.states.values()}
        for pod in self._view.pods().values():
            if pod.owner is not None and (state := states.get(pod.owner.uid)) is not None:
                pods[state].append(pod)
        return pods
