"""What differs between the versions of kube-scheduler: the plugins, their order and weights, and what they do.

This is the only table of versions. A plugin asks ``snapshot.scheduler.version.has(Rule.X)``. Each version in the table
is compared with the scheduler's own plugins (``tests/conformance``).
"""

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


class VersionRule(enum.Enum):
    """A rule of some versions: the first minor version of 1.x that has it by default, and its source.

    Paths are relative to ``pkg/scheduler/framework/plugins`` of k8s.io/kubernetes unless they begin with a repository.
    Gates that are off by default in all known versions have no row: TaintTolerationComparisonOperators,
    GenericWorkload, TopologyAwareWorkloadScheduling, CompositePodGroup, InPlacePodVerticalScalingSchedulerPreemption,
    DRANodeAllocatableResources.

    These differences of 1.38 have no row, because no plan depends on them. Amounts beyond 64 bits, their sums and
    scores saturate instead of wrapping around (``apimachinery/pkg/api/resource``, ``framework/types.go``,
    ``noderesources/least_allocated.go``). An affinity count below 0 is dropped like 0
    (``interpodaffinity/filtering.go``): only preemption removes pods from counts. Storage capacities are compared by
    fractions of a byte, not by whole bytes (``volumebinding/binder.go``).

    Proposed, and in no version yet: a topology domain whose nodes are all tainted does not count for spreading
    (KEP-5980). Today it does, and so does the domain of a drained node (``tests/conformance/test_drain_taint.py``).
    """

    #: A DeviceClass can provide its devices as an extended resource: gate DRAExtendedResource;
    #: ``noderesources/fit.go`` (shouldDelegateResourceToDRA).
    DEVICES_AS_RESOURCES = 36, "DRAExtendedResource"
    #: An in-tree Portworx volume is a CSI volume on every node with a CSINode, not only where an annotation of the
    #: CSINode names its plugin: gate CSIMigrationPortworx; ``nodevolumelimits/utils.go`` (isCSIMigrationOn).
    PORTWORX_MIGRATED = 36, "CSIMigrationPortworx"
    #: Pod-level resources can be resized: gate InPlacePodLevelResourcesVerticalScaling;
    #: ``component-helpers/resource/helpers.go`` (PodRequests).
    POD_LEVEL_RESIZE = 36, "InPlacePodLevelResourcesVerticalScaling"
    #: The load of a pod during a resize is the maximum of three sums (desired, allocated, actual) instead of the sum of
    #: the containers' maxima: ``component-helpers/resource/helpers.go`` (AggregateContainerRequests).
    RESIZE_BY_SUMS = 37, "InPlacePodVerticalScaling"
    #: The namespace selector of an incoming pod's affinity term selects the namespaces that it matches. Before, the
    #: selector was also matched against empty labels: ``interpodaffinity/plugin.go``
    #: (mergeAffinityTermNamespacesIfNotEmpty).
    NAMESPACES_MERGED = 37, ""
    #: A node without a CSI driver of the pod's volumes rejects the pod, if the CSIDriver says
    #: ``preventPodSchedulingIfMissing: true``: ``nodevolumelimits/csi.go`` (checkCSIDriverOnNode).
    DRIVER_REQUIRED = 37, "VolumeLimitScaling"
    #: A node must declare the feature VolumeBindMountOptions, if a pod mounts a volume with such options:
    #: ``component-helpers/nodedeclaredfeatures/features/volumebindmountoptions``.
    MOUNT_OPTIONS_DECLARED = 37, "NodeDeclaredFeatures"
    #: Image volumes score: ``imagelocality/image_locality.go`` (sumImageScores).
    IMAGE_VOLUMES_SCORE = 36, "ImageVolume"
    #: Image volumes count as images for the largest score, as containers do: ``imagelocality/image_locality.go``.
    IMAGE_VOLUMES_COUNT = 37, "ImageVolume"
    #: The change of balance scores, instead of the balance: ``noderesources/balanced_allocation.go``.
    BALANCE_BY_CHANGE = 36, ""
    #: Volumes to be provisioned score by the storage capacity that they leave: ``volumebinding/volume_binding.go``.
    CAPACITY_SCORES = 37, "StorageCapacityScoring"
    #: A spread constraint with an empty selector counts all pods of the namespace. Before, it counted none:
    #: ``podtopologyspread/common.go`` (countPodsMatchSelector).
    EMPTY_SELECTOR_COUNTS = 38, ""
    #: The resources of a pod as a whole score: ``noderesources/fit.go`` (getScorer).
    POD_LEVEL_SCORES = 38, "PodLevelResources"
    #: A node must declare PodCertificateMLDSA or SecurityProfileOCI, if a pod needs it:
    #: ``component-helpers/nodedeclaredfeatures/features`` (podcertificatesmldsa, securityprofileoci).
    SECURITY_DECLARED = 38, "NodeDeclaredFeatures"

    def __init__(self, since: int, gate: str) -> None:
        self.since = since
        self.gate = gate  #: the name of the feature gate, or "" if there is none


#: The order of the filter plugins (``apis/config/v1/default_plugins.go``). The same names are used for PreEnqueue and
#: PreFilter, which come first.
_ORDER_36: Final = (
    "SchedulingGates",
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
    "DynamicResources",
    "NodeDeclaredFeatures",
)
#: The gate NodeDeclaredFeatures is on since 1.36.
_ORDER_34: Final = _ORDER_36[:-1]
_ORDER_37: Final = ("SchedulingGates", "NodeName", "NodeUnschedulable", *_ORDER_36[3:])

#: The weights of the score plugins, which are the same in all versions.
WEIGHTS: Final[Mapping[str, int]] = {
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "NodeResourcesFit": 1,
    "VolumeBinding": 1,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
}


@dataclass(frozen=True, slots=True)
class SchedulerVersion:
    """The rules of kube-scheduler 1.*minor*."""

    minor: int
    plugins: tuple[str, ...]  #: the filter plugins of the default profile, in order

    def has(self, rule: VersionRule) -> bool:
        """Return whether this version has *rule* by default."""
        return self.minor >= rule.since

    def __str__(self) -> str:
        return f"1.{self.minor}"


VERSIONS: Final[Mapping[int, SchedulerVersion]] = {
    minor: SchedulerVersion(minor, plugins)
    for minor, plugins in ((34, _ORDER_34), (35, _ORDER_34), (36, _ORDER_36), (37, _ORDER_37), (38, _ORDER_37))
}
OLDEST: Final = VERSIONS[min(VERSIONS)]
NEWEST: Final = VERSIONS[max(VERSIONS)]
RELEASED: Final = VERSIONS[37]  #: the newest release; its rules apply if the version is not known

_VERSION: Final = re.compile(r"v?1\.([0-9]{1,4})(?:[.+-].*)?", re.DOTALL)


def parse_minor(text: str) -> int | None:
    """Return the minor version of ``1.36``, ``v1.36.3`` or ``v1.36.3-eks-1234``, or None for other texts."""
    match = _VERSION.fullmatch(text)
    return int(match[1]) if match else None


def nearest(minor: int) -> SchedulerVersion:
    """Return the known version 1.*minor*, or the closest known one."""
    return VERSIONS[max(OLDEST.minor, min(NEWEST.minor, minor))]
