"""The cluster's kube-scheduler: its profiles by ``schedulerName``, and what differs between its versions."""

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from predicates.objects import Amounts, NodeAffinity, PodClass, TopologySpreadConstraint

# What differs between the versions of kube-scheduler: the plugins, their order and weights, and what they do.
#
# This is the only table of versions. A plugin asks ``snapshot.scheduler.version.has(Rule.X)``. Each version in the
# table is compared with the scheduler's own plugins (``tests/conformance``).


class Rule(enum.Enum):
    """A rule of some versions: the first minor version of 1.x that has it by default, and its source.

    Paths are relative to ``pkg/scheduler/framework/plugins`` of k8s.io/kubernetes unless they begin with a repository.
    Gates that are off by default in all known versions have no row: TaintTolerationComparisonOperators,
    GenericWorkload, InPlacePodVerticalScalingSchedulerPreemption, DRANodeAllocatableResources.

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

    def has(self, rule: Rule) -> bool:
        """Return whether this version has *rule* by default."""
        return self.minor >= rule.since

    def __str__(self) -> str:
        return f"1.{self.minor}"


VERSIONS: Final[Mapping[int, SchedulerVersion]] = {
    minor: SchedulerVersion(minor, plugins)
    for minor, plugins in ((34, _ORDER_34), (35, _ORDER_34), (36, _ORDER_36), (37, _ORDER_37))
}
OLDEST: Final = VERSIONS[min(VERSIONS)]
NEWEST: Final = VERSIONS[max(VERSIONS)]

_VERSION: Final = re.compile(r"v?1\.([0-9]{1,4})(?:[.+-].*)?", re.DOTALL)


def parse_minor(text: str) -> int | None:
    """Return the minor version of ``1.36``, ``v1.36.3`` or ``v1.36.3-eks-1234``, or None for other texts."""
    match = _VERSION.fullmatch(text)
    return int(match[1]) if match else None


def nearest(minor: int) -> SchedulerVersion:
    """Return the known version 1.*minor*, or the closest known one."""
    return VERSIONS[max(OLDEST.minor, min(NEWEST.minor, minor))]


# The cluster's kube-scheduler: its version, and its profiles by ``schedulerName``.

DEFAULT_NAME: Final = "default-scheduler"


@dataclass(frozen=True, slots=True)
class ScoringStrategy:
    """How NodeResourcesFit scores a node (``ScoringStrategy``)."""

    type: str = "LeastAllocated"  #: or MostAllocated, RequestedToCapacityRatio
    resources: tuple[tuple[str, int], ...] = (("cpu", 1), ("memory", 1))  #: with their weights
    shape: tuple[tuple[int, int], ...] = ()  #: of RequestedToCapacityRatio, with scores up to 100


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile (``KubeSchedulerProfile``): the plugins that run for pods with its name, and their arguments."""

    version: SchedulerVersion
    filters: tuple[str, ...]  #: the plugins of PreFilter and Filter, in order
    weights: tuple[tuple[str, int], ...]  #: the score plugins
    before: frozenset[str] = frozenset()  #: those that only run before the nodes are looked at (PreFilter)
    name: str = DEFAULT_NAME
    volume_shape: tuple[tuple[int, int], ...] = ()  #: of VolumeBinding, with scores up to 100; empty: the default
    added_affinity: NodeAffinity | None = None  #: of NodeAffinity, for all pods of the profile
    ignored_resources: frozenset[str] = frozenset()  #: of NodeResourcesFit: extended resources that it does not check
    ignored_groups: frozenset[str] = frozenset()  #: the same, by what comes before the slash
    strategy: ScoringStrategy = ScoringStrategy()
    #: Of PodTopologySpread, for pods without constraints; None: those of the system.
    spread_defaults: tuple[TopologySpreadConstraint, ...] | None = None

    def has(self, plugin: str) -> bool:
        """Return whether a filter plugin runs."""
        return plugin in self.filters and plugin not in self.before

    def checked(self, requests: Amounts) -> Amounts:
        """Return the *requests* that a node must have free: without the extended resources that are ignored.

        Source: ``noderesources/fit.go`` (fitsRequest).
        """
        if not self.ignored_resources and not self.ignored_groups:
            return requests
        return tuple(request for request in requests if not self._ignores(request[0]))

    def _ignores(self, name: str) -> bool:
        group, slash, _ = name.partition("/")
        extended = slash and "kubernetes.io/" not in name and not name.startswith("requests.")
        return bool(extended) and (name in self.ignored_resources or group in self.ignored_groups)


def default_profile(version: SchedulerVersion) -> Profile:
    """Return the profile of a scheduler of *version* without a configuration."""
    return Profile(version, version.plugins, tuple(WEIGHTS.items()))


@dataclass(frozen=True, slots=True)
class PluginSet:
    """The plugins of one extension point of a configuration (``PluginSet``)."""

    enabled: tuple[tuple[str, int], ...] = ()  #: with their weights; 0: none is given
    disabled: frozenset[str] = frozenset()  #: ``*``: all

    def merged(self, defaults: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
        """Return *defaults* with these changes (``mergePluginSet``). One that is enabled again keeps its place."""
        own = dict(self.enabled)
        keep = () if "*" in self.disabled else (item for item in defaults if item[0] not in self.disabled)
        kept = [(name, own.pop(name, weight)) for name, weight in keep]
        return (*kept, *own.items())

    def expanded(self, everywhere: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
        """Return the plugins of this extension point, if *everywhere* are those of ``multiPoint``.

        Those that are named in both come first, and those that are only named here last
        (``framework/runtime/framework.go``, expandMultiPointPlugins).
        """
        if "*" in self.disabled:
            return self.enabled
        own, names = dict(self.enabled), [item for item in everywhere if item[0] not in self.disabled]
        both = [(name, own[name]) for name, _ in names if name in own]
        rest = [item for item in self.enabled if item not in both]
        return (*both, *(item for item in names if item[0] not in own), *rest)


@dataclass(frozen=True, slots=True)
class ConfiguredProfile:
    """A profile of a configuration, for any version of the scheduler."""

    name: str = DEFAULT_NAME
    everywhere: PluginSet = PluginSet()  #: ``multiPoint``
    pre_enqueue: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    arguments: Profile | None = None  #: has the arguments of the plugins; None: the defaults

    def of(self, version: SchedulerVersion) -> Profile:
        """Return the profile that a scheduler of *version* runs."""
        names = (*version.plugins, *(name for name in WEIGHTS if name not in version.plugins))
        everywhere = self.everywhere.merged([(name, WEIGHTS.get(name, 0)) for name in names])
        checks = [name for name in version.plugins if name != "SchedulingGates"]
        queued = [item[0] for item in self.pre_enqueue.expanded(everywhere) if item[0] == "SchedulingGates"]
        filters = [name for name, _ in self.filter.expanded(everywhere) if name in checks]
        scores = [(name, weight or 1) for name, weight in self.score.expanded(everywhere) if name in WEIGHTS]
        before = [name for name, _ in self.pre_filter.expanded(everywhere) if name in checks]
        given = self.arguments or default_profile(version)
        return replace(
            given,
            version=version,
            name=self.name,
            filters=(*queued, *_ordered(before, filters)),
            before=frozenset(before) - frozenset(filters),
            weights=tuple(scores),
        )


def _ordered(before: Sequence[str], filters: Sequence[str]) -> list[str]:
    """Return *filters* with the plugins that are only in *before*, each in front of those that follow it there."""
    ordered = list(filters)
    for number in reversed(range(len(before))):
        if before[number] not in filters:
            later = [ordered.index(name) for name in before[number + 1 :] if name in ordered]
            ordered.insert(min(later, default=len(ordered)), before[number])
    return ordered


@dataclass(frozen=True, slots=True)
class UnknownPlugin:
    """A plugin that is not one of kube-scheduler, or an extender."""

    scheduler: str  #: the ``schedulerName`` of its profile; "" for all profiles
    name: str
    resources: frozenset[str] = frozenset()  #: only pods that request one of them matter; empty: all pods

    def concerns(self, pod: PodClass, scheduler: str) -> bool:
        """Return whether it may reject pods of a class whose scheduler is *scheduler*."""
        if self.scheduler not in ("", scheduler):
            return False
        return not self.resources or any(name in self.resources for name, _ in pod.requests)


class Scheduler:
    """The rules by which the cluster's pods are scheduled. Two schedulers with the same rules are equal."""

    __slots__ = ("_by_name", "default", "profiles", "version")

    def __init__(self, version: SchedulerVersion = NEWEST, profiles: Sequence[Profile] = ()) -> None:
        self.version = version
        self.profiles = tuple(profiles) or (default_profile(version),)
        self._by_name = {profile.name: profile for profile in self.profiles}
        self.default = self._by_name.get(DEFAULT_NAME) or default_profile(version)

    def profile(self, scheduler_name: str) -> Profile:
        """Return the profile for pods with *scheduler_name*; the default profile for pods of other schedulers."""
        return self._by_name.get(scheduler_name, self.default)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scheduler) and (self.version, self.profiles) == (other.version, other.profiles)

    def __hash__(self) -> int:
        return hash((self.version, self.profiles))
