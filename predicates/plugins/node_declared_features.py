"""NodeDeclaredFeatures: the node must declare what the pod's spec needs of a kubelet (KEP-5328).

Source: ``nodedeclaredfeatures/nodedeclaredfeatures.go`` and ``component-helpers/nodedeclaredfeatures/features``. Of
the features known to 1.36 only these two are inferred for scheduling; neither has a last version.
"""

from functools import lru_cache
from typing import Final

import numpy as np

from predicates.framework import Plugin, Rejections, Scope
from predicates.nodes import Rows
from predicates.objects import PodClass, PodSpec
from predicates.snapshot import Snapshot

REASON: Final = "node(s) didn't match Pod's required features"

RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
USER_NAMESPACES: Final = "UserNamespacesHostNetworkSupport"

#: All that the scheduler knows of, sorted.
_KNOWN: Final = (
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    RESTART_ALL,
    USER_NAMESPACES,
)


def _pre_filter(pod: PodClass) -> frozenset[str] | None:
    needed = []
    if _restarts_all(pod.spec):
        needed.append(RESTART_ALL)
    if pod.spec.host_network and pod.spec.host_users is False:
        needed.append(USER_NAMESPACES)
    return frozenset(needed) or None


def _restarts_all(spec: PodSpec) -> bool:
    containers = (*spec.containers, *spec.init_containers)
    return any(rule.action == "RestartAllContainers" for one in containers for rule in one.restart_policy_rules)


def _filter(needed: frozenset[str], snapshot: Snapshot, rows: Rows) -> Rejections | None:
    table = snapshot.nodes.nodes
    nodes = table[rows] if isinstance(rows, slice) else [table[row] for row in rows.tolist()]
    lacking = np.array(
        [node is not None and not needed <= _known(node.status.declared_features) for node in nodes], np.int64
    )
    return Rejections(lacking, lambda _: (REASON,)) if lacking.any() else None


@lru_cache(maxsize=1024)
def _known(declared: tuple[str, ...]) -> frozenset[str]:
    """The features that the scheduler makes out in the list: it merges it with its own, and takes it to be sorted."""
    found, position = set(), 0
    for known in _KNOWN:
        while position < len(declared) and declared[position] < known:
            position += 1
        if position < len(declared) and declared[position] == known:
            found.add(known)
            position += 1
    return frozenset(found)


PLUGIN: Final = Plugin("NodeDeclaredFeatures", Scope.NODE, _pre_filter, _filter)
