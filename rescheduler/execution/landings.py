"""Replacement pods that earlier drains still owe.

No drain starts while a debt is younger than the landing timeout. After that, its owner is set aside, and nodes
without its pods are drained, except for the node that the owed pods left. Only if pods of several namespaces are
missing, all drains wait for longer: the cluster itself may be ill. A debt whose owner does not tell how many pods it
wants ends after three landing timeouts.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, Protocol

import msgspec

from rescheduler.clock import Clock
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.execution.context import Controllers
from rescheduler.execution.running_pods import RunningPods
from rescheduler.observe.events import DebtEnded, Held, OwedChanged, Report, Waiting
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.debts import OpenDebt, Replicas, Shortfall, paid, settled_debts, shortfall
from rescheduler.planning.forms import shortened, utc
from rescheduler.planning.last_look import ReadLeases
from rescheduler.planning.outcome import PodRef

#: Maximum number of controllers in a message; the rest is counted.
_NAMED: Final = 3

#: A debt keeps all drains waiting, or ends without evidence, after this many landing timeouts.
_LATE: Final = 3

#: Missing pods of this many namespaces show that the cluster itself may be ill.
_ILL: Final = 2

_WAIVE: Final = "rescheduler resume --waive NAMESPACE/KIND/NAME waives a debt"


class Debts(Protocol):
    """The store for the debts of earlier drains."""

    @property
    def debts(self) -> tuple[OpenDebt, ...]: ...

    @property
    def settled(self) -> tuple[OpenDebt, ...]:
        """The debts that are paid, of drains whose nodes are still there."""
        ...

    def judged(self, debts: tuple[OpenDebt, ...], settled: tuple[OpenDebt, ...]) -> None:
        """Replace the open *debts*, and those that are *settled*."""
        ...

    def set_aside(self, owner: Controller, since: datetime | None = None) -> None:
        """Do not move the pods of *owner* for a while, because they lack *since* a time. No effect while it waits."""
        ...


class Landings:
    """Checks whether the debts of earlier drains are paid. Not thread-safe."""

    def __init__(
        self,
        view: ClusterView,
        controllers: Controllers,
        store: Debts,
        report: Report,
        clock: Clock,
        patience: timedelta,
        read_leases: ReadLeases,
        *,
        ready: bool = True,
        waive: str = _WAIVE,
    ) -> None:
        """Create the checks. *patience* is the landing timeout. Without *ready*, pods only have to be bound.

        *read_leases* reads the Leases of the Nodes of owed pods. *waive* is advice on waiving a debt.
        """
        self._read_leases = read_leases
        self._view = view
        self._running = RunningPods(view, clock)
        self._controllers = controllers
        self._store = store
        self._report = report
        self._clock = clock
        self._patience = patience
        self._ready = ready
        self._waive = waive
        self._at_risk: Mapping[Controller, str] = {}  # why Ready pods may not stay, when they were last counted
        self._evicted: frozenset[str] = frozenset()  # UIDs of evicted pods that are still in the watched state

    def evicted(self, pods: Iterable[PodRef]) -> None:
        """Record *pods* as evicted, so that they count as gone before the watch reports their deletion."""
        watched = frozenset(pod.uid for pod in self._view.snapshot.pods.values())
        self._evicted = watched & (self._evicted | {pod.uid for pod in pods})

    def settle(self) -> Held | None:
        """Delete the debts that are paid or have ended, and set the owners of late ones aside.

        A paid debt is settled while the node that its pods left is there: it keeps this node, and no other, when they
        do not run any more, or may not stay. Return why no drain may start, or None.

        Raises ReschedulerError if a controller cannot be read.
        """
        debts, settled = self._store.debts, [owed for owed in self._store.settled if self._is_there(owed)]
        missing, states = self._judged((*debts, *self._doubtful(settled)))
        open_debts = {owed: each for owed in debts if (each := missing[owed]) is not None}
        paid_now = [owed for owed in debts if owed not in open_debts and self._has_left(owed, states)]
        self._give_up(open_debts, states)
        settled = [msgspec.structs.replace(owed, lacking=missing.get(owed) is not None) for owed in settled]
        ledgers = tuple(open_debts), (*settled, *settled_debts(paid_now, states))
        if ledgers != (debts, self._store.settled):
            self._store.judged(*ledgers)
        self._report(OwedChanged(sum(map(self._pods, open_debts.values()))))
        for owed in open_debts:
            if self._age(owed) >= self._patience:
                self._store.set_aside(owed.debt.controller, owed.since)
        return self._held(open_debts)

    def _is_there(self, owed: OpenDebt) -> bool:
        return self._view.facts.node(owed.node) is not None

    def _has_left(self, owed: OpenDebt, states: Mapping[Controller, ControllerState]) -> bool:
        """Return whether the node is there without pods of the owner: its next drain would not owe them anything."""
        owners = states[owed.debt.controller].owners
        pods = self._view.facts.pods_of(owed.node) if self._is_there(owed) else None
        return pods is not None and not any(pod.owner and (pod.namespace, pod.owner.uid) in owners for pod in pods)

    def _judged(
        self, debts: tuple[OpenDebt, ...]
    ) -> tuple[Mapping[OpenDebt, Shortfall | None], Mapping[Controller, ControllerState]]:
        """Read the controllers of *debts*. Return what is missing, and the controllers."""
        states = self._states(debts) if debts else {}
        left = {owed.node for owed in debts}
        replicas = self._running.replicas(
            states.values(), evicted=self._evicted, left=left, read_leases=self._read_leases
        )
        self._at_risk = {controller: each.at_risk for controller, each in replicas.items() if each.at_risk}
        return {owed: self._missing_pods(owed, states, replicas) for owed in debts}, states

    def _doubtful(self, settled: Collection[OpenDebt]) -> tuple[OpenDebt, ...]:
        """Return the *settled* debts that the watched pods of the owners do not pay any more. Nothing is read."""
        if not settled:
            return ()
        states: dict[Controller, ControllerState] = {}
        for owed in settled:
            state = states.get(owed.debt.controller) or ControllerState(owed.debt.controller, frozenset())
            states[state.controller] = _with_owners(state, owed)
        left = {owed.node for owed in settled}
        replicas = self._running.replicas(states.values(), evicted=self._evicted, left=left)
        return tuple(owed for owed in settled if self._missing_pods(owed, states, replicas) is not None)

    def _give_up(self, open_debts: dict[OpenDebt, Shortfall], states: Mapping[Controller, ControllerState]) -> None:
        """Remove the late debts whose owners do not tell how many pods they want: nothing would ever end them."""
        for owed, missing in list(open_debts.items()):
            state = states[owed.debt.controller]
            if state.wanted is None and self._age(owed) >= _LATE * self._patience:
                del open_debts[owed]
                name = str(owed.debt.controller)
                self._report(DebtEnded(name, owed.node, self._pods(missing), state.unreadable))

    def _age(self, owed: OpenDebt) -> timedelta:
        return self._clock.now() - owed.since

    def _states(self, debts: tuple[OpenDebt, ...]) -> Mapping[Controller, ControllerState]:
        controllers = frozenset(owed.debt.controller for owed in debts)
        siblings = self._view.facts.siblings({controller.namespace for controller in controllers})
        self._controllers.recall(owed.debt for owed in debts)
        states = dict(self._controllers.read((), controllers, siblings).states)
        for owed in debts:  # after a restart, ReplicaSets that do not share the controller's name are not looked up
            states[owed.debt.controller] = _with_owners(states[owed.debt.controller], owed)
        return states

    def _missing_pods(
        self, owed: OpenDebt, states: Mapping[Controller, ControllerState], replicas: Mapping[Controller, Replicas]
    ) -> Shortfall | None:
        """Return how many pods are still missing, or None if the debt is paid or nothing is wanted any more."""
        state = states[owed.debt.controller]
        missing = shortfall(owed.debt, state, replicas.get(state.controller, Replicas()), staying=True)
        return None if paid(missing, ready=self._ready) else missing

    def _pods(self, missing: Shortfall) -> int:
        return max(missing.ready, missing.bound) if self._ready else missing.bound

    def _held(self, open_debts: Mapping[OpenDebt, Shortfall]) -> Held | None:
        young = {owed: missing for owed, missing in open_debts.items() if self._age(owed) < self._patience}
        if young:
            why = f"replacement pods are not running yet: {self._named(young)}; {self._waive}"
            return Held(Waiting.LANDING_PENDING, why)
        recent = {owed: missing for owed, missing in open_debts.items() if self._age(owed) < _LATE * self._patience}
        latest: dict[str, datetime] = {}
        for owed in sorted(recent, key=lambda owed: owed.since):
            latest[owed.debt.controller.namespace] = owed.since
        if len(latest) < _ILL:
            return None
        until = sorted(latest.values())[-_ILL] + _LATE * self._patience
        why = (
            f"replacement pods of the namespaces {', '.join(sorted(latest)[:_NAMED])}{', …' * (len(latest) > _NAMED)} "
            f"did not run in time: {self._named(recent)}; drains wait until they run, or until {utc(until)}; "
        )
        return Held(Waiting.FAILURE_PAUSE, why + self._waive)

    def _why(self, owed: OpenDebt) -> str:
        """Return why Ready pods of an owner may not stay, in brackets, or ""."""
        at_risk = self._at_risk.get(owed.debt.controller)
        return f" ({at_risk})" if at_risk else ""

    def _named(self, debts: Mapping[OpenDebt, Shortfall]) -> str:
        named = [
            f"{owed.debt.controller} lacks {self._pods(missing)} since the drain of {owed.node}{self._why(owed)}"
            for owed, missing in debts.items()
        ]
        return shortened(named, _NAMED, separator="; ", of=" controllers")


def _with_owners(state: ControllerState, owed: OpenDebt) -> ControllerState:
    """Return *state* with the owners that the debt names."""
    return replace(state, owner_uids=state.owner_uids.union(owed.debt.owner_uids))
