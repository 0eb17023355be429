"""Promises about leftovers and about what a move is worth, judged from outside: by the evictions of a course."""

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Final

from rescheduler.planning.money.prices import HOURS_PER_MONTH, PriceList
from tests.invariants.history import History
from tests.invariants.objects import SeenPod
from tests.invariants.replay import SeenDrain

#: The first part of the names of workloads whose pods must not run on spot nodes.
PINNED: Final = "pinned"

#: The price of a vCPU of an on-demand node per hour.
VCPU: Final = Decimal("0.05")
PRICES: Final = PriceList(per_vcpu=VCPU, per_gib=Decimal(0), spot_per_vcpu=Decimal("0.017"), spot_per_gib=Decimal(0))

#: The part of the name of a node that has joined again, after the name of the first one.
_AGAIN: Final = "-new-"

#: What a pod of the lowest priority costs less than a move, and more.
_ROUNDING: Final = Decimal("1.001")


def moved_twice(history: History, rest: dt.timedelta) -> Iterator[str]:
    """Yield the leftovers that were evicted again within the *rest*.

    These are pods that were created since pods of their owner first moved, of which the last one moved within the rest,
    and are younger than the rest.
    """
    pods = {each.object.metadata.uid: each.object for each in history.revisions if isinstance(each.object, SeenPod)}
    first, last = dict[str, dt.datetime](), dict[str, dt.datetime]()
    for write in history.writes:
        pod = pods.get(write.uid)
        if write.kind != "pods/eviction" or write.dry_run or not write.accepted or not write.name.startswith(PINNED):
            continue
        if pod is None or pod.controller is None or (created := pod.metadata.creation_timestamp) is None:
            continue
        owner, at = pod.controller.uid, write.received
        moved, before = first.setdefault(owner, at), last.get(owner, dt.datetime.min.replace(tzinfo=dt.UTC))
        last[owner] = at
        if created >= moved.replace(microsecond=0) and at < min(created, before) + rest:
            text = "promise (what moved as a leftover rests)"
            yield f"{at:%H:%M:%S.%f} {text}: pod {pod.key} of {created:%H:%M:%S} was evicted again"


def not_worth_it(drains: Iterable[SeenDrain], cpus: Mapping[str, int], least: Decimal) -> Iterator[str]:
    """Yield the *drains* of nodes that save less for a move than *least*, even if spot nodes cost nothing.

    *cpus* are the vCPU of nodes by name. A pod costs a move at least, as none has an annotation that says less. A node
    that was reopened has not cost its price: it may have made room.
    """
    for drain in drains:
        pods = [each for each in drain.evicted if (each.metadata.creation_timestamp or drain.began) < drain.began]
        price = cpus[drain.node.partition(_AGAIN)[0]] * VCPU * HOURS_PER_MONTH
        if drain.outcome != "rolled back" and len(pods) * least > price * _ROUNDING:
            text = f"promise (no drain is worth less than --min-worth={least}): {len(pods)} pods left node {drain.node}"
            yield f"{drain.began:%H:%M:%S.%f} {text}, which costs {price:.0f} per month"
