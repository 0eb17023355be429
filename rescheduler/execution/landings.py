"""Replacement pods that earlier drains still owe. No new drain starts until every debt is paid, expired or waived."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, Protocol

from rescheduler.execution.cluster_view import ClusterView
from rescheduler.execution.context import Controllers
from rescheduler.observe.events import Held, OwedChanged, Report, Waiting
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.debts import Debt, Replicas, Shortfall, paid, shortfall
from rescheduler.planning.memory import OpenDebt
from rescheduler.planning.outcome import PodRef

#: Maximum number of controllers in a message; the rest is counted.
_NAMED: Final = 3

_WAIVE: Final = "rescheduler resume --waive NAMESPACE/KIND/NAME waives a debt"


class Debts(Protocol):
    """The store for the debts of earlier drains."""

    @property
    def debts(self) -> tuple[OpenDebt, ...]: ...

    def owe(self, node: str, debts: Iterable[Debt]) -> None:
        """Set the debts of the drain of *node*. An empty list means that all are paid."""
        ...


class Landings:
    """Checks whether the debts of earlier drains are paid. Not thread-safe."""

    def __init__(
        self,
        view: ClusterView,
        controllers: Controllers,
        store: Debts,
        report: Report,
        *,
        ready: bool = True,
        waive: str = _WAIVE,
    ) -> None:
        """Create the checks. Without *ready*, pods only have to be bound. *waive* is advice on waiving a debt."""
        self._view = view
        self._controllers = controllers
        self._store = store
        self._report = report
        self._ready = ready
        self._waive = waive
        self._evicted: frozenset[str] = frozenset()  # UIDs of evicted pods that are still in the watched state

    def evicted(self, pods: Iterable[PodRef]) -> None:
        """Record *pods* as evicted, so that they count as gone before the watch reports their deletion."""
        watched = frozenset(pod.uid for pod in self._view.pods().values())
        self._evicted = watched & (self._evicted | {pod.uid for pod in pods})

    def settle(self) -> Held | None:
        """Delete the debts that are paid or expired. Return why no drain may start if any remain.

        Raises ReschedulerError if a controller cannot be read.
        """
        debts = self._store.debts
        if not debts:
            self._report(OwedChanged(0))
            return None
        states = self._states(debts)
        replicas = self._view.replicas(states.values(), evicted=self._evicted)
        shortfalls = {owed: self._missing_pods(owed, states, replicas) for owed in debts}
        open_debts = {owed: missing for owed, missing in shortfalls.items() if missing is not None}
        for node in {owed.node for owed in debts}:
            self._store.owe(node, [owed.debt for owed in open_debts if owed.node == node])
        self._report(OwedChanged(sum(map(self._pods, open_debts.values()))))
        return self._held(open_debts) if open_debts else None

    def _states(self, debts: tuple[OpenDebt, ...]) -> Mapping[Controller, ControllerState]:
        controllers = frozenset(owed.debt.controller for owed in debts)
        siblings = self._view.siblings({controller.namespace for controller in controllers})
        states = dict(self._controllers.read((), controllers, siblings).states)
        for owed in debts:  # after a restart, ReplicaSets that do not share the controller's name are not looked up
            state = states[owed.debt.controller]
            states[state.controller] = replace(state, owner_uids=state.owner_uids.union(owed.debt.owner_uids))
        return states

    def _missing_pods(
        self, owed: OpenDebt, states: Mapping[Controller, ControllerState], replicas: Mapping[Controller, Replicas]
    ) -> Shortfall | None:
        """Return how many pods are still missing, or None if the debt is paid or nothing is wanted any more."""
        state = states[owed.debt.controller]
        missing = shortfall(owed.debt, state, replicas.get(state.controller, Replicas()))
        return None if paid(missing, ready=self._ready) else missing

    def _pods(self, missing: Shortfall) -> int:
        return max(missing.ready, missing.bound) if self._ready else missing.bound

    def _held(self, open_debts: Mapping[OpenDebt, Shortfall]) -> Held:
        named = [
            f"{owed.debt.controller} lacks {self._pods(missing)} since the drain of {owed.node}"
            for owed, missing in list(open_debts.items())[:_NAMED]
        ]
        rest = f" and {len(open_debts) - _NAMED} more controllers" if len(open_debts) > _NAMED else ""
        why = f"replacement pods are not running yet: {'; '.join(named)}{rest}; {self._waive}"
        return Held(Waiting.LANDING_PENDING, why)
