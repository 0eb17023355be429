"""The cluster's kube-scheduler: its version, and its profiles by ``schedulerName``."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from predicates.objects import Amounts, NodeAffinity, PodClass, TopologySpreadConstraint
from predicates.versions import RELEASED, WEIGHTS, SchedulerVersion

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

    def __init__(self, version: SchedulerVersion = RELEASED, profiles: Sequence[Profile] = ()) -> None:
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
