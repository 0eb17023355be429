"""Node groups of a cloud provider: their size limits, machines, templates and options."""

import datetime as dt
import enum
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupFlags:
    """The node group flags of Cluster Autoscaler's command line."""

    nodes: tuple[str, ...] = ()  #: the values of ``--nodes``; their format depends on the system
    cluster_name: str = ""  #: ``--cluster-name``


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """A set of identical machines that scale together; both size limits are inclusive."""

    id: str
    min_size: int
    max_size: int
    debug: str = ""  #: a one-line description for people


class InstanceState(enum.StrEnum):
    UNKNOWN = "unknown"
    RUNNING = "running"
    CREATING = "creating"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class InstanceError:
    code: str
    message: str
    out_of_resources: bool = False  #: a lack of stock or quota


@dataclass(frozen=True, slots=True)
class Instance:
    """A machine; `id` is its Node's `spec.providerID`, set before the node joins if it is known."""

    id: str
    state: InstanceState
    error: InstanceError | None = None
    spot: bool | None = None  #: None: unknown
    terminates_at: dt.datetime | None = None  #: when the system will terminate it, if announced


@dataclass(frozen=True, slots=True)
class NodeTaint:
    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """The expected Node of a group's next machine; amounts are Kubernetes quantities."""

    labels: Mapping[str, str]
    taints: tuple[NodeTaint, ...]
    capacity: Mapping[str, str]
    allocatable: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """Cluster Autoscaler's per-group options; `None` means its default."""

    utilization_threshold: float | None = None
    gpu_utilization_threshold: float | None = None
    unneeded_time: dt.timedelta | None = None
    unready_time: dt.timedelta | None = None
    max_provision_time: dt.timedelta | None = None
    zero_or_max_scaling: bool | None = None
    ignore_daemonsets_utilization: bool | None = None
    max_startup_time: dt.timedelta | None = None
    non_atomic_scale_up: bool | None = None
