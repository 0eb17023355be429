"""Leftovers: pods that must not run on spot nodes, on nodes whose other pods could go there.

They may go to on-demand nodes that stay. Only what the scheduler itself, or every kubelet, keeps away from the spot
nodes is a leftover (:mod:`.pins`): its replacement pod cannot go to spot by chance. What only this program keeps on
on-demand nodes, such as ``spot-rescheduler/min-on-demand-replicas``, is none, and neither is a pod that must not be
evicted at all.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

import numpy as np

from predicates.framework import Plugin, Rejections, Scope
from predicates.nodes import Flags, Rows
from predicates.objects import Node, Pod, PodClass
from predicates.snapshot import Snapshot
from rescheduler.planning.forms import instant
from rescheduler.planning.outcome import Reason
from rescheduler.planning.policy import Circumstances, Now, Policy
from rescheduler.planning.rules.candidates import is_deletion_candidate, node_blockers, starting_taints, takes_pods
from rescheduler.planning.rules.minimum import keeps_pods
from rescheduler.planning.rules.pins import Pins, UnreadableObjects
from rescheduler.planning.rules.pod_traits import is_expendable
from rescheduler.planning.waits import CLOCK_SKEW

_OWED: Final = Reason.NOT_RECOVERED
_NAME: Final = "leftovers"
_REASON: Final = "node(s) were no spot nodes, and the pod may run on one"


def spot_first(pins: Pins, spot: Flags) -> Plugin:
    """Return the plugin by which nodes that are not *spot* (one flag a row) reject all pods but leftovers."""

    def pre_filter(pod: PodClass) -> str | None:
        return _NAME if pins.of(pod) is None else None

    def rejections(_: str, __: Snapshot, rows: Rows) -> Rejections | None:
        others = ~spot[rows]
        return Rejections(others.astype(np.int64), lambda _: (_REASON,)) if others.any() else None

    return Plugin(_NAME, Scope.NODE, pre_filter, rejections)


def receivers(
    names: Iterable[str],
    snapshot: Snapshot,
    policy: Policy,
    circumstances: Circumstances,
    unreadable: UnreadableObjects,
) -> list[int]:
    """Return the rows of the on-demand nodes *names* that accept pods and are not about to go, in the same order.

    A node that pods have left which do not run again is none: it may be the only place for them. One with pods of an
    owner that waits is: such pods may be anywhere. Neither is one without pods that nothing keeps: it is free already,
    and would be filled again.
    """
    table, starting = snapshot.nodes, starting_taints(snapshot, policy)
    avoided = circumstances.ending | circumstances.ordered | unreadable.nodes
    vetoes = circumstances.vetoes.items()
    owing = {name for name, found in vetoes if any(each.reason is _OWED and each.pod is None for each in found)}
    rows = (table.row[name] for name in names if name not in owing)
    known = ((row, node) for row in rows if (node := table.nodes[row]) is not None)
    lasting = ((row, node) for row, node in known if takes_pods(node, avoided, starting))
    lasting = ((row, node) for row, node in lasting if not is_deletion_candidate(node))
    return [row for row, node in lasting if not _is_free(node, snapshot, policy, circumstances)]


def _is_free(node: Node, snapshot: Snapshot, policy: Policy, circumstances: Circumstances) -> bool:
    """Return whether *node* has no pods but expendable ones and may be removed, by whomever."""
    cutoff = policy.expendable_pods_priority_cutoff
    if keeps_pods(pod for pod in snapshot.pods_on[node.name].values() if not is_expendable(pod.cls, cutoff)):
        return False
    return not node_blockers(node, policy, circumstances, empty=True)


def owner_of(namespace: str, uid: str) -> str:
    """Return the key of an owner in :attr:`.Circumstances.rested`."""
    return f"{namespace}/{uid}"


def rests(pod: Pod, policy: Policy, circumstances: Circumstances) -> bool:
    """Return whether *pod* may have moved as a leftover, and has not rested since then.

    It was created since pods of its owner first did. Its own age decides: others may have moved later.
    """
    moved = circumstances.rested.get(owner_of(pod.namespace, pod.owner.uid)) if pod.owner is not None else None
    created = instant(pod.creation_timestamp)
    if moved is None or created is None:
        return moved is not None
    now, rest = Now(circumstances.now, circumstances.deadlines), timedelta(seconds=policy.leftover_rest)
    return created >= moved - CLOCK_SKEW and not now.reached(created + rest)
