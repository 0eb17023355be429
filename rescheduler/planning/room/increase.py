"""Orders of spot nodes from the cloud provider: their stored form, their limits, and the progress of an order.

An order is stored before the request to the provider, so that any replica can continue it, or give the nodes back.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Final

import msgspec

from rescheduler.planning.forms import count
from rescheduler.planning.room.placeholders import OrderProgress, OrderState
from rescheduler.planning.waits import Moment

#: The period of ``--max-spot-nodes-per-hour``.
HOUR: Final = timedelta(hours=1)


class SpotOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """Spot nodes that were ordered for the pods of an on-demand node."""

    node: str  #: the on-demand node
    node_uid: str
    group: str  #: of the provider
    count: Annotated[int, msgspec.Meta(ge=1)]
    before: int  #: the target size of the group before the order
    at: Moment
    closing_since: Moment | None = None  #: since when unused nodes have been given back
    arrived: tuple[str, ...] = ()  #: UIDs of the nodes that have joined since, including nodes that are gone
    ended: bool = False

    @property
    def closing(self) -> bool:
        """Return whether nodes that are not used are being given back."""
        return self.closing_since is not None


class SpotOrders(msgspec.Struct, frozen=True, omit_defaults=True):
    """The open order, if there is one, and the orders of the last hour."""

    orders: tuple[SpotOrder, ...] = ()

    @property
    def open(self) -> SpotOrder | None:
        """Return the order that has not ended. There is at most one."""
        return next((order for order in self.orders if not order.ended), None)

    def begun(self, order: SpotOrder) -> "SpotOrders":
        """Return the orders with the new *order*."""
        return SpotOrders((*self.orders, order))

    def closing(self, now: datetime) -> "SpotOrders":
        """Return the orders after the open one began to give unused nodes back."""
        return self._changed(closing_since=now)

    def arrived(self, uids: Iterable[str]) -> "SpotOrders":
        """Return the orders after nodes with *uids* have joined for the open one."""
        existing = self.open.arrived if self.open is not None else ()
        return self._changed(arrived=(*existing, *(uid for uid in uids if uid not in existing)))

    def ended(self) -> "SpotOrders":
        """Return the orders after the end of the open one."""
        return self._changed(ended=True)

    def merged(self, remote: "SpotOrders", base: "SpotOrders") -> "SpotOrders":
        """Return these orders plus the orders that *remote* added to *base*."""
        existing = {(order.node_uid, order.at) for order in (*base.orders, *self.orders)}
        added = (order for order in remote.orders if (order.node_uid, order.at) not in existing)
        return SpotOrders((*self.orders, *added))

    def current(self, now: datetime) -> "SpotOrders":
        """Return these orders without orders that ended and are older than an hour."""
        return SpotOrders(tuple(order for order in self.orders if not order.ended or now - order.at < HOUR))

    def bounded(self, now: datetime) -> "SpotOrders":
        """Return these orders without times in the future: stored times may come from a wrong clock."""
        return SpotOrders(tuple(_bounded(order, now) for order in self.orders))

    def allowed(self, now: datetime, limit: int) -> int:
        """Return how many nodes may still be ordered, if *limit* may be ordered in an hour."""
        return max(0, limit - sum(order.count for order in self.orders if now - order.at < HOUR))

    def _changed(self, **fields: object) -> "SpotOrders":
        changed = (msgspec.structs.replace(order, **fields) if order is self.open else order for order in self.orders)
        return SpotOrders(tuple(changed))


def _bounded(order: SpotOrder, now: datetime) -> SpotOrder:
    closing = min(order.closing_since, now) if order.closing_since is not None else None
    return msgspec.structs.replace(order, at=min(order.at, now), closing_since=closing)


@dataclass(frozen=True, slots=True)
class GroupSize:
    """The target size and the maximum size of a group of the provider."""

    group: str
    target: int
    maximum: int


def why_not_ordered(number: int, size: GroupSize, orders: SpotOrders, now: datetime, limit: int) -> str:
    """Return why *number* nodes must not be ordered in the group, or "". *limit* is the maximum for an hour."""
    if size.target + number > size.maximum:
        return f"group {size.group} has {size.target} of at most {size.maximum} nodes; {number} more would be needed"
    if number > (allowed := orders.allowed(now, limit)):
        flag = f"--max-spot-nodes-per-hour={limit}"
        return f"an order needs {count(number, 'spot node')}, but only {allowed} more may be ordered now ({flag})"
    return ""


@dataclass(frozen=True, slots=True)
class IncreaseProgress(OrderProgress):
    """The state of an order of spot nodes. *running* and *total* are numbers of nodes."""

    def __str__(self) -> str:
        return f"{self.running} of {self.total} spot nodes for the pods of node {self.node} are Ready"


def increase_progress(
    order: SpotOrder,
    arrived: Collection[str],
    node_uid: str | None,
    now: datetime,
    timeout: timedelta,
    *,
    has_pods: bool,
) -> IncreaseProgress:
    """Return the state of *order*.

    *arrived* are its nodes that accept pods. *node_uid* is the current UID of the on-demand node, None if it is gone.
    *has_pods* states whether it has pods that must move. Nodes that arrived are kept for another *timeout*.
    """
    until, running = order.at + timeout, len(arrived)
    if node_uid != order.node_uid or not has_pods:
        state = OrderState.ENDED
    elif running < order.count:
        state = OrderState.TIMED_OUT if now >= until else OrderState.WAITING
    else:
        state = OrderState.UNUSED if now >= until + timeout else OrderState.READY
    return IncreaseProgress(order.node, state, until, running, order.count)


def surplus(order: SpotOrder, target: int) -> int:
    """Return by how much to lower the target size of the group, so that no further machine arrives for *order*.

    Nodes that have arrived count even if they are gone: a machine that was given back is not subtracted again. The
    size is never lowered below the one before the order: a smaller target means that the provider did not accept the
    order, or that someone else lowered the size.
    """
    return max(0, min(order.count - len(order.arrived), target - order.before))
