"""The rules of kubeaware-cloudpool-proxy for the pods and nodes of a removal, in addition to the daemon's rules."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from predicates.objects import Node, Pod
from predicates.snapshot import Snapshot
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.rules.candidates import CONTROL_PLANE, is_unfinished, node_blockers
from rescheduler.planning.rules.declared import Fate, PodRules
from rescheduler.planning.rules.pod_rules import NOT_RECREATED, SAFE_TO_EVICT
from rescheduler.planning.rules.pod_traits import SAFE_LOCAL_VOLUMES, belongs_to_node, expendable_volumes

#: Pod opt-outs apply as in the daemon; local storage and kube-system have rules of their own here. Pods of other
#: schedulers may be evicted, because the proxy has no option to allow it.
#: No pod is expendable: the original moves them all.
POLICY: Final = Policy(
    skip_nodes_with_local_storage=False,
    skip_nodes_with_system_pods=False,
    scheduler_names=(),
    expendable_pods_priority_cutoff=-(2**31),
)
_SYSTEM: Final = "kube-system"
#: The only node rules of the daemon that do not apply here: :mod:`rescheduler.proxy.victims` has checks of its own.
_OWN_CHECKS: Final = frozenset({Reason.CONTROL_PLANE, Reason.NODE_NOT_READY})


def pod_fate(pod: Pod, rules: PodRules) -> Fate | Blocker:
    """Return what happens to *pod* when its node is removed, or the blocker of the removal."""
    if stays(pod):
        return Fate.STAYS
    opinion = _local_storage(pod) or rules.fate(pod)
    if isinstance(opinion, Blocker) and opinion.reason is Reason.NO_CONTROLLER:
        # The rule's own detail names a flag that only the daemon has.
        return replace(opinion, detail=f'{NOT_RECREATED}; {SAFE_TO_EVICT}: "true" allows eviction')
    return opinion


def stays(pod: Pod) -> bool:
    """Return whether *pod* belongs to the node or to the system, so that it neither moves nor blocks."""
    return pod.namespace == _SYSTEM or belongs_to_node(pod)


def _local_storage(pod: Pod) -> Blocker | None:
    """Return a blocker for hostPath and emptyDir volumes of any medium, unless an annotation allows their loss."""
    if pod.deletion_timestamp is not None or pod.annotations.get(SAFE_TO_EVICT) == "true":
        return None
    expendable = expendable_volumes(pod)
    local = [
        volume.name
        for volume in pod.cls.spec.volumes
        if (volume.host_path is not None or volume.empty_dir is not None) and volume.name not in expendable
    ]
    if not local:
        return None
    detail = f"local storage {', '.join(local)} would be lost; {SAFE_LOCAL_VOLUMES} allows eviction"
    return Blocker(Reason.LOCAL_STORAGE, detail, pod.key)


def control_plane_nodes(snapshot: Snapshot) -> Iterator[str]:
    """Yield the names of control-plane nodes, recognized by label or by an API server pod."""
    for node in snapshot.nodes:
        if any(label in node.metadata.labels for label in CONTROL_PLANE):
            yield node.name
            continue
        for pod in snapshot.pods_on[node.name].values():
            labeled = pod.cls.labels.get("component") == "kube-apiserver"
            if pod.namespace == _SYSTEM and (labeled or pod.name == f"kube-apiserver-{node.name}"):
                yield node.name
                break


def removal_blockers(node: Node, circumstances: Circumstances) -> Iterator[Blocker]:
    """Yield the blockers of the removal of *node*, except for control plane, readiness and pods."""
    blockers = node_blockers(node, POLICY, circumstances)
    return (blocker for blocker in blockers if blocker.reason not in _OWN_CHECKS or is_unfinished(node))
