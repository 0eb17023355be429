"""Prices of virtual nodes and pods."""

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final

from rescheduler.errors import UsageError
from rescheduler.liqo_services.node_manager.amounts import Amounts, amounts
from rescheduler.liqo_services.node_manager.groups import VirtualNodeGroup

#: Matches Cluster Autoscaler's names of nodes that do not exist yet.
_TEMPLATE: Final = re.compile(r"(?:template-node-)?for-(?P<group>.+?)(?:-\d+)?(?:-upcoming-\d+)?")


def node_price(group: VirtualNodeGroup, hours: float) -> float:
    return group.cost * hours


def group_of_template(name: str, groups: Mapping[str, VirtualNodeGroup]) -> VirtualNodeGroup | None:
    """Return the group called *name*, or the group whose template node Cluster Autoscaler named *name*."""
    if name in groups:
        return groups[name]
    match = _TEMPLATE.fullmatch(name)
    return groups.get(match["group"]) if match else None


def pod_price(groups: Sequence[VirtualNodeGroup], requests: Amounts, hours: float) -> float:
    """Return the price of a pod's share of a node, in the cheapest group that has all of its resources.

    The share is the largest share of any resource. A pod without requests counts as a full node. Raises UsageError if
    no group has all of the resources.
    """
    prices = [
        float(share) * node_price(group, hours)
        for group in groups
        if (share := _share(amounts(group.template_resources), requests)) is not None
    ]
    finite = [price for price in prices if math.isfinite(price)]
    if not finite:
        raise UsageError("no group has all the resources that the pod requests")
    return min(finite)


def _share(node: Amounts, requests: Amounts) -> Decimal | None:
    wanted = {name: amount for name, amount in requests.items() if amount > 0}
    if not requests:
        return Decimal(1)
    if any(not node.get(name) for name in wanted):
        return None
    return max((amount / node[name] for name, amount in wanted.items()), default=Decimal(0))
