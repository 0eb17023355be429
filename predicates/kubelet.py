"""What the kubelet of a node refuses, or cannot start, although the scheduler places it there.

This is no plugin of the scheduler. A node is judged only by what it reports: its operating system, the version of its
kubelet, and the features of its container runtime. Sources in ``pkg/kubelet`` of k8s.io/kubernetes: admission
(``lifecycle/predicate.go``, ``lifecycle/features_*.go``, ``nodedeclaredfeatures``), ``userns/userns_manager.go``,
``kubelet_pods.go`` (recursive read-only mounts), ``runtimeclass``. Other reasons are not reported, such as the sysctls
that a kubelet allows: the snapshot may know which nodes have refused such a pod before.
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from predicates.framework import Plugin, Rejections, Scope
from predicates.nodes import MISSING, Flags, Kubelet, RefusingNodes, Rows
from predicates.objects import PodClass, RuntimeClass, RuntimeHandlerFeatures
from predicates.plugins.nodes import required_features, started
from predicates.snapshot import Snapshot
from predicates.versions import parse_minor

NAME: Final = "kubelet"

#: The field of a pod, and the label by mistake, that the kubelet compares with its own operating system.
_OS_LABEL: Final = "kubernetes.io/os"

#: The first minor version of 1.x whose kubelets admit pods with pod-level resources by default.
_POD_LEVEL_SINCE: Final = 34


class Demands(NamedTuple):
    """What pods of a class need from the kubelet of their node."""

    systems: tuple[str, ...] = ()  #: operating systems
    runtime_class: str = ""
    user_namespaces: bool = False
    recursive_read_only: bool = False
    strict_groups: bool = False
    pod_level_resources: bool = False
    features: frozenset[str] = frozenset()


_NOTHING: Final = Demands()

#: One bit of a code for each demand, in their order.
_REASONS: Final = (
    "node(s) do not run the pod's operating system {systems}",
    "node(s) have no runtime handler {handler}",
    "node(s) have a runtime without user namespaces (hostUsers: false)",
    "node(s) have a runtime without recursive read-only mounts (recursiveReadOnly: Enabled)",
    "node(s) have a runtime without supplementalGroupsPolicy: Strict",
    "node(s) have a kubelet without pod-level resources",
    "node(s) have a kubelet without the features {features}",
)


def _is_plain(pod: PodClass) -> bool:
    """Return whether the class has none of the fields that a kubelet may refuse: most have none."""
    spec = pod.spec
    for container in started(spec):
        if container.volume_mounts or container.restart_policy_rules or container.security_context is not None:
            return False
    for volume in spec.volumes:
        if volume.projected is not None and volume.projected.sources:
            return False
    named = spec.os is not None or spec.runtime_class_name or spec.host_users is not None or spec.resources is not None
    return not (named or spec.security_context is not None or _OS_LABEL in pod.labels)


def _pre_filter(pod: PodClass) -> Demands | None:
    if _is_plain(pod):
        return None
    spec = pod.spec
    systems = spec.os.name if spec.os is not None else "", pod.labels.get(_OS_LABEL, "")
    demands = Demands(
        tuple(dict.fromkeys(filter(None, systems))),
        spec.runtime_class_name,
        spec.host_users is False,
        any(mount.recursive_read_only == "Enabled" for each in started(spec) for mount in each.volume_mounts),
        spec.security_context is not None and spec.security_context.supplemental_groups_policy == "Strict",
        spec.resources is not None and bool(spec.resources.requests or spec.resources.limits),
        required_features(pod) or frozenset(),
    )
    return None if demands == _NOTHING else demands


def _filter(demands: Demands, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    """Evaluate each distinct report once, regardless of the number of nodes that have it."""
    handler = ""
    if demands.runtime_class:
        runtime = snapshot.of("RuntimeClass").get(demands.runtime_class)
        if isinstance(runtime, RuntimeClass) and runtime.handler:
            handler = runtime.handler
    kubelets = snapshot.nodes.kubelets
    codes = np.array([_refused(demands, handler, kubelet) for kubelet in kubelets.values], np.int64)
    if not codes.any():
        return None

    def reasons(code: int) -> tuple[str, ...]:
        texts = {
            "systems": " and ".join(demands.systems),
            "handler": handler,
            "features": ", ".join(sorted(demands.features)),
        }
        return tuple(text.format(**texts) for bit, text in enumerate(_REASONS) if code >> bit & 1)

    return Rejections(codes[kubelets.ids[rows]], reasons)


@lru_cache(maxsize=4096)
def _refused(demands: Demands, handler: str, kubelet: Kubelet) -> int:
    """Return a code with a bit for each demand that a node with this *kubelet* does not meet; 0 if it meets them."""
    runtime = next((each for each in kubelet.handlers if each.name == handler), None)
    unnamed = demands.runtime_class and not handler  # the RuntimeClass is not known
    features = RuntimeHandlerFeatures() if runtime is None or unnamed else runtime.features
    minor = parse_minor(kubelet.version)
    unmet = (
        bool(kubelet.os) and any(system != kubelet.os for system in demands.systems),
        bool(handler and kubelet.handlers) and runtime is None,
        demands.user_namespaces and features.user_namespaces is False,
        demands.recursive_read_only and features.recursive_read_only_mounts is False,
        demands.strict_groups and kubelet.features.supplemental_groups_policy is False,
        demands.pod_level_resources and (kubelet.os == "windows" or (minor is not None and minor < _POD_LEVEL_SINCE)),
        bool(kubelet.declared) and not demands.features <= set(kubelet.declared),
    )
    return sum(1 << bit for bit, missing in enumerate(unmet) if missing)


KUBELET: Final = Plugin(NAME, Scope.NODE, _pre_filter, _filter)

# What nodes have refused before.

#: Labels that differ between the pods of one owner, or name the owner, which may be one of many alike.
_OF_ONE_POD: Final = frozenset(
    {
        "statefulset.kubernetes.io/pod-name",
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
        *("controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"),
    }
)

#: The number of kinds of nodes that are looked at for one class: each is one bit of a code.
_KINDS: Final = 60


def digest(pod: PodClass) -> str:
    """Return a digest of what the pods of one template have in common, which another process computes as well."""
    labels = {key: value for key, value in pod.labels.items() if key not in _OF_ONE_POD}
    own = (each for each in pod.spec.volumes if each.persistent_volume_claim is None and each.projected is None)
    spec = replace(pod.spec, volumes=())
    content = msgspec.json.encode([labels, sorted(each.name for each in own), spec], order="deterministic")
    return hashlib.sha256(content).hexdigest()[:16]


def kubelets(snapshot: Snapshot) -> tuple[Plugin, ...]:
    """Return the plugins that tell which nodes of *snapshot* refuse a pod: by their reports, and by experience."""

    def refusing(pod: PodClass) -> tuple[RefusingNodes, ...] | None:
        by_class = snapshot.learned.get(pod.namespace)
        return by_class.get(digest(pod)) if by_class else None

    return KUBELET, Plugin(NAME, Scope.NODE, refusing, _refused_before)


def _refused_before(refusing: tuple[RefusingNodes, ...], snapshot: Snapshot, rows: Rows) -> Rejections | None:
    kinds = refusing[:_KINDS]
    codes = np.zeros(len(snapshot.nodes.alive[rows]), np.int64)
    for bit, kind in enumerate(kinds):
        codes |= _have(kind.labels, snapshot, rows).astype(np.int64) << bit

    def reasons(code: int) -> tuple[str, ...]:
        whys = (kind.why for bit, kind in enumerate(kinds) if code >> bit & 1)
        return tuple(f"node(s) are of a kind that refused such a pod ({why})" for why in whys)

    return Rejections(codes, reasons) if codes.any() else None


def _have(labels: Iterable[tuple[str, Any]], snapshot: Snapshot, rows: Rows) -> Flags:
    """Return which of *rows* have all of *labels*, and not those whose value is None."""
    mask = snapshot.nodes.alive[rows].copy()
    for key, value in labels:
        column = snapshot.nodes.label(key)
        mask &= column.ids[rows] == (MISSING if value is None else column.number.get(value, MISSING - 1))
    return mask
