"""The history of drains, including drains by earlier processes and leaders: delays, cooldowns, pauses, debts, moves."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from predicates.objects import Pod
from rescheduler.clock import Clock
from rescheduler.draining.state import Drain, Failure, Phase, Why
from rescheduler.durations import Backoff
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.housekeeping.synced_memory import MemoryStorage, SyncedMemory
from rescheduler.observe.events import Compared, CoolingDown, Held, InvolvedNode, OwnerSetAside, Report, Waiting
from rescheduler.planning.controllers import Controller, ControllerReading, ControllerState, controller_of
from rescheduler.planning.debts import Debt, OpenDebt, owing, without_paid
from rescheduler.planning.forms import instant, utc
from rescheduler.planning.memory import Memory, StoredSettings
from rescheduler.planning.movements import OwnerWait, blocker, created_since, moved_recently
from rescheduler.planning.outcome import Blocker, DrainKind, Landed, Reason
from rescheduler.planning.policy import LeaderFacts
from rescheduler.planning.pools import PoolState
from rescheduler.planning.refusals import KubeletRefusal
from rescheduler.planning.room.increase import SpotOrders
from rescheduler.planning.rules.leftovers import owner_of
from rescheduler.planning.waits import Cooldown, Pause, Waits
from rescheduler.settings import Timing

#: Maximum pause of all drains after pods returned to on-demand nodes. Owners may wait for longer.
_LONGEST_PAUSE: Final = timedelta(hours=4)

#: Maximum time for which a pool that lost nodes is not trusted, unless the first wait is longer.
_LONGEST_SETTLING: Final = timedelta(hours=6)

#: The most nodes and namespaces that are stored of each kind of facts of the leader.
_NAMES_STORED: Final = 200

#: How often the hours that spot nodes ran are recorded. A restart loses the hours since the last time.
_HOURS_RECORDED: Final = timedelta(hours=1)

#: The longest time between two rounds that counts as hours of nodes: the clock may have jumped.
_LONGEST_ROUND: Final = timedelta(hours=1)


def waits(timing: Timing) -> Waits:
    """Return the waits that the flags specify."""
    return Waits(
        cooldown=Backoff(timing.node_cooldown, timing.node_cooldown_max),
        pause=Backoff(timing.failure_pause, min(timing.failure_pause_max, _LONGEST_PAUSE)),
        recovery=Backoff(timing.failure_pause, timing.failure_pause_max),
        returned=Backoff(timing.return_wait, timing.return_wait_max),
        pool=Backoff(timing.spot_pool_cooldown, max(_LONGEST_SETTLING, timing.spot_pool_cooldown)),
        moves_per_pod=timing.max_moves_per_pod_per_day,
    )


class DrainHistory:
    """The history of earlier drains. Used by the loop's thread only. Changes are stored by the next :meth:`save`."""

    def __init__(
        self,
        store: MemoryStorage,
        timing: Timing,
        clock: Clock,
        report: Report,
        leading: Callable[[], bool],
        *,
        dry_run: bool = False,
        settings: StoredSettings | None = None,
    ) -> None:
        """Create the history; see :class:`~rescheduler.housekeeping.synced_memory.SyncedMemory` for the arguments."""
        self._delay = timing.node_drain_delay
        self._waits = waits(timing)
        self._clock = clock
        self._dry_run = dry_run
        self._report = report
        self._synced = SyncedMemory(store, self._waits, clock, report, leading, dry_run=dry_run, settings=settings)
        self._node_hours: defaultdict[str, float] = defaultdict(float)  #: by pool, that are not recorded yet
        self._pools_seen: datetime | None = None  #: the last time at which the pools were observed
        self._hours_recorded: datetime | None = None

    def refresh(self) -> None:
        """Read the stored memory at the start of a round; see :meth:`SyncedMemory.refresh`."""
        self._synced.refresh()

    def save(self) -> bool:
        """Store the changes. Return whether all are stored; see :meth:`SyncedMemory.save`."""
        return self._synced.save()

    def peek(self) -> None:
        """Read the stored memory for a replica that does not lead; see :meth:`SyncedMemory.peek`."""
        self._synced.peek()

    def forget(self) -> None:
        """Discard the memory, because another replica is the leader."""
        self._synced.forget()
        self._node_hours.clear()
        self._pools_seen = self._hours_recorded = None

    # Queries

    @property
    def memory(self) -> Memory:
        return self._synced.memory

    def held(self) -> Held | None:
        """Return why the history of earlier drains does not allow a drain at present, or None."""
        now = self._clock.now()
        if self._synced.trouble and not self._dry_run:
            return Held(Waiting.MEMORY_UNREADABLE, f"the memory cannot be read or stored: {self._synced.trouble}")
        drained_at = self.memory.drained_at
        if drained_at is not None and (remaining := drained_at + self._delay - now) > timedelta():
            return Held(Waiting.DRAIN_DELAY, f"the drain delay runs for {remaining.total_seconds():.0f} s more")
        if (until := self.memory.returned.active(now)) is not None:
            detail = "evicted pods returned to on-demand nodes; drains wait until"
            advice = "--manage-soft-taint would make the scheduler avoid these nodes"
            return Held(Waiting.RETURNED_PODS, f"{detail} {utc(until)}; {advice}")
        return None

    def next_end(self) -> datetime | None:
        """Return when the next of the remembered waits ends, or None."""
        return self.memory.next_end(self._clock.now(), self._delay)

    def cooling(self) -> Mapping[str, Cooldown]:
        """Return the nodes that are cooling down."""
        return self.memory.cooldowns.active(self._clock.now())

    def not_recovered(self) -> Mapping[str, OwnerWait]:
        """Return the owners and namespaces whose pods are not moved at present."""
        return self.memory.not_recovered.active(self._clock.now())

    def settling(self) -> Mapping[str, datetime]:
        """Return the pools of spot nodes that are not trusted, because they lost nodes, and until when."""
        return self.memory.pools.settling(self._clock.now())

    def vetoes(self, node: str, pods: Mapping[ControllerState, Sequence[Pod]]) -> tuple[Blocker, ...]:
        """Return why *node* must not be drained at present, and record the pods that returned to it.

        *pods* are all pods, on any node, of the controllers whose pods would be evicted from *node*.
        """
        movements, blockers = self.memory.movements.judge(node, pods, self._clock.now(), self._waits)
        self._note(movements=movements)
        return blockers + self._not_recovered_on(node, pods)

    def moved_recently(
        self,
        movers: Mapping[str, Sequence[Pod]],
        read: ControllerReading,
        owned: Mapping[ControllerState, Sequence[Pod]],
    ) -> Mapping[str, tuple[Blocker, ...]]:
        """Return why pods of nodes are not moved again so soon; see :func:`.movements.moved_recently`."""
        return moved_recently(movers, read, owned, self.memory.movements, self._clock.now(), self._waits)

    def _not_recovered_on(self, node: str, pods: Mapping[ControllerState, Sequence[Pod]]) -> tuple[Blocker, ...]:
        waits, first = self.not_recovered(), {}
        for state in sorted(pods, key=lambda state: state.controller) if waits else ():
            first[state.controller] = next((pod for pod in pods[state] if pod.node_name == node), None)
        found = (blocker(owner, pod.key, waits) for owner, pod in first.items() if pod is not None)
        return tuple(one for one in found if one is not None)

    # Changes

    def drained(self, node: str) -> None:
        """Start the drain delay, after a drain of *node*."""
        self._note(drained_at=self._clock.now(), drained_node=node)

    def refused_pod(self, node: str, uid: str) -> str:
        """Return the pod (``namespace/name``) because of whose refused eviction *node* was last not drained, or ""."""
        cooldown = self.memory.cooldowns.by_node.get(node)
        return cooldown.pod if cooldown is not None and cooldown.uid == uid else ""

    def node_failed(self, node: str, uid: str, reason: str = "", detail: str = "", pod: str = "") -> Cooldown:
        """Start the cooldown of *node* after a failed drain. *reason* is shown in place of ``cooling-down``.

        *pod* is the pod whose eviction was refused, if that was the reason.
        """
        cooldowns = self.memory.cooldowns
        cooldowns = cooldowns.failed(node, uid, self._clock.now(), self._waits.cooldown, reason, detail, pod)
        self._note(cooldowns=cooldowns)
        return cooldowns.by_node[node]

    def planned(self, leader: LeaderFacts) -> None:
        """Record what this process knew when it planned all nodes, for commands that plan like it."""
        known = {name: size for name, size in leader.growth.items() if size[0]} or dict(list(leader.growth.items())[:1])
        shortened = {"ending": leader.ending, "ended": leader.ended, "left_pending": leader.left_pending}
        bounded = {name: names[:_NAMES_STORED] for name, names in shortened.items()}
        self._note(leader=msgspec.structs.replace(leader, growth=known, **bounded))

    def node_succeeded(self, node: str, received: Collection[str] = ()) -> None:
        """Record that a drain of *node* succeeded, whose leftovers the nodes *received*."""
        self._note(cooldowns=self.memory.cooldowns.succeeded(node).received(received))

    def node_made_room(self, node: str, uid: str) -> None:
        """Start the cooldown of *node* after it gave pods to spot nodes. It ends when it receives leftovers."""
        self._note(cooldowns=self.memory.cooldowns.made_room(node, uid, self._clock.now(), self._waits.cooldown))

    def keep_nodes(self, uids: Mapping[str, str]) -> None:
        """Delete the cooldowns of all nodes except *uids* (UID by name)."""
        self._note(cooldowns=self.memory.cooldowns.kept(uids))

    def observe_pools(
        self, nodes: Mapping[str, int], lost: Mapping[str, int], trusted: Collection[str] = ()
    ) -> list[PoolState]:
        """Record the numbers of *nodes* of the pools, and how many nodes they *lost* since the last call.

        The pools in *trusted* do not wait after a loss. Return the state of the pools. Hours of nodes are only recorded
        together with losses, or from time to time, so that the memory is not written in each round.
        """
        now = self._clock.now()
        elapsed = min(max(now - (self._pools_seen or now), timedelta()), _LONGEST_ROUND)
        self._pools_seen, self._hours_recorded = now, self._hours_recorded or now
        for pool, number in nodes.items():
            self._node_hours[pool] += number * (elapsed / timedelta(hours=1))
        if lost or now - self._hours_recorded >= _HOURS_RECORDED:
            pools = self.memory.pools.observed(self._node_hours, lost, now, self._waits.pool, trusted)
            self._note(pools=pools.current(now, nodes))
            self._node_hours.clear()
            self._hours_recorded = now
        return self.memory.pools.states(nodes, self._node_hours, now)

    def set_aside(self, owner: Controller, since: datetime | None = None) -> None:
        """Record that the pods of *owner* did not run in time, *since* a time: they are not moved for a while."""
        before = self.memory.not_recovered
        after = before.failed(owner, self._clock.now(), self._waits.recovery, since)
        for name, wait in sorted(after.by_name.items()):
            if before.by_name.get(name) != wait:
                self._report(OwnerSetAside(name, wait.until, wait.failures))
        self._note(not_recovered=after)

    def refused(self, refusal: KubeletRefusal) -> None:
        """Remember what a kubelet has refused: the next plans do not choose nodes of its kind for such pods."""
        self._note(refusals=self.memory.refusals.noted(refusal))

    def recovered(self, owners: Iterable[Controller]) -> None:
        """Record that the pods of *owners* run again after a drain."""
        self._note(not_recovered=self.memory.not_recovered.recovered(owners))

    def pods_returned(self) -> datetime:
        """Record that most pods of a drain returned to on-demand nodes. Return the time until which drains wait."""
        now = self._clock.now()
        longer = self.memory.returned.lengthened(now, self._waits.pause)
        self._note(returned=longer)
        return longer.until or now

    def pods_stayed(self) -> None:
        self._note(returned=Pause())

    def room_failed(self) -> datetime:
        """Record that no spot nodes were added for an order. Return the time before which no other order begins."""
        now = self._clock.now()
        longer = self.memory.room.lengthened(now, self._waits.room)
        self._note(room=longer)
        return longer.until or now

    def room_succeeded(self) -> None:
        self._note(room=Pause())

    def room_paused_until(self) -> datetime | None:
        """Return the time before which no order of spot room begins, or None."""
        return self.memory.room.active(self._clock.now())

    @property
    def spot_orders(self) -> SpotOrders:
        return self.memory.spot_orders

    def note_spot_orders(self, orders: SpotOrders) -> None:
        """Record the orders of spot nodes from the provider."""
        self._note(spot_orders=orders)

    @property
    def debts(self) -> tuple[OpenDebt, ...]:
        return self.memory.debts

    @property
    def settled(self) -> tuple[OpenDebt, ...]:
        return self.memory.settled

    def owe(self, node: str, debts: Iterable[Debt], since: datetime | None = None) -> None:
        """Add the *debts* of a drain of *node* to the ledger, open since *since*."""
        self._note(debts=owing(self.memory.debts, node, debts, self._clock.now(), since))

    def settle(self, node: str, paid: Iterable[Debt], kept: Iterable[Debt]) -> None:
        """Record that a drain of *node* has *paid* these debts, of which some are *kept* as long as the node."""
        debts, settled = self.memory.debts, self.memory.settled
        self.judged(without_paid(debts, node, paid), owing(settled, node, kept, self._clock.now()))

    def judged(self, debts: tuple[OpenDebt, ...], settled: tuple[OpenDebt, ...]) -> None:
        """Replace the open *debts*, and those that are *settled*."""
        self._note(debts=debts, settled=settled)

    def moved(self, controller: Controller, pods: int, at: datetime, *, leftovers: bool = False) -> None:
        """Record that a drain evicted *pods* pods of *controller*, in evictions that began at the time *at*.

        If they were *leftovers*, they did not return by themselves.
        """
        self._note(movements=self.memory.movements.moved(controller, pods, at, returned=leftovers))

    def owner_moved(self, owner: str, pods: int, at: datetime, ready: float | None = None) -> None:
        """Record, for what moves cost, that a drain evicted *pods* pods of *owner*, named as by :func:`controller_of`.

        Their replacement pods were *ready* after so many seconds; None if that is not known.
        """
        self._note(owners=self.memory.owners.moved(owner, pods, at, ready))

    def moves_leftovers(self, owners: Mapping[str, str]) -> None:
        """Record the pods that are about to move to on-demand nodes that stay: *owners* (``namespace/UID``) by UID."""
        if owners:
            self._note(leftovers=self.memory.leftovers.beginning(owners, self._clock.now()))

    def moved_leftovers(self, stayed: Collection[str]) -> None:
        """Record that the drain has ended. The pods with the UIDs *stayed* did not move, so they need no rest."""
        self._note(leftovers=self.memory.leftovers.ended(stayed, self._clock.now()))

    def moved_without_controller(self, namespace: str, pods: int, at: datetime) -> None:
        """Record that a drain evicted *pods* pods of *namespace* that have no controller."""
        self._note(movements=self.memory.movements.moved_without_controller(namespace, pods, at))

    def _note(self, **changes: Any) -> None:
        self._synced.memory = msgspec.structs.replace(self._synced.memory, **changes)


# Record the results of drains in the memory: delays, cooldowns, pauses, debts and moves.

#: Failures that the node did not cause; it does not cool down after them.
NOT_CAUSED_BY_NODE: Final = frozenset({Why.STOPPED, Why.PAUSED, Why.LEADERSHIP_LOST, Why.NODE_GONE})

#: Failures that are shown as the reason while the node cools down. For all others the reason is ``cooling-down``.
_REASONS: Final = {Why.EVICTION_REFUSED: Reason.EVICTION_REFUSED, Why.REFUSED: Reason.PROVIDER_REFUSED}


class DrainRecords:
    """Records the results of drains. Used by the loop's thread only."""

    def __init__(
        self, history: DrainHistory, view: ClusterView, clock: Clock, report: Report, *, returns_pause: bool = True
    ) -> None:
        """Create the recorder. With *returns_pause*, drains pause if most pods of a drain return to on-demand nodes."""
        self._returns_pause = returns_pause
        self._history = history
        self._view = view
        self._clock = clock
        self._report = report
        self._began: datetime | None = None  # when the evictions of the present drain began
        #: UIDs of the pods that it evicted, whose moves are recorded; None until the first time.
        self._counted: set[str] | None = None

    def store(self, drain: Drain, *, end: bool) -> bool:
        """Store the expected debts of a drain. At its *end*, store what it owes, and start the drain delay.

        This process may be killed, and the Node deleted with its mark, at any moment. Return whether all is stored.
        """
        if end:
            self._count_moves(drain, self._began or self._clock.now())
            self._owe(drain)
        else:
            self._began = self._began or self._clock.now()
            self._history.owe(drain.node, drain.debts.values())
            self._history.moves_leftovers({uid: owner for owner, uid in self._leftovers(drain)})
        return self._history.save()

    def _leftovers(self, drain: Drain) -> Iterator[tuple[str, str]]:
        """Yield the owner of each pod of *drain* that goes to an on-demand node, and the UID of the pod."""
        facts = self._view.facts
        for each in drain.placements if drain.purpose.kind is DrainKind.LEFTOVERS else ():
            target = facts.node(each.node)  # None: a spot node that is lost since, or a node that stays no more
            if each.owner is not None and target is not None and facts.is_on_demand(target):
                yield owner_of(each.pod.namespace, each.owner.uid), each.pod.uid

    def record_landing(self, landed: Landed) -> None:
        """Record where the replacement pods of a successful drain were placed."""
        outcomes = {str(outcome): pods for outcome, pods in landed.outcomes.items()}
        self._report(Compared(landed.node, outcomes, landed.returned))
        if landed.badly and self._returns_pause:
            self._history.pods_returned()
        else:
            self._history.pods_stayed()

    def record_end(self, drain: Drain, began: datetime) -> None:
        """Record the end of a drain whose evictions started at *began*."""
        self._count_moves(drain, began)
        self._began, self._counted = None, None
        ready = self._seconds_until_ready(began) if drain.evicted else {}
        for owner, pods in sorted(self._owners(drain).items()):
            self._history.owner_moved(owner, pods, began, ready.get(owner))
        self._history.moved_leftovers(self._stayed(drain))
        self._owe(drain)
        if (why := drain.failure or drain.postponed) is not None:
            self._leave_alone(why)
        if drain.rolled_back:
            pass  # the result of the drain is not known
        elif drain.failure is None:
            self._succeeded(drain)
            moved = {drain.controllers.get(pod.uid) for pod in drain.evicted} - set(drain.owed)
            self._history.recovered(owner for owner in moved if owner is not None)
        else:
            self._failed(drain, drain.failure)
        self._history.save()

    def _count_moves(self, drain: Drain, began: datetime) -> None:
        """Record the moves of *drain* that are not recorded yet. Its evictions started at *began*."""
        leftovers = {drain.controllers.get(uid) for _, uid in self._leftovers(drain)}
        evicted = [pod for pod in drain.evicted if pod.uid not in (self._counted or ())]
        moved = Counter(drain.controllers[pod.uid] for pod in evicted if pod.uid in drain.controllers)
        if self._counted is None:
            moved |= self._moved_before(drain)
        self._counted = {pod.uid for pod in drain.evicted}
        for controller, pods in sorted(moved.items()):
            self._history.moved(controller, pods, began, leftovers=controller in leftovers)
        alone = Counter(pod.namespace for pod in evicted if pod.uid not in drain.controllers)
        for namespace, pods in sorted(alone.items()):
            self._history.moved_without_controller(namespace, pods, began)

    def _moved_before(self, drain: Drain) -> Counter[Controller]:
        """Return the number of pods by controller that have replaced others since another process began *drain*.

        What that process evicted is not known. Pods that were created before the last known move replaced others then.
        """
        moved, facts, memory = Counter[Controller](), self._view.facts, self._history.memory
        begun = {owed.debt.controller: owed.since for owed in memory.debts if owed.node == drain.node}
        for controller, debt in drain.debts.items() if drain.resumed or drain.rolled_back else ():
            times = begun.get(controller, drain.since), memory.movements.last(controller)
            if (since := max(filter(None, times), default=None)) is None:
                continue
            owners = {(controller.namespace, uid) for uid in debt.owner_uids}
            owners |= drain.states[controller].owners if controller in drain.states else set()
            pods = (pod for owned in facts.owned_by(owners).values() for pod in owned if pod.node_name != drain.node)
            moved[controller] = len(created_since(since, (pod for pod in pods if pod.deletion_timestamp is None)))
        return +moved

    def _stayed(self, drain: Drain) -> set[str]:
        """Return the UIDs of the pods that run on the drained node as before: no eviction may have been accepted."""
        pods = self._view.facts.snapshot.pods_on.get(drain.node, {}).values()
        asked = {pod.uid for pod in drain.evicted} | {uid for uid, pod in drain.victims.items() if pod.unanswered}
        return {pod.uid for pod in pods if not pod.cls.terminating} - asked

    def _owners(self, drain: Drain) -> Counter[str]:
        """Return the number of evicted pods by owner, as :func:`controller_of` names the owner of a pod.

        That is not the topmost controller if a custom resource owns it. The pods are gone, and have left others of the
        same owner; the topmost controller stands for an owner that has no pod.
        """
        placed, view = {each.pod.uid: each for each in drain.placements}, self._view.facts.snapshot
        owners: Counter[str] = Counter()
        for pod in drain.evicted:
            if (controller := drain.controllers.get(pod.uid)) is not None:
                owner = placed[pod.uid].owner if pod.uid in placed else None
                alike = view.owned_by((pod.namespace, owner.uid)) if owner is not None else ()
                owners[next((controller_of(each).text for each in alike), str(controller))] += 1
        return owners

    def _seconds_until_ready(self, began: datetime) -> dict[str, float]:
        """Return how long the slowest pod of each owner took to be Ready, of those that were created since *began*."""
        since, slowest = utc(began), dict[str, float]()
        for pod in self._view.facts.snapshot.pods.values():
            if pod.owner is None or (pod.creation_timestamp or "") < since:
                continue
            created, ready = instant(pod.creation_timestamp), instant(pod.ready_since)
            if created is not None and ready is not None and ready >= created:
                name = controller_of(pod).text
                slowest[name] = max(slowest.get(name, 0.0), (ready - created).total_seconds())
        return slowest

    def _owe(self, drain: Drain) -> None:
        """Record unpaid debts. A drain that evicted a pod or requested a termination starts the drain delay.

        An eviction that timed out may have been accepted, so its debt counts as well.
        """
        earlier = drain.resumed or drain.rolled_back  # the pods that another process evicted are not known
        debts = list(drain.leaves_owed.values())
        paid = [debt for controller, debt in drain.debts.items() if controller in drain.paid]
        failed = drain.failure is not None or drain.rolled_back
        moved = {drain.controllers.get(pod.uid) for pod in drain.evicted}
        kept = [debt for debt in paid if failed and (earlier or debt.controller in moved)]
        self._history.settle(drain.node, paid, kept)
        checked = drain.ordered_at is not None and not drain.evicted  # the machine of an earlier order, and no more
        self._history.owe(drain.node, debts, None if checked else self._last_eviction(drain))
        ordered = drain.ordered or drain.phase is Phase.ORDERING
        if not checked and ((earlier and debts) or drain.evicted or ordered):
            self._history.drained(drain.node)

    def _last_eviction(self, drain: Drain) -> datetime | None:
        """Return when the last pod of *drain* was evicted; None if it is not known. Its debts are open since then."""
        if drain.last_eviction_at is None:
            return None
        return self._clock.now() - timedelta(seconds=max(0.0, self._clock.monotonic() - drain.last_eviction_at))

    def _succeeded(self, drain: Drain) -> None:
        node, kind = self._view.facts.node(drain.node), drain.purpose.kind
        if kind is DrainKind.MAKES_ROOM and node is not None:
            self._history.node_made_room(drain.node, node.metadata.uid)
        else:
            received = drain.placements if kind is DrainKind.LEFTOVERS else ()
            self._history.node_succeeded(drain.node, {placement.node for placement in received})

    def _leave_alone(self, failure: Failure) -> None:
        """Do not move for a while the pods to which a drain failed."""
        for owner in failure.owners:
            self._history.set_aside(owner)
        if failure.refusal is not None:
            self._history.refused(failure.refusal)

    def _failed(self, drain: Drain, failure: Failure) -> None:
        node = self._view.facts.node(drain.node)
        if failure.why in NOT_CAUSED_BY_NODE or node is None:
            return
        reason = _REASONS.get(failure.why, "")
        pod = str(failure.pods[0]) if failure.why is Why.EVICTION_REFUSED and failure.pods else ""
        cooldown = self._history.node_failed(drain.node, node.metadata.uid, reason, failure.detail, pod)
        self._report(CoolingDown(InvolvedNode.of(node), cooldown.until, cooldown.failures))
