"""What happened to the pods of controllers: how often they were moved, and whether they ran again in time."""

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Final

import msgspec

from predicates.objects import Pod
from rescheduler.durations import Backoff
from rescheduler.planning.controllers import Controller, ControllerReading, ControllerState, controller_of
from rescheduler.planning.debts import OpenDebt
from rescheduler.planning.forms import count, instant, merged_entries, merged_value, mine_first, utc
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.rules.pod_traits import belongs_to_node
from rescheduler.planning.waits import CLOCK_SKEW, Count, Moment, Waits

# Records of how often the pods of a controller were moved and returned to on-demand nodes.
#
# Two rules prevent pods from being moved back and forth. After its pods return to an on-demand node, a controller is
# not disrupted for a while; the wait doubles with each further return. And the average number of moves per replica and
# day is limited. Pods without a controller have one record for their namespace.

DAY: Final = timedelta(hours=24)

#: Maximum number of moves that are stored for each controller; beyond it the two oldest are merged.
_MOVES: Final = 24


class Move(msgspec.Struct, frozen=True, array_like=True):
    """Pods of one controller that were evicted by one drain."""

    at: Moment  #: when that drain began to evict
    pods: Count


class ControllerMoves(msgspec.Struct, frozen=True, omit_defaults=True):
    """The recorded moves and returns of one controller's pods."""

    moves: Annotated[tuple[Move, ...], msgspec.Meta(min_length=1)]  #: the oldest first
    returns: Count = 0
    returned: bool = False  #: whether the return after the last move was already counted
    until: Moment | None = None  #: its pods are not moved before this time, because they returned
    namespace: str = ""  #: of the controller

    @property
    def last(self) -> datetime:
        """Return when the last move began."""
        return self.moves[-1].at

    def moved(self, pods: int, at: datetime, *, returned: bool = False) -> "ControllerMoves":
        """Return the record after a drain that began *at* the given time and moved *pods* more pods.

        If they have *returned*, they were moved to on-demand nodes: what is found there later is no return.
        """
        same = [move for move in self.moves if move.at == at]
        others = [move for move in self.moves if move.at != at]
        moves = [*others, Move(at, pods + sum(move.pods for move in same))]
        returned = returned or (self.returned and bool(same))
        return ControllerMoves(_shortened(moves), self.returns, returned, self.until, self.namespace)

    def with_others(self, other: "ControllerMoves", _: object = None) -> "ControllerMoves":
        """Return the record with the moves of both, and the longer wait. Moves at the same time are the same."""
        pods = {move.at: move.pods for move in other.moves}
        moves = pods | {move.at: max(move.pods, pods.get(move.at, 0)) for move in self.moves}
        last = max(self.last, other.last)
        return ControllerMoves(
            _shortened(Move(at, number) for at, number in moves.items()),
            max(self.returns, other.returns),
            any(each.returned for each in (self, other) if each.last == last),
            max((each.until for each in (self, other) if each.until is not None), default=None),
            self.namespace or other.namespace,
        )

    def with_return(self, now: datetime, wait: Backoff) -> "ControllerMoves":
        """Return the record after a return that was observed at *now*."""
        returns = self.returns + 1
        until = now + wait.after(returns)
        return ControllerMoves(self.moves, returns, returned=True, until=until, namespace=self.namespace)

    def in_a_day(self, now: datetime) -> tuple[Move, ...]:
        """Return the moves of the last 24 hours."""
        return tuple(move for move in self.moves if move.at > now - DAY)

    def current(self, now: datetime, wait: Backoff) -> "ControllerMoves | None":
        """Return the record without expired entries, or None if nothing is left.

        Returns expire when the longest wait has passed since the last wait ended.
        """
        moves = self.in_a_day(now)
        if self.until is not None and self.until > now - wait.longest:
            return msgspec.structs.replace(self, moves=moves or self.moves[-1:])
        return ControllerMoves(moves, returned=self.returned, namespace=self.namespace) if moves else None

    def bounded(self, now: datetime, wait: Backoff) -> "ControllerMoves":
        """Return the record without moves in the future and with waits limited to the longest wait.

        It is not known which pods were created after a move in the future, so no pod counts as returned after it.
        """
        if self.last <= now and (self.until is None or self.until <= now + wait.longest):
            return self
        moves = tuple(Move(min(move.at, now), move.pods) for move in self.moves)
        until = None if self.until is None else min(self.until, now + wait.longest)
        return msgspec.structs.replace(self, moves=moves, until=until, returned=self.returned or self.last > now)


def _shortened(moves: Iterable[Move]) -> tuple[Move, ...]:
    """Return the *moves* in their order, of which the oldest are merged if they are too many."""
    moves = sorted(moves, key=lambda move: move.at)
    while len(moves) > _MOVES:
        moves = [Move(moves[1].at, moves[0].pods + moves[1].pods), *moves[2:]]
    return tuple(moves)


class Movements(msgspec.Struct, frozen=True, omit_defaults=True):
    """The records of all topmost controllers, by namespace and UID (:func:`_key`).

    Pods without a controller do not come back. Their record, without a UID, only counts for their namespace.
    """

    by_uid: dict[str, ControllerMoves] = {}

    def moved(self, controller: Controller, pods: int, at: datetime, *, returned: bool = False) -> "Movements":
        """Return the movements after a drain that began *at* the given time and evicted *pods* pods of *controller*.

        Several calls with the same *at* count as one move. *returned* is as for :meth:`ControllerMoves.moved`.
        """
        before = self.by_uid.get(_key(controller))
        after = ControllerMoves((Move(at, pods),), returned=returned, namespace=controller.namespace)
        if before is not None:
            after = before.moved(pods, at, returned=returned)
        return Movements(self.by_uid | {_key(controller): after})

    def moved_without_controller(self, namespace: str, pods: int, at: datetime) -> "Movements":
        """Return the movements after a drain that evicted *pods* pods without a controller, like :meth:`moved`."""
        return self.moved(Controller(namespace, "", "", ""), pods, at)

    def last(self, controller: Controller) -> datetime | None:
        """Return when the last known move of pods of *controller* began."""
        known = self.by_uid.get(_key(controller))
        return None if known is None else known.last

    @property
    def controllers(self) -> dict[str, ControllerMoves]:
        """Return the records of controllers."""
        return {key: moves for key, moves in self.by_uid.items() if not key.endswith("/")}

    def judge(
        self,
        node: str,
        pods: Mapping[ControllerState, Sequence[Pod]],
        now: datetime,
        waits: Waits,
        *,
        recorded: bool = True,
    ) -> tuple["Movements", tuple[Blocker, ...]]:
        """Return the movements with newly observed returns, and the blockers of draining *node* now.

        *pods* are all pods, on any node, of the controllers that have pods to move on *node*. Unless the movements are
        *recorded*, the end of a wait that begins with this observation is not known.
        """
        changed: dict[str, ControllerMoves] = {}
        blockers: list[Blocker] = []
        for state in sorted(pods, key=lambda state: state.controller):
            pods_on_node = sorted((pod for pod in pods[state] if pod.node_name == node), key=lambda pod: pod.key)
            if not pods_on_node:
                continue
            moves = self.by_uid.get(_key(state.controller))
            moves = moves and moves.current(now, waits.returned)
            if moves is not None and not moves.returned and _created_since(moves.last, now, pods_on_node):
                moves = changed[_key(state.controller)] = moves.with_return(now, waits.returned)
            replicas = max(1, len(pods[state]) if state.wanted is None else state.wanted)
            begins = not recorded and _key(state.controller) in changed
            details = (
                _waiting(moves, now, begins=begins),
                _too_often(moves, len(pods_on_node), replicas, now, waits.moves_per_pod),
            )
            blockers += [
                Blocker(Reason.MOVED_RECENTLY, f"{state.controller}: {detail}", pods_on_node[0].key)
                for detail in details
                if detail
            ]
        return (Movements(self.by_uid | changed) if changed else self), tuple(blockers)

    def restless(self, now: datetime, limit: float, count: Callable[[], Mapping[str, int]]) -> dict[str, int]:
        """Return the namespaces whose pods were moved more than *limit* times each in the last 24 hours.

        The number is 1, from twice as often on 2, from four times as often on 3, and so on.

        Each controller is below the limit, but new ones take the place of those that were moved. *count* returns
        the numbers of pods by namespace.
        """
        moved: Counter[str] = Counter()
        for moves in self.by_uid.values():
            moved[moves.namespace] += sum(move.pods for move in moves.in_a_day(now))
        often = {namespace for namespace, pods in moved.items() if limit and pods > limit}
        living = count() if often else {}
        most = {namespace: limit * max(1, living.get(namespace, 0)) for namespace in often}
        return {
            namespace: int(moved[namespace] / most[namespace]).bit_length()
            for namespace in most
            if moved[namespace] > most[namespace]
        }

    def merged(self, remote: "Movements", base: "Movements") -> "Movements":
        """Return the movements with what *remote* changed since *base*."""
        return Movements(merged_entries(self.by_uid, remote.by_uid, base.by_uid, ControllerMoves.with_others))

    def current(self, now: datetime, wait: Backoff) -> "Movements":
        """Return the movements without expired entries."""
        by_uid_now = {uid: moves.current(now, wait) for uid, moves in self.by_uid.items()}
        return Movements({uid: moves for uid, moves in by_uid_now.items() if moves is not None})

    def bounded(self, now: datetime, wait: Backoff) -> "Movements":
        """Return the movements without times that come from a wrong clock."""
        by_uid_now = {uid: moves.bounded(now, wait) for uid, moves in self.by_uid.items()}
        return self if all(by_uid_now[uid] is moves for uid, moves in self.by_uid.items()) else Movements(by_uid_now)


#: Moves of leftovers are remembered for so long. ``--leftover-rest`` is at most that.
LONGEST_REST: Final = timedelta(days=30)

#: A drain that began longer ago has ended, although nobody stored that: it moves nothing any more.
_LONGEST_DRAIN: Final = timedelta(days=1)


class LeftoverMoves(msgspec.Struct, frozen=True, omit_defaults=True):
    """When pods moved to on-demand nodes that stay, by the namespace and UID of what they name as their owner."""

    by_owner: dict[str, Moment] = {}  #: the last time
    first: dict[str, Moment] = {}  #: the first time, of owners whose pods moved more than once
    begun: dict[str, str] = {}  #: owners by the UIDs of pods that a drain is about to move, or has moved
    begun_at: Moment | None = None  #: since when

    def moved(self, owners: Iterable[str], at: datetime, since: datetime | None = None) -> "LeftoverMoves":
        """Return the moves after pods of *owners* moved, the first *since* a time and the last *at* a time."""
        owners, begun = list(owners), {} if since is None else dict.fromkeys(owners, since)
        again = {owner: self.since(owner) for owner in owners if owner in self.by_owner}
        return LeftoverMoves(self.by_owner | dict.fromkeys(owners, at), self.first | begun | again)

    def beginning(self, owners: Mapping[str, str], at: datetime) -> "LeftoverMoves":
        """Return the moves when a drain begins to move pods, whose *owners* are named by UID. They count as moved.

        So do the others of a drain that never ended, because the process was killed and the node is gone.
        """
        return msgspec.structs.replace(self.ended(owners, at), begun=dict(owners), begun_at=at)

    def ended(self, stayed: Container[str], at: datetime) -> "LeftoverMoves":
        """Return the moves after the drain ended *at* a time, of whose pods those with the UIDs *stayed* did not move.

        Each of the others has moved at any time since the drain began.
        """
        if self.begun_at is None:
            return self
        moved = {owner for uid, owner in self.begun.items() if uid not in stayed}
        return self.moved(moved, min(at, self.begun_at + _LONGEST_DRAIN), self.begun_at)

    def since(self, owner: str) -> datetime:
        """Return when pods of *owner* first moved. Raises KeyError if none of its moves is known."""
        return self.first.get(owner, self.by_owner[owner])

    def resting(self, now: datetime, rest: timedelta) -> dict[str, datetime]:
        """Return the owners whose pods moved less than *rest* ago, and when they first did."""
        every = self.ended((), now)
        return {owner: every.since(owner) for owner, at in every.by_owner.items() if now < at + rest}

    def bounded(self, now: datetime) -> "LeftoverMoves":
        """Return the moves without times that come from a wrong clock, and without old ones."""
        if self.begun_at is not None and self.begun_at + _LONGEST_DRAIN < now:
            return self.ended((), now).bounded(now)
        known = {owner: min(at, now) for owner, at in self.by_owner.items() if at > now - LONGEST_REST}
        first = {owner: min(at, now) for owner, at in self.first.items() if owner in known}
        begun_at = None if self.begun_at is None else min(self.begun_at, now)
        same = (known, first, begun_at) == (self.by_owner, self.first, self.begun_at)
        return self if same else LeftoverMoves(known, first, self.begun, begun_at)

    def merged(self, remote: "LeftoverMoves", base: "LeftoverMoves") -> "LeftoverMoves":
        """Return the moves with what *remote* changed since *base*. Of two drains, the one of *remote* has ended."""
        ours, theirs, before = ((each.begun, each.begun_at) for each in (self, remote, base))
        drain = merged_value(ours, theirs, before, mine_first)
        if theirs not in (drain, before) and remote.begun_at is not None:
            remote = remote.ended(self.begun, self.begun_at or remote.begun_at)
        known = merged_entries(self.by_owner, remote.by_owner, base.by_owner, lambda one, other, _: max(one, other))
        first = merged_entries(self.first, remote.first, base.first, lambda one, other, _: min(one, other))
        return LeftoverMoves(known, {key: at for key, at in first.items() if key in known}, *drain)

    def without(self, owners: Container[str]) -> "LeftoverMoves":
        """Return the moves without those of *owners*."""
        known, first = (
            {key: at for key, at in each.items() if key not in owners} for each in (self.by_owner, self.first)
        )
        return msgspec.structs.replace(self, by_owner=known, first=first)


def moved_recently(
    movers: Mapping[str, Sequence[Pod]],
    read: ControllerReading,
    owned: Mapping[ControllerState, Sequence[Pod]],
    movements: Movements,
    now: datetime,
    waits: Waits,
) -> dict[str, tuple[Blocker, ...]]:
    """Return the blockers of the nodes whose pods were moved too often, or have returned. Nothing is recorded.

    *movers* are the pods that would move, by node; *read* are their controllers, and *owned* the pods of these on any
    node. Pods whose controllers were not read do not count.
    """
    found: dict[str, tuple[Blocker, ...]] = {}
    for node, pods in movers.items():
        here = read.of(pods).states.values()
        _, blockers = movements.judge(node, {state: owned[state] for state in here}, now, waits, recorded=False)
        if blockers:
            found[node] = blockers
    return found


def _key(controller: Controller) -> str:
    """Return the key of a record. A pod of another namespace may name the same UID, and has a record of its own."""
    return f"{controller.namespace}/{controller.uid}"


def created_since(moment: datetime, pods: Iterable[Pod]) -> list[datetime]:
    """Return when those of *pods* were created that are not older than *moment*.

    The API server truncates the times to whole seconds.
    """
    created = (instant(pod.creation_timestamp) for pod in pods)
    return [at for at in created if at is not None and at >= moment.replace(microsecond=0)]


def _created_since(moment: datetime, now: datetime, pods: Sequence[Pod]) -> bool:
    """Return whether any of *pods* was created between *moment* and *now*.

    A pod that was created in the future shows that our clock is wrong, and not that it was created after *moment*.
    """
    return any(at <= now + CLOCK_SKEW for at in created_since(moment, pods))


def _waiting(moves: ControllerMoves | None, now: datetime, *, begins: bool) -> str:
    if moves is None or moves.until is None or moves.until <= now:
        return ""
    times = "once" if moves.returns == 1 else f"{moves.returns} times"
    wait = "their wait begins when the node is about to be drained"
    end = wait if begins else f"they are not moved before {utc(moves.until)}"
    return f"its pods returned to on-demand nodes {times}; {end}"


def _too_often(moves: ControllerMoves | None, pods_here: int, replicas: int, now: datetime, limit: float) -> str:
    recent = () if moves is None else moves.in_a_day(now)
    total = sum(move.pods for move in recent)
    if not limit or total + pods_here <= limit * replicas:
        return ""
    remaining, until = total, "its pods on the node exceed the limit of a whole day"
    for move in recent:
        remaining -= move.pods
        if remaining + pods_here <= limit * replicas:
            until = f"not before {utc(move.at + DAY)}"
            break
    return (
        f"{total} of its pods were moved in the last 24 h; {pods_here} more would exceed the limit for {replicas} "
        f"replicas (--max-moves-per-pod-per-day={limit:g}); {until}"
    )


# Owners whose pods did not run again in time after a drain. Their pods are not moved for a while; others are.
#
# The wait of an owner doubles each time its pods are not running in time. After a second owner of one namespace, the
# whole namespace waits in the same way.


class OwnerWait(msgspec.Struct, frozen=True):
    """The wait of one owner, or of a namespace."""

    failures: Count  #: how often its pods did not run in time
    until: Moment

    def or_longer(self, other: "OwnerWait", _: object = None) -> "OwnerWait":
        """Return the wait that has the later end and the larger number of failures of both."""
        return OwnerWait(max(self.failures, other.failures), max(self.until, other.until))


class NotRecovered(msgspec.Struct, frozen=True, omit_defaults=True):
    """The owners that wait, by ``namespace/Kind/name``, and the namespaces that wait, by their name.

    The name identifies an owner, so that one that is deleted and created again waits as well.
    """

    by_name: dict[str, OwnerWait] = {}

    def failed(self, owner: Controller, now: datetime, wait: Backoff, since: datetime | None = None) -> "NotRecovered":
        """Return the waits after the pods of *owner* did not run in time. No effect if the owner waits already.

        A failure that lasts *since* a time before the last wait is not counted again: the owner waits for as long.
        """
        name, namespace = str(owner), owner.namespace
        if self._waits(name, now):
            return self
        failed = {name: self._next(name, now, wait, since)}
        second = any(other != name and other.startswith(f"{namespace}/") for other in self.by_name)
        if second and not self._waits(namespace, now):
            failed[namespace] = self._next(namespace, now, wait, since)
        return NotRecovered(self.by_name | failed)

    def recovered(self, owners: Iterable[Controller]) -> "NotRecovered":
        """Return the waits after a drain that moved pods of *owners*: they run again."""
        return self.released({str(owner) for owner in owners})

    def released(self, names: Collection[str]) -> "NotRecovered":
        """Return the waits without the owners and namespaces *names*.

        A namespace includes its owners, and does not wait any more without the last of them.
        """
        gone = {name for name in self.by_name if name in names or name.partition("/")[0] in names}
        left = {name.partition("/")[0] for name in self.by_name.keys() - gone if "/" in name}
        gone |= {name.partition("/")[0] for name in gone} - left
        return NotRecovered({name: wait for name, wait in self.by_name.items() if name not in gone}) if gone else self

    def merged(self, remote: "NotRecovered", base: "NotRecovered") -> "NotRecovered":
        """Return the waits with what *remote* changed since *base*; of two for a name, the longer one."""
        return NotRecovered(merged_entries(self.by_name, remote.by_name, base.by_name, OwnerWait.or_longer))

    def active(self, now: datetime) -> dict[str, OwnerWait]:
        """Return the waits that have not ended at *now*."""
        return {name: wait for name, wait in self.by_name.items() if wait.until > now}

    def current(self, now: datetime, wait: Backoff) -> "NotRecovered":
        """Return the waits without those that ended longer ago than the longest wait."""
        remaining = {name: known for name, known in self.by_name.items() if known.until > now - wait.longest}
        return self if len(remaining) == len(self.by_name) else NotRecovered(remaining)

    def bounded(self, now: datetime, wait: Backoff) -> "NotRecovered":
        """Return the same waits, limited to the longest allowed wait."""
        latest = now + wait.longest
        shortened = {
            name: OwnerWait(known.failures, latest) for name, known in self.by_name.items() if known.until > latest
        }
        return NotRecovered(self.by_name | shortened) if shortened else self

    def _waits(self, name: str, now: datetime) -> bool:
        return name in self.by_name and self.by_name[name].until > now

    def _next(self, name: str, now: datetime, wait: Backoff, since: datetime | None) -> OwnerWait:
        known = self.by_name.get(name)
        if known is None:
            return OwnerWait(1, now + wait.after(1))
        lasts = since is not None and since <= known.until - wait.after(known.failures)
        failures = known.failures + (not lasts)
        return OwnerWait(failures, now + wait.after(failures))


def blocker(owner: Controller, pod: str, waits: Mapping[str, OwnerWait]) -> Blocker | None:
    """Return a blocker of moving *pod* (``namespace/name``) of *owner* if it or its namespace is one of *waits*."""
    name = str(owner)
    for waiting in (name, owner.namespace):
        if (wait := waits.get(waiting)) is not None:
            return Blocker(Reason.NOT_RECOVERED, _detail(waiting, wait), pod)
    return None


def blockers_by_node(
    pods: Iterable[Pod],
    waits: Mapping[str, OwnerWait],
    debts: Iterable[OpenDebt],
    is_candidate: Callable[[str], bool],
) -> dict[str, tuple[Blocker, ...]]:
    """Return one blocker for each candidate node that must be kept because pods did not run in time.

    These are the nodes with *pods* that must not be moved because of *waits*, and the nodes that pods left which are
    owed by *debts*: a machine whose pods do not run elsewhere may be their only place.
    """
    namespaces = {name.partition("/")[0] for name in waits}
    blockers: dict[str, tuple[Blocker, ...]] = {}
    for owed in debts:
        if is_candidate(owed.node):
            blockers[owed.node] = (*blockers.get(owed.node, ()), _owed(owed))
    if not waits:
        return blockers
    for pod in pods:
        if pod.namespace not in namespaces or not pod.node_name or pod.node_name in blockers:
            continue
        found = _of_pod(pod, waits)
        if found is not None and not belongs_to_node(pod) and is_candidate(pod.node_name):
            blockers[pod.node_name] = (found,)
    return blockers


def _of_pod(pod: Pod, waits: Mapping[str, OwnerWait]) -> Blocker | None:
    name = controller_of(pod)
    return blocker(Controller(pod.namespace, name.kind, name.name, ""), pod.key, waits)


def _owed(owed: OpenDebt) -> Blocker:
    pods = count(max(owed.debt.ready, owed.debt.bound), "pod")
    detail = (
        f"a drain moved pods of {owed.debt.controller} away from this node at {utc(owed.since)}, and it does not "
        f"have {pods} running again; they may also run on this node, which accepts pods again"
    )
    return Blocker(Reason.NOT_RECOVERED, detail)


def _detail(name: str, wait: OwnerWait) -> str:
    whose = name if "/" in name else f"several owners in namespace {name}"
    times = "" if wait.failures == 1 else f" ({wait.failures} times)"
    return f"pods of {whose} did not run in time after a drain{times}; no new attempt before {utc(wait.until)}"
