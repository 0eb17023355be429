"""Prices of nodes from the cloud provider."""

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
_MAX_PRICE: Final = 1e9


def provider_prices(provider: CloudProvider, nodes: Iterable[Node], clock: Clock) -> dict[str, Decimal]:
    """Return the hourly prices of *nodes* from *provider*, by node name. Nodes without a known price are left out.

    Nodes that are not queried within PRICE_SECONDS are left out as well.
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
        if math.isfinite(price) and 0 <= price < _MAX_PRICE:
            prices[node.name] = Decimal(repr(float(price)))
    return prices
