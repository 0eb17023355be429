"""Prices of nodes that the cloud provider knows."""

import math
from collections.abc import Iterable
from datetime import timedelta
from decimal import Decimal
from typing import Final

from predicates.objects import Node
from rescheduler.clock import Clock
from rescheduler.errors import ReschedulerError
from rescheduler.execution import node_refs
from rescheduler.providers.base import CloudProvider, NotSupported

#: Timeout in seconds for the prices of all nodes together. They are read right before a drain.
PRICE_SECONDS: Final = 10.0

_HOUR: Final = timedelta(hours=1)

#: Prices of at least this amount are implausible and are ignored.
_MOST: Final = 1e9


def provider_prices(provider: CloudProvider, nodes: Iterable[Node], clock: Clock) -> dict[str, Decimal]:
    """Ask *provider* for the prices per hour of *nodes*. Nodes whose price it does not know are left out.

    After PRICE_SECONDS, the rest is left out as well.
    """
    deadline, prices = clock.monotonic() + PRICE_SECONDS, {}
    for node in nodes:
        now = clock.now()
        try:
            price = provider.node_price(node_refs.ref(node), now, now + _HOUR, deadline=deadline)
        except NotSupported:
            break
        except ReschedulerError:
            if clock.monotonic() >= deadline:
                break
            continue
        if math.isfinite(price) and 0 <= price < _MOST:
            prices[node.name] = Decimal(repr(float(price)))
    return prices
