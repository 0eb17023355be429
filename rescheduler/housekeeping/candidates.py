"""Checks that run only for a node that is about to be drained: its provider and the controllers of its pods.

If a check rejects the drain, the node gets a veto, and the next candidate is planned. A veto lasts for a minute. Its
duration doubles each time the check fails again, so that many nodes that cannot be drained cost few requests.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import chain
from typing import Final, TypeAlias

from predicates.objects import Object, OwnerReference, Pod, ResourceQuota
from rescheduler.clock import Clock
from rescheduler.durations import Backoff, Pauses
from rescheduler.errors import InputError, ReschedulerError
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.execution.context import Controllers
from rescheduler.housekeeping.drain_history import DrainHistory
from rescheduler.planning.controllers import ControllerReading, ControllerState
from rescheduler.planning.outcome import Blocker, Plan, PodRef, Reason, Rejected
from rescheduler.planning.policy import Policy
from rescheduler.planning.rules.owners import Others, all_pods, controller_blockers, with_order
from rescheduler.planning.rules.pod_traits import belongs_to_node

#: Reads the controllers among owners that have a pod template, each with its kind. Raises ReschedulerError.
Templates: TypeAlias = Callable[[Collection[tuple[str, OwnerReference]]], list[tuple[str, Object]]]

#: Reads the ResourceQuotas of namespaces. Raises ReschedulerError.
QuotasOf: TypeAlias = Callable[[Collection[str]], list[ResourceQuota]]

#: How long a veto lasts before the node is checked again. It doubles each time the check fails again.
VETOES: Final = Backoff(timedelta(minutes=1), timedelta(minutes=10))

#: At most this many owners are read for the display of all nodes.
_OWNERS_READ: Final = 500


def _owners(pods: Iterable[Pod]) -> frozenset[tuple[str, OwnerReference]]:
    return frozenset((pod.namespace, pod.owner) for pod in pods if pod.owner is not None)


def _unreadable(read: ControllerReading) -> Iterator[Blocker]:
    """Yield a blocker for each built-in controller that cannot be read."""
    for _, state in sorted(read.states.items()):
        if state.unreadable and state.controller.built_in:
            yield Blocker(Reason.UNREADABLE_OBJECT, state.unreadable)


class Candidates:
    """Checks of candidates, and the vetoes that result from them. Used by the loop's thread only."""

    def __init__(
        self,
        view: ClusterView,
        controllers: Controllers,
        history: DrainHistory,
        policy: Policy,
        clock: Clock,
        refusal: Callable[[str], Blocker | None] | None = None,
        try_eviction: Callable[[PodRef], str] | None = None,
        templates: Templates | None = None,
        quotas: QuotasOf | None = None,
    ) -> None:
        """Create the checks. *refusal* returns why the provider would not remove a machine, or raises ReschedulerError.

        *try_eviction* evicts a pod in a dry run and returns why it is refused, or "". *templates* reads the pod
        templates of owners, *quotas* the ResourceQuotas of namespaces. None means that the provider or the API server
        is not asked.
        """
        self._quotas = quotas
        self._templates = templates
        self._try_eviction = try_eviction
        self._view = view
        self._controllers = controllers
        self._history = history
        self._policy = policy
        self._clock = clock
        self._refusal = refusal
        self._blockers: dict[str, tuple[Blocker, ...]] = {}  #: by node, of active vetoes and some that expired
        self._pauses = Pauses(VETOES)

    def vetoes(self) -> Mapping[str, tuple[Blocker, ...]]:
        """Return the active vetoes by node."""
        now = self._clock.monotonic()
        self._pauses.forget_old(now)
        self._blockers = {node: why for node, why in self._blockers.items() if self._pauses.active(node, now)}
        return dict(self._blockers)

    def next_end(self) -> float:
        """Return when the next active veto ends, in monotonic seconds; infinity if there is none."""
        return self._pauses.next_end(self._clock.monotonic())

    def judge(self, plan: Plan, *, templates_known: bool = False) -> tuple[Blocker, ...]:
        """Return the blockers because of which *plan* must not be executed.

        *templates_known* states that the plan was made after :meth:`learn_templates`: for nodes that do not exist yet,
        this class cannot plan again. Raises ReschedulerError if a controller cannot be read or the provider does not
        respond. A controller that cannot be decoded blocks this node only.
        """
        refused = self._refusal(plan.node) if self._refusal is not None and plan.empties else None
        blockers = (refused,) if refused is not None else self._still_refused(plan) or self._of_controllers(plan)
        if not (blockers or templates_known) and self.learn_templates(plan):
            verdict = self._view.plan_alone(plan.node, plan.purpose)
            blockers = verdict.blockers if isinstance(verdict, Rejected) else ()
        blockers = blockers or self._of_quotas(plan)
        self._veto(plan.node, blockers)
        return blockers

    def of_owners(self, nodes: Sequence[str], closely: int) -> Mapping[str, tuple[Blocker, ...]]:
        """Return those of *nodes* that the controllers of their pods keep, for plans that are only displayed.

        For the first nodes, as many as *closely* says, all controllers are read. For the others, only those in
        namespaces with recorded moves, and at most :data:`_OWNERS_READ` together. Nothing is recorded. If they cannot
        be read, the result is empty: the checks before a drain decide.
        """
        moved = {key.partition("/")[0] for key in self._history.memory.movements.controllers}
        movers: dict[str, list[Pod]] = {}
        for number, node in enumerate(nodes if moved else nodes[:closely]):
            pods = [
                pod for pod in self._view.facts.pods_of(node) if not pod.cls.terminating and not belongs_to_node(pod)
            ]
            movers[node] = pods if number < closely else [pod for pod in pods if pod.namespace in moved]
        owners = list(dict.fromkeys(chain.from_iterable(_owners(pods) for pods in movers.values())))
        try:
            read = self._read(owners[:_OWNERS_READ]) if owners else ControllerReading({}, {})
        except ReschedulerError:
            return {}
        owned = all_pods(read.states.values(), self._view.snapshot)
        waiting = self._history.moved_recently(movers, read, owned)
        kept = {node: self._kept_by(read.of(movers[node]), owned, movers[node]) for node in movers}
        found = {node: (*kept[node], *waiting.get(node, ())) for node in movers}
        return {node: blockers for node, blockers in found.items() if blockers}

    def learn_templates(self, plan: Plan) -> bool:
        """Read the pod templates that the pods of *plan* will be created from. Return whether any is new or changed."""
        owners = _owners(self._movers(plan))
        if self._templates is None or not owners:
            return False
        return self._view.learn(self._templates(owners), {namespace for namespace, _ in owners})

    def _still_refused(self, plan: Plan) -> tuple[Blocker, ...]:
        """Return a blocker if the eviction because of which the node was last not drained is still refused.

        It is tried before the node is tainted again, and the node cools down for longer.
        """
        node = self._view.facts.node(plan.node)
        if node is None or self._try_eviction is None:
            return ()
        refused = self._history.refused_pod(plan.node, node.metadata.uid)
        surging = {pod.uid for surge in plan.surges for pod in surge.pods}  # no eviction is requested for them
        evicted = (placement.pod for placement in plan.placements if placement.pod.uid not in surging)
        pod = next((pod for pod in evicted if str(pod) == refused), None)
        if pod is None or not (why := self._try_eviction(pod)):
            return ()
        self._history.node_failed(plan.node, node.metadata.uid, Reason.EVICTION_REFUSED, why, refused)
        return (Blocker(Reason.EVICTION_REFUSED, why, refused),)

    def _of_controllers(self, plan: Plan) -> tuple[Blocker, ...]:
        movers = self._movers(plan)
        if not (owners := _owners(movers)):
            return ()
        try:
            read = self._read(owners)
        except InputError as error:
            return (Blocker(Reason.UNREADABLE_OBJECT, str(error)),)
        owned = all_pods(read.states.values(), self._view.snapshot)
        return (
            *_unreadable(read),
            *self._kept_by(read, owned, movers),
            *self._history.vetoes(plan.node, owned),
        )

    def _kept_by(
        self, read: ControllerReading, owned: Mapping[ControllerState, Sequence[Pod]], movers: Sequence[Pod]
    ) -> Iterable[Blocker]:
        """Return why *movers* of one node must not be evicted, because of their controllers."""
        return controller_blockers(read, movers, Others(owned.__getitem__, self._view.facts.node), self._policy)

    def _movers(self, plan: Plan) -> list[Pod]:
        uids = {placement.pod.uid for placement in plan.placements}
        return [pod for pod in self._view.facts.pods_of(plan.node) if pod.uid in uids]

    def _of_quotas(self, plan: Plan) -> tuple[Blocker, ...]:
        """Return why the quotas of the pods' namespaces would refuse their replacement pods.

        Quotas change with every pod, so they are read each time and are not part of the watched cluster.
        """
        if self._quotas is None:
            return ()
        movers = self._movers(plan)
        by_uid = {pod.uid: pod for pod in movers}
        in_order = [pod for placement in plan.placements if (pod := by_uid.get(placement.pod.uid)) is not None]
        return self._view.refused_by(self._quotas({pod.namespace for pod in movers}), in_order)

    def _veto(self, node: str, blockers: tuple[Blocker, ...]) -> None:
        if blockers:
            self._blockers[node] = blockers
            self._pauses.failed(node, self._clock.monotonic())
        else:
            self._blockers.pop(node, None)
            self._pauses.succeeded(node)

    def _read(self, owners: Collection[tuple[str, OwnerReference]]) -> ControllerReading:
        siblings = self._view.facts.siblings({namespace for namespace, _ in owners})
        read = self._controllers.read(owners, (), siblings)
        return replace(read, states=with_order(read.states, self._view.snapshot))
