"""What clusters have to offer at present: what they share, what our slices hold of it, and how they have done."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Final

from rescheduler.backends.base import InstanceState
from rescheduler.liqo.nodemanager.amounts import Amounts, less, plus, smaller
from rescheduler.liqo.nodemanager.choice import Offer
from rescheduler.liqo.nodemanager.clusters import RemoteCluster
from rescheduler.liqo.nodemanager.foreign_clusters import Tenancy
from rescheduler.liqo.nodemanager.machines import Machine, View
from rescheduler.liqo.nodemanager.store import Failures

_REST: Final = dt.timedelta(minutes=1)  #: of a cluster after a failure; each further one in a row doubles it
_LONGEST_REST: Final = dt.timedelta(minutes=30)


def offers(
    clusters: Sequence[RemoteCluster],
    found: View,
    peerings: Mapping[str, Tenancy],
    failures: Mapping[str, Failures],
    now: dt.datetime,
    *,
    peers: bool,
) -> Sequence[Offer]:
    """*peers*: peerings that are missing can be made."""
    made = []
    for cluster in clusters:
        failed = failures.get(cluster.name)
        obstacle = _resting(failed, now) or _unpeered(cluster, peerings, peers=peers)
        room = available(cluster, found.of_cluster(cluster.name))
        made.append(Offer(cluster, room, failed.count if failed else 0, obstacle))
    return made


def available(cluster: RemoteCluster, machines: Sequence[Machine]) -> Amounts:
    """What *cluster* has left for new slices.

    What it shares, without what our slices hold; and what it says is free, without what those hold that it may not
    have noticed yet.
    """
    held: Amounts = {}
    coming: Amounts = {}
    for machine in machines:
        held = plus(held, machine.held)
        if machine.state is InstanceState.CREATING:
            coming = plus(coming, machine.held)
    unheld = less(cluster.shared, held)
    return unheld if cluster.free is None else smaller(unheld, less(cluster.free, coming))


def rest(failures: int) -> dt.timedelta:
    """For how long a cluster is left alone after so many failures in a row."""
    return min(_REST * float(2 ** min(failures - 1, 10)), _LONGEST_REST)


def _resting(failed: Failures | None, now: dt.datetime) -> str:
    if failed is None or now >= (until := failed.last + rest(failed.count)):
        return ""
    return f"it failed {failed.count} times in a row and is left alone until {until.isoformat(timespec='seconds')}"


def _unpeered(cluster: RemoteCluster, peerings: Mapping[str, Tenancy], *, peers: bool) -> str:
    if (tenancy := peerings.get(cluster.name)) is not None:
        return tenancy.obstacle
    if not peers:
        return "there is no peering with it, and no --liqoctl to make one"
    return "" if cluster.kubeconfig else "there is no peering with it, and no kubeconfig to make one"
