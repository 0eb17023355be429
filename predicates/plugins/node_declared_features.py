"""NodeDeclaredFeatures: the node must declare the kubelet features that the pod needs (KEP-5328).

Source: ``nodedeclaredfeatures/nodedeclaredfeatures.go`` and ``component-helpers/nodedeclaredfeatures/features``. Of
the features known to 1.36, only two are inferred from pods at scheduling; neither has a maximum version.
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

#: All features known to the scheduler, sorted.
_KNOWN: Final = (
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    RESTART_ALL,
    USER_NAMESPACES,
)


def _pre_filter(pod: PodClass) -> frozenset[str] | None:
    required = []
    if _restarts_all(pod.spec):
        required.append(RESTART_ALL)
    if pod.spec.host_network and pod.spec.host_users is False:
        required.append(USER_NAMESPACES)
    return frozenset(required) or None


def _restarts_all(spec: PodSpec) -> bool:
    containers = (*spec.containers, *spec.init_containers)
    return any(
        rule.action == "RestartAllContainers" for container in containers for rule in container.restart_policy_rules
    )


def _filter(required: frozenset[str], snapshot: Snapshot, rows: Rows) -> Rejections | None:
    table = snapshot.nodes.nodes
    nodes = table[rows] if isinstance(rows, slice) else [table[row] for row in rows.tolist()]
    missing = np.array(
        [node is not None and not required <= _recognized(node.status.declared_features) for node in nodes], np.int64
    )
    return Rejections(missing, lambda _: (REASON,)) if missing.any() else None


@lru_cache(maxsize=1024)
def _recognized(declared: tuple[str, ...]) -> frozenset[str]:
    """Return the declared features that the scheduler recognizes. It expects a sorted list and misses other entries."""
    recognized, position = set(), 0
    for known in _KNOWN:
        while position < len(declared) and declared[position] < known:
            position += 1
        if position < len(declared) and declared[position] == known:
            recognized.add(known)
            position += 1
    return frozenset(recognized)


PLUGIN: Final = Plugin("NodeDeclaredFeatures", Scope.NODE, _pre_filter, _filter)
