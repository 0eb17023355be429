"""What earlier drains still owe: no new drain begins before it is paid, lapses or is waived."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, Protocol

from rescheduler.access import Controllers
from rescheduler.observe.events import Held, OwedChanged, Report, Waiting
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.debts import Debt, Replicas, Shortfall, lapsed, paid, shortfall
from rescheduler.planning.memory import OpenDebt
from rescheduler.planning.outcome import PodRef
from rescheduler.view import View

#: Controllers that a line names; the others are counted.
_NAMED: Final = 3

_WAIVE: Final = "rescheduler resume --waive NAMESPACE/KIND/NAME gives a debt up"


class Debts(Protocol):
    """The debts of earlier drains, where they are kept."""

    @property
    def debts(self) -> tuple[OpenDebt, ...]: ...

    def owe(self, node: str, debts: Iterable[Debt]) -> None:
        """The drain of *node* owes exactly *debts* now; none: all is paid."""
        ...


class Landings:
    """For one thread."""

    def __init__(
        self,
        view: View,
        controllers: Controllers,
        kept: Debts,
        report: Report,
        *,
        ready: bool = True,
        waive: str = _WAIVE,
    ) -> None:
        """Without *ready*, bound replacement pods are enough. *waive* tells people how to give a debt up."""
        self._view = view
        self._controllers = controllers
        self._kept = kept
        self._report = report
        self._ready = ready
        self._waive = waive
        self._evicted: frozenset[str] = frozenset()  # UIDs of pods that are watched still

    def evicted(self, pods: Iterable[PodRef]) -> None:
        """*pods* were evicted by a drain that has ended. They count as gone before their deletion is watched."""
        watched = frozenset(pod.uid for pod in self._view.pods().values())
        self._evicted = watched & (self._evicted | {pod.uid for pod in pods})

    def settle(self) -> Held | None:
        """Forget what is paid or has lapsed; why no drain may begin where something is still owed.

        Raises ReschedulerError where a controller cannot be read.
        """
        debts = self._kept.debts
        if not debts:
            self._report(OwedChanged(0))
            return None
        states = self._states(debts)
        replicas = self._view.replicas(states.values(), evicted=self._evicted)
        missing = {owed: self._missing(owed, states, replicas) for owed in debts}
        open_debts = {owed: lacks for owed, lacks in missing.items() if lacks is not None}
        for node in {owed.node for owed in debts}:
            self._kept.owe(node, [owed.debt for owed in open_debts if owed.node == node])
        self._report(OwedChanged(sum(map(self._pods, open_debts.values()))))
        return self._held(open_debts) if open_debts else None

    def _states(self, debts: tuple[OpenDebt, ...]) -> Mapping[Controller, ControllerState]:
        controllers = frozenset(owed.debt.controller for owed in debts)
        siblings = self._view.siblings({controller.namespace for controller in controllers})
        states = dict(self._controllers.read((), controllers, siblings).states)
        for owed in debts:  # ReplicaSets with names of their own are not looked up again after a restart
            state = states[owed.debt.controller]
            states[state.controller] = replace(state, owner_uids=state.owner_uids.union(owed.debt.owner_uids))
        return states

    def _missing(
        self, owed: OpenDebt, states: Mapping[Controller, ControllerState], replicas: Mapping[Controller, Replicas]
    ) -> Shortfall | None:
        """What the debt still lacks; None where nothing is owed any more."""
        state = states[owed.debt.controller]
        lacks = shortfall(owed.debt, state, replicas.get(state.controller, Replicas()))
        return None if lapsed(owed.debt, state) or paid(lacks, ready=self._ready) else lacks

    def _pods(self, lacks: Shortfall) -> int:
        return max(lacks.ready, lacks.bound) if self._ready else lacks.bound

    def _held(self, open_debts: Mapping[OpenDebt, Shortfall]) -> Held:
        named = [
            f"{owed.debt.controller} lacks {self._pods(lacks)} since the drain of {owed.node}"
            for owed, lacks in list(open_debts.items())[:_NAMED]
        ]
        more = f" and {len(open_debts) - _NAMED} more controllers" if len(open_debts) > _NAMED else ""
        why = f"replacement pods do not run yet: {'; '.join(named)}{more}; {self._waive}"
        return Held(Waiting.LANDING_PENDING, why)
