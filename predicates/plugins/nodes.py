"""The filter plugins that compare a pod with the fields of a node: name, taints, labels, ports, features, gates."""

from functools import lru_cache, reduce
from operator import or_
from typing import Final, TypeAlias

import numpy as np

from predicates.framework import Plugin, Rejections, Scope
from predicates.indexes.by_node import PortsIndex
from predicates.node_selectors import first_untolerated, node_labels_mask, node_selector_mask, tolerated
from predicates.nodes import Rows
from predicates.objects import (
    Container,
    HostPort,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    PodClass,
    PodSpec,
    SecurityContext,
    Taint,
    Toleration,
    Volume,
)
from predicates.selectors import Pair
from predicates.snapshot import Snapshot
from predicates.versions import SchedulerVersion, VersionRule

# NodeName: a pod with ``spec.nodeName`` fits only that node (``nodename/node_name.go``).

REASON: Final = "node(s) didn't match the requested node name"


def _pre_filter(pod: PodClass) -> str | None:
    return pod.spec.node_name or None


def _filter(node_name: str, snapshot: Snapshot, rows: Rows) -> Rejections:
    codes = np.ones(len(snapshot.nodes), np.int64)
    if (row := snapshot.nodes.row.get(node_name)) is not None:
        codes[row] = 0
    return Rejections(codes[rows], lambda _: (REASON,))


NODE_NAME: Final = Plugin("NodeName", Scope.NODE, _pre_filter, _filter)


# NodeUnschedulable: a cordoned node rejects pods that do not tolerate it.
#
# Source: ``nodeunschedulable/node_unschedulable.go``.

NODE_UNSCHEDULABLE_REASON: Final = "node(s) were unschedulable"

_UNSCHEDULABLE: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def _node_unschedulable_pre_filter(pod: PodClass) -> tuple[Toleration, ...]:
    return pod.spec.tolerations


def _node_unschedulable_filter(
    tolerations: tuple[Toleration, ...], snapshot: Snapshot, rows: Rows
) -> Rejections | None:
    cordoned = snapshot.nodes.unschedulable[rows]
    if not cordoned.any() or tolerated(_UNSCHEDULABLE, tolerations):
        return None
    return Rejections(cordoned.astype(np.int64), lambda _: (NODE_UNSCHEDULABLE_REASON,))


NODE_UNSCHEDULABLE: Final = Plugin(
    "NodeUnschedulable", Scope.NODE, _node_unschedulable_pre_filter, _node_unschedulable_filter
)


# TaintToleration: NoSchedule and NoExecute taints must be tolerated (``tainttoleration/taint_toleration.go``).

TAINT_TOLERATION_REASON: Final = "node(s) had untolerated taint(s)"


def _taint_toleration_pre_filter(pod: PodClass) -> tuple[Toleration, ...]:
    return pod.spec.tolerations


def _taint_toleration_filter(tolerations: tuple[Toleration, ...], snapshot: Snapshot, rows: Rows) -> Rejections | None:
    """Evaluate each distinct set of taints once, regardless of the number of nodes that have it."""
    sets = snapshot.nodes.taint_sets
    untolerated = np.array([first_untolerated(taints, tolerations) is not None for taints in sets], np.int64)
    if not untolerated.any():
        return None
    return Rejections(untolerated[snapshot.nodes.taint_set[rows]], lambda _: (TAINT_TOLERATION_REASON,))


TAINT_TOLERATION: Final = Plugin("TaintToleration", Scope.NODE, _taint_toleration_pre_filter, _taint_toleration_filter)


# NodeAffinity: the node must match ``nodeSelector`` and required node affinity (``nodeaffinity/node_affinity.go``).

NODE_AFFINITY_REASON: Final = "node(s) didn't match Pod's node affinity/selector"
ENFORCED: Final = "node(s) didn't match scheduler-enforced node affinity"
_ENFORCED: Final = 2
CONFLICT: Final = "pod affinity terms conflict"

#: ``nodeSelector``, and the required node affinity.
Required: TypeAlias = tuple[tuple[Pair, ...], NodeSelector | None]


def required_by(pod: PodClass) -> Required | None:
    """Return the requirements of pods of this class, or None if they have none."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required if affinity else None
    if required is None and not pod.spec.node_selector:
        return None
    return tuple(sorted(pod.spec.node_selector.items())), required


def _node_affinity_filter(state: Required, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    node_selector, required = state
    if required is not None and _conflicting(required):
        codes = np.ones(len(snapshot.nodes.alive[rows]), np.int64)
        return Rejections(codes, lambda _: (CONFLICT,), prefilter=True)
    matches = node_labels_mask(node_selector, snapshot, rows)
    if required is not None:
        matches &= node_selector_mask(required, snapshot, rows)
    if matches.all():
        return None
    return Rejections((~matches).astype(np.int64), lambda _: (NODE_AFFINITY_REASON,))


def _conflicting(required: NodeSelector) -> bool:
    """Return whether every term selects nodes by name and the names in each of them contradict each other.

    As upstream, this is checked even for terms that the scheduler cannot parse.
    """
    terms = [_node_names(term) for term in required.node_selector_terms]
    names = [term for term in terms if term is not None]
    return bool(terms) and len(names) == len(terms) and not reduce(or_, names)


def _node_names(term: NodeSelectorTerm) -> frozenset[str] | None:
    fields = (field for field in term.match_fields if field.key == "metadata.name" and field.operator == "In")
    names = [frozenset(field.values) for field in fields]
    return names[0].intersection(*names) if names else None


NODE_AFFINITY: Final = Plugin("NodeAffinity", Scope.NODE, required_by, _node_affinity_filter)


def plugin(added: NodeAffinity | None) -> Plugin:
    """Return the plugin with the affinity *added* by the scheduler's configuration for all pods."""
    if added is None or added.required is None:
        return NODE_AFFINITY
    enforced = added.required

    def state(pod: PodClass) -> tuple[Required | None]:
        return (required_by(pod),)

    def filtered(state: tuple[Required | None], snapshot: Snapshot, rows: Rows) -> Rejections | None:
        own = None if state[0] is None else _node_affinity_filter(state[0], snapshot, rows)
        if own is not None and own.prefilter:
            return own
        matches = node_selector_mask(enforced, snapshot, rows)
        codes = np.where(matches, 0 if own is None else own.codes, _ENFORCED)
        return Rejections(codes.astype(np.int64), _reasons) if codes.any() else None

    return Plugin("NodeAffinity", Scope.NODE, state, filtered)


def _reasons(code: int) -> tuple[str, ...]:
    return (ENFORCED if code == _ENFORCED else NODE_AFFINITY_REASON,)


# NodePorts: the pod's host ports must be free on the node (``nodeports/node_ports.go``).

NODE_PORTS_REASON: Final = "node(s) didn't have free ports for the requested pod ports"


def _node_ports_pre_filter(pod: PodClass) -> tuple[HostPort, ...] | None:
    return pod.ports or None


def _node_ports_filter(ports: tuple[HostPort, ...], snapshot: Snapshot, rows: Rows) -> Rejections | None:
    conflicts = snapshot.index(PortsIndex).conflicts(ports, rows)
    if not conflicts.any():
        return None
    return Rejections(conflicts.astype(np.int64), lambda _: (NODE_PORTS_REASON,))


NODE_PORTS: Final = Plugin("NodePorts", Scope.PODS, _node_ports_pre_filter, _node_ports_filter)


# NodeDeclaredFeatures: the node must declare the kubelet features that the pod needs (KEP-5328).
#
# Source: ``nodedeclaredfeatures/nodedeclaredfeatures.go`` and ``component-helpers/nodedeclaredfeatures/features``. Of
# the known features, only five are inferred from pods at scheduling; none has a maximum version.

NODE_DECLARED_FEATURES_REASON: Final = "node(s) didn't match Pod's required features"

RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
USER_NAMESPACES: Final = "UserNamespacesHostNetworkSupport"

MOUNT_OPTIONS: Final = "VolumeBindMountOptions"
CERTIFICATES: Final = "PodCertificateMLDSA"
PROFILES: Final = "SecurityProfileOCI"

#: The features that each version of the scheduler adds.
_KNOWN_36: Final = (
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    RESTART_ALL,
    USER_NAMESPACES,
)
_SINCE_37: Final = (
    "DRANodeAllocatableResources",
    "DRAOptionalNodeOperations",
    "InPlacePodVerticalScalingMemoryBackedVolumes",
    MOUNT_OPTIONS,
)
_SINCE_38: Final = (CERTIFICATES, PROFILES)

_NEW_KEYS: Final = ("MLDSA44", "MLDSA65", "MLDSA87")


def required_features(pod: PodClass) -> frozenset[str] | None:
    """Return the features of a kubelet that pods of this class need, or None."""
    spec = pod.spec
    required: set[str] = set()
    if spec.host_network and spec.host_users is False:
        required.add(USER_NAMESPACES)
    for container in started(spec):
        # Loops instead of generators: this runs for each class of pods, and most have none of these fields.
        for rule in container.restart_policy_rules:
            if rule.action == "RestartAllContainers":
                required.add(RESTART_ALL)
        for mount in container.volume_mounts:
            if mount.bind_mount_options:
                required.add(MOUNT_OPTIONS)
        if _has_oci_profile(container.security_context):
            required.add(PROFILES)
    if _has_oci_profile(spec.security_context):
        required.add(PROFILES)
    for volume in spec.volumes:
        if volume.projected is not None and _has_new_certificate(volume):
            required.add(CERTIFICATES)
    return frozenset(required) or None


def started(spec: PodSpec) -> tuple[Container, ...]:
    """Return all containers of a pod."""
    return *spec.containers, *spec.init_containers


def _has_oci_profile(context: SecurityContext | None) -> bool:
    return context is not None and context.seccomp_profile is not None and context.seccomp_profile.type == "OCI"


def _has_new_certificate(volume: Volume) -> bool:
    """Return whether the kubelet must create an ML-DSA key for the volume (``podcertificatesmldsa/feature.go``)."""
    certificates = [source.pod_certificate for source in volume.projected.sources] if volume.projected else ()
    return any(each is not None and each.key_type in _NEW_KEYS for each in certificates)


def _node_declared_features_filter(required: frozenset[str], snapshot: Snapshot, rows: Rows) -> Rejections | None:
    known = _known_features(snapshot.scheduler.version)
    required &= frozenset(known)
    table = snapshot.nodes.nodes
    nodes = table[rows] if isinstance(rows, slice) else [table[row] for row in rows.tolist()]
    missing = np.array(
        [node is not None and not required <= _recognized(node.status.declared_features, known) for node in nodes],
        np.int64,
    )
    return Rejections(missing, lambda _: (NODE_DECLARED_FEATURES_REASON,)) if missing.any() else None


def _known_features(version: SchedulerVersion) -> tuple[str, ...]:
    """Return all features that the scheduler knows, sorted."""
    known = [*_KNOWN_36]
    known += _SINCE_37 if version.has(VersionRule.MOUNT_OPTIONS_DECLARED) else ()
    known += _SINCE_38 if version.has(VersionRule.SECURITY_DECLARED) else ()
    return tuple(sorted(known))


@lru_cache(maxsize=1024)
def _recognized(declared: tuple[str, ...], known: tuple[str, ...]) -> frozenset[str]:
    """Return the declared features that the scheduler recognizes. It expects a sorted list and misses other entries."""
    recognized, position = set(), 0
    for feature in known:
        while position < len(declared) and declared[position] < feature:
            position += 1
        if position < len(declared) and declared[position] == feature:
            recognized.add(feature)
            position += 1
    return frozenset(recognized)


NODE_DECLARED_FEATURES: Final = Plugin(
    "NodeDeclaredFeatures", Scope.NODE, required_features, _node_declared_features_filter
)


# SchedulingGates: a pod with scheduling gates is not scheduled (``schedulinggates/scheduling_gates.go``).


def _scheduling_gates_pre_filter(pod: PodClass) -> tuple[str, ...] | None:
    gates = pod.spec.scheduling_gates
    return tuple(gate.name for gate in gates) if gates else None


def _scheduling_gates_filter(gates: tuple[str, ...], snapshot: Snapshot, rows: Rows) -> Rejections:
    codes = np.ones(len(snapshot.nodes.alive[rows]), np.int64)
    return Rejections(codes, lambda _: (f"waiting for scheduling gates: [{' '.join(gates)}]",), prefilter=True)


SCHEDULING_GATES: Final = Plugin("SchedulingGates", Scope.NODE, _scheduling_gates_pre_filter, _scheduling_gates_filter)
