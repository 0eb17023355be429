"""What virtual nodes and pods cost."""

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final

from rescheduler.errors import UsageError
from rescheduler.liqo.nodemanager.amounts import Amounts, amounts
from rescheduler.liqo.nodemanager.groups import Group

#: The names that Cluster Autoscaler gives to Nodes that are not there yet.
_TEMPLATE: Final = re.compile(r"(?:template-node-)?for-(?P<group>.+?)(?:-\d+)?(?:-upcoming-\d+)?")


def node_price(group: Group, hours: float) -> float:
    return group.cost * hours


def group_of_template(name: str, groups: Mapping[str, Group]) -> Group | None:
    """The group that Cluster Autoscaler's *name* of a template node speaks of, or that is named itself."""
    if name in groups:
        return groups[name]
    found = _TEMPLATE.fullmatch(name)
    return groups.get(found["group"]) if found else None


def pod_price(groups: Sequence[Group], requests: Amounts, hours: float) -> float:
    """The price of a pod's share of a node, in the group where it is cheapest.

    The share is that of the resource of which the pod takes most; of a resource that a group does not have, no
    node of it can give any. UsageError where no group has all that is asked for. A pod of which nothing is known
    is taken for one that fills a node.
    """
    prices = [
        float(share) * node_price(group, hours)
        for group in groups
        if (share := _share(amounts(group.template_resources), requests)) is not None
    ]
    finite = [price for price in prices if math.isfinite(price)]
    if not finite:
        raise UsageError("no group has all the resources that the pod asks for")
    return min(finite)


def _share(node: Amounts, requests: Amounts) -> Decimal | None:
    wanted = {name: amount for name, amount in requests.items() if amount > 0}
    if not requests:
        return Decimal(1)
    if any(not node.get(name) for name in wanted):
        return None
    return max((amount / node[name] for name, amount in wanted.items()), default=Decimal(0))
