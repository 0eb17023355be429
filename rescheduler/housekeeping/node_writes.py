"""Writes to nodes outside of drains: the soft taint of on-demand nodes, and the cordon of nodes that are not yet
built.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from predicates.objects import Node, Taint
from rescheduler.errors import MarkLost, NotFound, NotLeading, ReschedulerError
from rescheduler.execution import machine_orders
from rescheduler.execution.context import PROVIDER_SECONDS, ClusterApi, DrainContext
from rescheduler.kube.cluster import NodeEdit
from rescheduler.observe.events import ErrorKind, Report, Trouble
from rescheduler.planning.forms import instant
from rescheduler.planning.rules.candidates import UNFINISHED
from rescheduler.providers.base import said

# Cordon nodes that join before their machine is fully built, until the provider reports it as running.
#
# Some systems register a node while its network is still being set up. Pods that are bound to it then can prevent the
# network's own pods from starting. Providers report such machines with
# :meth:`~rescheduler.providers.base.CloudProvider.building`.

#: A node that joined longer ago is uncordoned regardless of the provider's report.
LONGEST: Final = timedelta(minutes=30)

log = logging.getLogger(__name__)


class NewNodes:
    """Cordons and uncordons new nodes. Used by the leader's loop thread only."""

    def __init__(self, access: DrainContext, report: Report) -> None:
        self._access = access
        self._report = report
        self._joined = _JoinTimes({})

    def keep(self, nodes: Mapping[str, Node]) -> bool:
        """Cordon nodes whose machine is being built, and uncordon nodes that are ready. Return whether any changed.

        Nothing is changed while the provider does not respond. The next round retries failed changes.
        """
        now, identity = self._access.clock.now(), self._access.identity
        if nodes is not self._joined.nodes:
            self._joined = _JoinTimes(nodes)
        young = self._joined.young(now)
        ours = [node for node in self._joined.marked if node.metadata.annotations[UNFINISHED] == identity]
        if not young and not ours:
            return False
        try:
            building = self._building(young)
        except ReschedulerError as error:
            self._report(Trouble(ErrorKind.PROVIDER, said(self._access.provider.name, error)))
            return False
        begun = [node for node in young if node.name in building and not node.spec.unschedulable]
        for node in begun:
            edit = NodeEdit(cordon=True, annotate={UNFINISHED: identity}, only_if=self._cordoned)
            self._write(node, edit, "is cordoned until its machine is built")
        finished = [node for node in ours if node.name not in building and _is_fit(node, now)]
        for node in finished:
            edit = NodeEdit(cordon=False, annotate={UNFINISHED: None}, only_if=self._not_ours)
            self._write(node, edit, "accepts pods: its machine is built")
        return bool(begun or finished)

    def _building(self, nodes: Sequence[Node]) -> frozenset[str]:
        deadline = self._access.clock.monotonic() + PROVIDER_SECONDS
        return self._access.provider.building([machine_orders.ref(node) for node in nodes], deadline=deadline)

    def _write(self, node: Node, edit: NodeEdit, outcome: str) -> None:
        try:
            self._access.cluster.edit_node(node.name, node.metadata.uid, edit)
        except (NotFound, MarkLost, NotLeading) as error:  # nothing left to do for this replica
            log.debug("%s", error)
        except ReschedulerError as error:
            self._report(Trouble(ErrorKind.WRITE, str(error), node.name))
        else:
            log.info("node %s %s", node.name, outcome)

    def _cordoned(self, node: Node) -> str:
        return self._not_ours(node) if node.spec.unschedulable else ""

    def _not_ours(self, node: Node) -> str:
        ours = node.metadata.annotations.get(UNFINISHED) == self._access.identity
        return "" if ours else "the cordon belongs to another client"


class _JoinTimes:
    """The times at which nodes joined the cluster, and the nodes that were cordoned."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self.nodes = nodes
        self.marked = [node for node in nodes.values() if UNFINISHED in node.metadata.annotations]
        created = ((instant(node.metadata.creation_timestamp), node) for node in nodes.values())
        self._created = [(since, node) for since, node in created if since is not None]

    def young(self, now: datetime) -> list[Node]:
        """Return the nodes that joined less than LONGEST ago."""
        return [node for since, node in self._created if now - since < LONGEST]


def _is_fit(node: Node, now: datetime) -> bool:
    return node.condition("Ready") == "True" or _age(node, now) >= LONGEST


def _age(node: Node, now: datetime) -> timedelta:
    """Return the time since *node* was created; timedelta.max without a creation timestamp."""
    created = instant(node.metadata.creation_timestamp)
    return now - created if created is not None else timedelta.max


# The taint on on-demand nodes that makes the scheduler prefer spot nodes.
#
# Without it, a pod that is evicted from one on-demand node may be scheduled on another one. The effect of the taint is
# ``PreferNoSchedule``: if the spot nodes are full, pods are still scheduled on on-demand nodes.

#: Cluster Autoscaler ignores taints with this prefix in node templates.
SOFT_TAINT: Final = Taint(
    key="status-taint.cluster-autoscaler.kubernetes.io/spot-rescheduler-prefer-spot", effect="PreferNoSchedule"
)

#: Maximum number of nodes to patch in one round.
NODES_A_ROUND: Final = 50


class SoftTaint:
    """Adds the taint to on-demand nodes if *wanted*, and removes it from all other nodes."""

    def __init__(
        self, cluster: ClusterApi, report: Report, is_on_demand: Callable[[Node], bool], *, wanted: bool
    ) -> None:
        self._cluster = cluster
        self._report = report
        self._is_on_demand = is_on_demand
        self._wanted = wanted
        self._settled: Mapping[str, Node] | None = None  # nodes that need no change

    def keep(self, nodes: Mapping[str, Node]) -> None:
        """Add or remove the taint where necessary. The next round retries failed changes.

        The same *nodes* object is not checked again if its nodes needed no change.
        """
        if nodes is self._settled:
            return
        edits = ((node, self._edit(node)) for node in nodes.values())
        due = [(node, edit) for node, edit in edits if edit is not None]
        self._settled = None if due else nodes
        for node, edit in due[:NODES_A_ROUND]:
            try:
                self._cluster.edit_node(node.metadata.name, node.metadata.uid, edit)
            except NotFound:
                continue
            except NotLeading:
                return
            except ReschedulerError as error:
                self._report(Trouble(ErrorKind.WRITE, str(error), node.metadata.name))
                return

    def _edit(self, node: Node) -> NodeEdit | None:
        present = any(taint.key == SOFT_TAINT.key for taint in node.spec.taints)
        wanted = self._wanted and self._is_on_demand(node)
        if present == wanted:
            return None
        return NodeEdit(taint=(SOFT_TAINT,)) if wanted else NodeEdit(untaint=(SOFT_TAINT.key,))
