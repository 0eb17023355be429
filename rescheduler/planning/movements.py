"""How often the pods of a controller were moved, and how often they came back to on-demand nodes.

Two rules keep pods from being moved back and forth. A controller whose pods come back to an on-demand node after a
move waits, twice as long after each further return. And on average no replica moves more than so many times a day.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import msgspec

from predicates.objects import Pod
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.drainability import instant
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.waits import Count, Doubling, Moment, Waits

DAY: Final = timedelta(hours=24)

#: Moves that are kept apart for each controller; beyond that the two oldest are counted as one.
_MOVES: Final = 96


class Move(msgspec.Struct, frozen=True, array_like=True):
    """Pods of one controller that one drain evicted."""

    at: Moment  #: when that drain began to evict
    pods: Count


class ControllerMoves(msgspec.Struct, frozen=True, omit_defaults=True):
    """What we did to one controller's pods."""

    moves: Annotated[tuple[Move, ...], msgspec.Meta(min_length=1)]  #: the oldest first
    returns: Count = 0
    returned: bool = False  #: the return after the last move is counted already
    until: Moment | None = None  #: its pods are not moved before, since they came back

    @property
    def last(self) -> datetime:
        """When the last move began."""
        return self.moves[-1].at

    def moved(self, pods: int, at: datetime) -> "ControllerMoves":
        same = [move for move in self.moves if move.at == at]
        others = [move for move in self.moves if move.at != at]
        moves = sorted([*others, Move(at, pods + sum(move.pods for move in same))], key=lambda move: move.at)
        if len(moves) > _MOVES:
            moves = [Move(moves[1].at, moves[0].pods + moves[1].pods), *moves[2:]]
        return ControllerMoves(tuple(moves), self.returns, self.returned and bool(same), self.until)

    def came_back(self, now: datetime, wait: Doubling) -> "ControllerMoves":
        """After a return that was noticed at *now*."""
        returns = self.returns + 1
        return ControllerMoves(self.moves, returns, returned=True, until=now + wait.after(returns))

    def in_a_day(self, now: datetime) -> tuple[Move, ...]:
        """The moves of the last 24 hours."""
        return tuple(move for move in self.moves if move.at > now - DAY)

    def current(self, now: datetime, wait: Doubling) -> "ControllerMoves | None":
        """The same without what no longer counts; None where nothing does.

        Returns are forgotten when there was none for the longest wait after the last wait ended.
        """
        moves = self.in_a_day(now)
        if self.until is not None and self.until > now - wait.longest:
            return msgspec.structs.replace(self, moves=moves or self.moves[-1:])
        return ControllerMoves(moves, returned=self.returned) if moves else None

    def bounded(self, now: datetime, wait: Doubling) -> "ControllerMoves":
        """The same without moves in the future, and without a wait that is longer than the longest."""
        if self.last <= now and (self.until is None or self.until <= now + wait.longest):
            return self
        moves = tuple(Move(min(move.at, now), move.pods) for move in self.moves)
        until = None if self.until is None else min(self.until, now + wait.longest)
        return msgspec.structs.replace(self, moves=moves, until=until)


class Movements(msgspec.Struct, frozen=True, omit_defaults=True):
    """The moves of all controllers, by UID of the topmost controller."""

    by_uid: dict[str, ControllerMoves] = {}

    def moved(self, controller: Controller, pods: int, at: datetime) -> "Movements":
        """After the eviction of *pods* pods of *controller* by a drain that began to evict *at* this time.

        A drain may tell its evictions one by one, with the same *at*: they count as one move.
        """
        before = self.by_uid.get(controller.uid)
        moves = ControllerMoves((Move(at, pods),)) if before is None else before.moved(pods, at)
        return Movements(self.by_uid | {controller.uid: moves})

    def judge(
        self, node: str, pods: Mapping[ControllerState, Sequence[Pod]], now: datetime, waits: Waits
    ) -> tuple["Movements", tuple[Blocker, ...]]:
        """What forbids that *node* is drained now, and the movements with the returns that are seen on it.

        *pods* are all pods, on any node, of the controllers that have pods on *node* which would move.
        """
        changed: dict[str, ControllerMoves] = {}
        blockers: list[Blocker] = []
        for state in sorted(pods, key=lambda state: state.controller):
            here = sorted((pod for pod in pods[state] if pod.node_name == node), key=lambda pod: pod.key)
            if not here:
                continue
            moves = self.by_uid.get(state.controller.uid)
            moves = moves and moves.current(now, waits.returned)
            if moves is not None and not moves.returned and _created_since(moves.last, here):
                moves = changed[state.controller.uid] = moves.came_back(now, waits.returned)
            replicas = max(1, len(pods[state]) if state.wanted is None else state.wanted)
            details = _waiting(moves, now), _too_often(moves, len(here), replicas, now, waits.moves_per_pod)
            blockers += [
                Blocker(Reason.MOVED_RECENTLY, f"{state.controller}: {detail}", here[0].key)
                for detail in details
                if detail
            ]
        return (Movements(self.by_uid | changed) if changed else self), tuple(blockers)

    def current(self, now: datetime, wait: Doubling) -> "Movements":
        """The same without what no longer counts."""
        kept = {uid: moves.current(now, wait) for uid, moves in self.by_uid.items()}
        return Movements({uid: moves for uid, moves in kept.items() if moves is not None})

    def bounded(self, now: datetime, wait: Doubling) -> "Movements":
        """The same without what a wrong clock wrote."""
        kept = {uid: moves.bounded(now, wait) for uid, moves in self.by_uid.items()}
        return self if all(kept[uid] is moves for uid, moves in self.by_uid.items()) else Movements(kept)


def _created_since(moment: datetime, pods: Sequence[Pod]) -> bool:
    """Whether any of *pods* was created at *moment* or later. The API server cuts off fractions of seconds."""
    created = (instant(pod.creation_timestamp) for pod in pods)
    return any(at is not None and at >= moment.replace(microsecond=0) for at in created)


def _waiting(moves: ControllerMoves | None, now: datetime) -> str:
    if moves is None or moves.until is None or moves.until <= now:
        return ""
    times = "once" if moves.returns == 1 else f"{moves.returns} times"
    return f"its pods came back to on-demand nodes {times}; it is not moved before {_text(moves.until)}"


def _too_often(moves: ControllerMoves | None, here: int, replicas: int, now: datetime, limit: float) -> str:
    recent = () if moves is None else moves.in_a_day(now)
    total = sum(move.pods for move in recent)
    if not limit or total + here <= limit * replicas:
        return ""
    left, until = total, "its pods on the node are too many for one day"
    for move in recent:
        left -= move.pods
        if left + here <= limit * replicas:
            until = f"not before {_text(move.at + DAY)}"
            break
    return (
        f"{total} of its pods were moved in the last 24 h; {here} more would be too many for {replicas} replicas "
        f"(--max-moves-per-pod-per-day={limit:g}); {until}"
    )


def _text(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
