"""The current offers of clusters: their shared resources minus our slices, and their failures."""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Final

from rescheduler.backoff import Backoff
from rescheduler.liqo_services.node_manager.amounts import Amounts, limit_to, plus, subtract
from rescheduler.liqo_services.node_manager.choice import Offer
from rescheduler.liqo_services.node_manager.clusters import RemoteCluster
from rescheduler.liqo_services.node_manager.foreign_clusters import Tenancy
from rescheduler.liqo_services.node_manager.machines import MachinesView, VirtualMachine
from rescheduler.liqo_services.node_manager.store import Failures
from rescheduler.providers.base import InstanceState

#: How long a cluster is not used after consecutive failures.
BACKOFF: Final = Backoff(dt.timedelta(minutes=1), dt.timedelta(minutes=30))


def offers(
    clusters: Sequence[RemoteCluster],
    view: MachinesView,
    peerings: Mapping[str, Tenancy],
    failures: Mapping[str, Failures],
    now: dt.datetime,
    *,
    peers: bool,
) -> Sequence[Offer]:
    """Return the offers. *peers* states whether missing peerings can be established."""
    current = []
    for cluster in clusters:
        failed = failures.get(cluster.name)
        obstacle = _backoff_reason(failed, now) or _peering_obstacle(cluster, peerings, peers=peers)
        room = available(cluster, view.of_cluster(cluster.name))
        current.append(Offer(cluster, room, failed.count if failed else 0, obstacle))
    return current


def available(cluster: RemoteCluster, machines: Sequence[VirtualMachine]) -> Amounts:
    """Return the resources that *cluster* has left for new slices.

    This is the smaller of its shared resources minus our slices, and its reported free resources minus our slices that
    it may not have counted yet.
    """
    held: Amounts = {}
    coming: Amounts = {}
    for machine in machines:
        held = plus(held, machine.held)
        if machine.state is InstanceState.CREATING:
            coming = plus(coming, machine.held)
    unheld = subtract(cluster.shared, held)
    return unheld if cluster.free is None else limit_to(unheld, subtract(cluster.free, coming))


def _backoff_reason(failed: Failures | None, now: dt.datetime) -> str:
    if failed is None or now >= (until := failed.last + BACKOFF.after(failed.count)):
        return ""
    return f"it failed {failed.count} times in a row and is not used until {until.isoformat(timespec='seconds')}"


def _peering_obstacle(cluster: RemoteCluster, peerings: Mapping[str, Tenancy], *, peers: bool) -> str:
    if (tenancy := peerings.get(cluster.name)) is not None:
        return tenancy.obstacle
    if not peers:
        return "there is no peering with it, and no --liqoctl to establish one"
    return "" if cluster.kubeconfig else "there is no peering with it, and no kubeconfig to establish one"
