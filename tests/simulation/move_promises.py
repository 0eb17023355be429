"""The promise about what a move is worth, judged from outside: by the evictions of a course."""

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Final

from rescheduler.planning.money.prices import HOURS_PER_MONTH, PriceList
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
