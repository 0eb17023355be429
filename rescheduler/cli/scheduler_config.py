"""The configuration file of kube-scheduler (``--scheduler-config``): KubeSchedulerConfiguration, version v1."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from predicates.node_selectors import valid_term
from predicates.objects import Int32, NodeAffinity, TopologySpreadConstraint
from predicates.scheduler import (
    DEFAULT_NAME,
    ConfiguredProfile,
    PluginSet,
    Profile,
    ScoringStrategy,
    UnknownPlugin,
    default_profile,
)
from predicates.selectors import key_errors
from predicates.texts import shown
from predicates.versions import NEWEST, VERSIONS, WEIGHTS
from rescheduler.errors import ConfigError
from rescheduler.net import config_files
from rescheduler.net.config_files import Section
from rescheduler.settings import Scheduling

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
_KIND: Final = "KubeSchedulerConfiguration"

#: Plugins of kube-scheduler that neither filter nor score single pods.
_OTHER_PLUGINS: Final = frozenset(
    {
        "PrioritySort",
        "DefaultPreemption",
        "DefaultBinder",
        "GangScheduling",
        "TopologyPlacementGenerator",
        "PodGroupPodsCount",
        "DeferredPodScheduling",
    }
)
_CHECKS: Final = frozenset(name for version in VERSIONS.values() for name in version.plugins)
_KNOWN: Final = _OTHER_PLUGINS | _CHECKS | WEIGHTS.keys()
#: The plugins that can be switched on at the extension points whose other plugins are no mistake in all versions.
_EXTENDING: Final[Mapping[str, frozenset[str]]] = {
    "filter": _CHECKS - {"SchedulingGates"} | {"DeferredPodScheduling"},
    "score": frozenset(WEIGHTS) | {"DynamicResources"},
}
#: The extension points that need a plugin, with the one that they have by default.
_NEEDED: Final = {"queue_sort": "PrioritySort", "bind": "DefaultBinder"}

#: The extension points at which a plugin decides about nodes or pods.
_POINTS: Final = (
    *("multi_point", "pre_enqueue", "queue_sort", "pre_filter", "filter", "post_filter", "pre_score", "score"),
    *("reserve", "permit", "pre_bind", "bind", "post_bind", "placement_generate", "placement_score"),
)

_Weight = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class _Plugin(Section, frozen=True, kw_only=True):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    weight: _Weight | None = None


class _Plugins(Section, frozen=True, kw_only=True):
    enabled: list[_Plugin] | None = None
    disabled: list[_Plugin] | None = None


class _PluginSets(Section, frozen=True, kw_only=True):
    multi_point: _Plugins | None = None
    pre_enqueue: _Plugins | None = None
    queue_sort: _Plugins | None = None
    pre_filter: _Plugins | None = None
    filter: _Plugins | None = None
    post_filter: _Plugins | None = None
    pre_score: _Plugins | None = None
    score: _Plugins | None = None
    reserve: _Plugins | None = None
    permit: _Plugins | None = None
    pre_bind: _Plugins | None = None
    bind: _Plugins | None = None
    post_bind: _Plugins | None = None
    placement_generate: _Plugins | None = None
    placement_score: _Plugins | None = None

    def at(self, point: str) -> _Plugins:
        """Return the plugins of an extension point."""
        return getattr(self, point) or _Plugins()


class _PluginConfig(Section, frozen=True, kw_only=True):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    args: dict[str, Any] | None = None


class _Profile(Section, frozen=True, kw_only=True):
    scheduler_name: str = ""
    percentage_of_nodes_to_score: Int32 | None = None
    plugins: _PluginSets | None = None
    plugin_config: list[_PluginConfig] | None = None


class _ManagedResource(Section, frozen=True, kw_only=True):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    ignored_by_scheduler: bool = False


class _Extender(Section, frozen=True, kw_only=True):
    """An extender. The fields about the connection are not used."""

    url_prefix: str
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    bind_verb: str = ""
    weight: int = 0
    managed_resources: list[_ManagedResource] | None = None
    enable_https: bool = msgspec.field(default=False, name="enableHTTPS")
    tls_config: dict[str, Any] | None = None
    http_timeout: str = ""
    node_cache_capable: bool = False
    ignorable: bool = False


class _File(Section, frozen=True, kw_only=True):
    api_version: str
    kind: str
    profiles: list[_Profile] | None = None
    extenders: list[_Extender] | None = None
    parallelism: Int32 | None = None
    leader_election: dict[str, Any] | None = None
    client_connection: dict[str, Any] | None = None
    enable_profiling: bool | None = None
    enable_contention_profiling: bool | None = None
    percentage_of_nodes_to_score: Int32 | None = None
    pod_initial_backoff_seconds: int | None = None
    pod_max_backoff_seconds: int | None = None
    delay_cache_until_active: bool | None = None


class _Args(Section, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""


class _NodeAffinityArgs(_Args, frozen=True, kw_only=True):
    added_affinity: NodeAffinity | None = None


class _Resource(Section, frozen=True, kw_only=True):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    weight: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0


class _ShapePoint(Section, frozen=True, kw_only=True):
    utilization: Annotated[int, msgspec.Meta(ge=0, le=100)] = 0
    score: Annotated[int, msgspec.Meta(ge=0, le=10)] = 0


class _Ratio(Section, frozen=True, kw_only=True):
    shape: Annotated[list[_ShapePoint], msgspec.Meta(min_length=1)]


class _Strategy(Section, frozen=True, kw_only=True):
    type: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]
    resources: list[_Resource] | None = None
    requested_to_capacity_ratio: _Ratio | None = None


class _FitArgs(_Args, frozen=True, kw_only=True):
    ignored_resources: list[str] | None = None
    ignored_resource_groups: list[str] | None = None
    scoring_strategy: _Strategy | None = None


class _SpreadArgs(_Args, frozen=True, kw_only=True):
    default_constraints: tuple[TopologySpreadConstraint, ...] | None = None
    defaulting_type: str = ""


#: Credentials in an address of an extender: a user, and a query.
_SECRETS: Final = re.compile(r"(?<=//)[^/]*@|[?#].*", re.DOTALL)

#: The percentage of all nodes.
_ALL: Final = 100

#: The scores of a file are up to 10 (``MaxCustomPriorityScore``), those of plugins up to 100.
_SCALE: Final = 10

#: Arguments that are used, or that change neither a verdict on a pod nor a score, by plugin; None: all of them.
_USED: Final[Mapping[str, frozenset[str] | None]] = {
    "DefaultPreemption": None,
    "NodeAffinity": None,
    "NodeResourcesFit": None,
    "PodTopologySpread": None,
    "VolumeBinding": frozenset({"bindTimeoutSeconds"}),
    "DynamicResources": frozenset({"filterTimeout", "bindingTimeout"}),
}


def configured(minor: int | None, path: Path, assumed: Collection[str]) -> Scheduling:
    """Return what the configuration at *path* says. The plugins *assumed* never reject a node. Raises ConfigError."""
    file = config_files.read(path, _File, "scheduler configuration", may_be_empty=False)
    where = f"scheduler configuration {path}"
    if (file.api_version, file.kind) != (API_VERSION, _KIND):
        raise ConfigError(
            f"{where}: expected apiVersion {API_VERSION} and kind {_KIND}, got {file.api_version} and {file.kind}"
        )
    profiles = [_named_profile(profile) for profile in file.profiles or [_Profile()]]
    names = [profile.scheduler_name for profile in profiles]
    if twice := [name for number, name in enumerate(names) if name in names[:number]]:
        raise ConfigError(f"{where}: profiles: expected each schedulerName once, got {twice[0]} twice")
    notes: list[str] = []
    read = tuple(_profile(each, f"{where}: profiles[{n}]", notes) for n, each in enumerate(profiles))
    notes += filter(None, (_sampled(each, file.percentage_of_nodes_to_score) for each in profiles))
    found = list(_unknown(profiles, file.extenders or ()))
    unknown = tuple(plugin for plugin in found if plugin.name not in assumed)
    never_reject = frozenset(plugin.name for plugin in found).intersection(assumed)
    return Scheduling(minor, read, unknown, never_reject, (*_named(unknown), *dict.fromkeys(notes)))


def _named_profile(profile: _Profile) -> _Profile:
    return profile if profile.scheduler_name else msgspec.structs.replace(profile, scheduler_name=DEFAULT_NAME)


def _profile(profile: _Profile, where: str, notes: list[str]) -> ConfiguredProfile:
    sets = profile.plugins or _PluginSets()
    for point in _POINTS:
        _check(point, sets.at(point), f"{where}.plugins.{_key(point)}")
    _check_needed(sets, f"{where}.plugins")
    return ConfiguredProfile(
        profile.scheduler_name,
        _plugin_set(sets.at("multi_point")),
        _plugin_set(sets.at("pre_enqueue")),
        _plugin_set(sets.at("pre_filter")),
        _plugin_set(sets.at("filter")),
        _plugin_set(sets.at("score")),
        _arguments(profile, where, notes),
    )


def _key(field: str) -> str:
    """Return the key of a field in the file."""
    first, *rest = field.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _check(point: str, plugins: _Plugins, where: str) -> None:
    names = [plugin.name for plugin in plugins.enabled or ()]
    if twice := [name for number, name in enumerate(names) if name in names[:number]]:
        raise ConfigError(f"{where}.enabled: expected each plugin once, got {twice[0]} twice")
    if "*" in names:
        raise ConfigError(f"{where}.enabled: expected the name of a plugin, got *")
    if wrong := [name for name in names if name in _KNOWN - _EXTENDING.get(point, _KNOWN)]:
        raise ConfigError(f"{where}.enabled: expected plugins that {_key(point)}, got {wrong[0]}, which does not")


def _check_needed(sets: _PluginSets, where: str) -> None:
    """Check that the scheduler can run: a profile that switches off what sorts or binds pods does not start."""
    for point, default in _NEEDED.items():
        everywhere = _plugin_set(sets.at("multi_point")).merged([(default, 0)])
        left = [name for name, _ in _plugin_set(sets.at(point)).expanded(everywhere)]
        if not any(name == default or name not in _KNOWN for name in left):
            raise ConfigError(f"{where}.{_key(point)}: expected a plugin that is enabled, such as {default}")


def _plugin_set(plugins: _Plugins) -> PluginSet:
    enabled = tuple((plugin.name, plugin.weight or 0) for plugin in plugins.enabled or ())
    return PluginSet(enabled, frozenset(plugin.name for plugin in plugins.disabled or ()))


def _arguments(profile: _Profile, where: str, notes: list[str]) -> Profile:
    """Return a profile with the arguments of the plugins. *notes* gets a sentence for each that is not supported."""
    result = default_profile(NEWEST)
    names = [config.name for config in profile.plugin_config or ()]
    if twice := [name for number, name in enumerate(names) if name in names[:number]]:
        raise ConfigError(f"{where}.pluginConfig: expected each plugin once, got {twice[0]} twice")
    for number, config in enumerate(profile.plugin_config or ()):
        path, args = f"{where}.pluginConfig[{number}].args", config.args or {}
        _check_kind(config.name, args, path)
        match config.name:
            case "NodeAffinity":
                added = config_files.shaped(args, _NodeAffinityArgs, path).added_affinity
                _check_affinity(added, f"{path}.addedAffinity")
                result = replace(result, added_affinity=added)
            case "NodeResourcesFit":
                fit = config_files.shaped(args, _FitArgs, path)
                resources, groups = frozenset(fit.ignored_resources or ()), frozenset(fit.ignored_resource_groups or ())
                _check_keys(fit.ignored_resources, f"{path}.ignoredResources")
                _check_keys(fit.ignored_resource_groups, f"{path}.ignoredResourceGroups", with_prefix=False)
                strategy = _strategy(fit.scoring_strategy, f"{path}.scoringStrategy")
                result = replace(result, ignored_resources=resources, ignored_groups=groups, strategy=strategy)
            case "PodTopologySpread":
                result = replace(result, spread_defaults=_spread_defaults(args, path))
        notes += [_unsupported(profile, config.name, key) for key in _unused(config.name, args)]
    return result


def _check_kind(plugin: str, args: Mapping[str, Any], where: str) -> None:
    """Check the version and kind of the arguments of a plugin of the scheduler, if they have them."""
    expected = API_VERSION, f"{plugin}Args"
    found = args.get("apiVersion") or API_VERSION, args.get("kind") or f"{plugin}Args"
    if plugin in _KNOWN and found != expected:
        expected_text, found_text = ("apiVersion {} and kind {}".format(*each) for each in (expected, found))
        raise ConfigError(f"{where}: expected {expected_text}, got {found_text}")


def _check_keys(keys: Sequence[str] | None, where: str, *, with_prefix: bool = True) -> None:
    """Check names of resources, or of groups of them, which have the form of label keys (``ValidateLabelName``)."""
    for number, key in enumerate(keys or ()):
        if key_errors(key) or ("/" in key and not with_prefix):
            form = "such as vendor.example/gpu" if with_prefix else "without a slash, such as vendor.example"
            raise ConfigError(f"{where}[{number}]: expected a name {form}, got {shown(key)!r}")


def _check_affinity(affinity: NodeAffinity | None, where: str) -> None:
    """Check that the scheduler can parse the requirements."""
    if affinity is None:
        return
    terms = [*(affinity.required.node_selector_terms if affinity.required else ())]
    for kind, each in (("required", terms), ("preferred", [term.preference for term in affinity.preferred])):
        for number, term in enumerate(each):
            if (term.match_expressions or term.match_fields) and not valid_term(term):
                raise ConfigError(
                    f"{where}: term {number} of {kind}DuringSchedulingIgnoredDuringExecution: expected keys with an "
                    "operator (In, NotIn, Exists, DoesNotExist, Gt, Lt) and the values that it needs"
                )


def _strategy(strategy: _Strategy | None, where: str) -> ScoringStrategy:
    """Return the strategy with its defaults (``defaults.go``): cpu and memory, and a weight of 1."""
    if strategy is None:
        return ScoringStrategy()
    resources = tuple((each.name, each.weight or 1) for each in strategy.resources or ())
    ratio = strategy.requested_to_capacity_ratio
    if strategy.type == "RequestedToCapacityRatio" and ratio is None:
        raise ConfigError(f"{where}.requestedToCapacityRatio: expected its shape")
    if strategy.type != "RequestedToCapacityRatio" and ratio is not None:
        raise ConfigError(f"{where}.requestedToCapacityRatio: expected none, because the type is {strategy.type}")
    points = [(point.utilization, point.score * _SCALE) for point in ratio.shape] if ratio is not None else []
    if any(later <= earlier for (earlier, _), (later, _) in pairwise(points)):
        raise ConfigError(f"{where}.requestedToCapacityRatio.shape: expected utilizations in ascending order")
    default = ScoringStrategy()
    return ScoringStrategy(strategy.type, resources or default.resources, tuple(points))


def _unused(plugin: str, args: Mapping[str, Any]) -> list[str]:
    """Return the arguments of *plugin* that would have an effect, but have none here."""
    if plugin not in _KNOWN or (used := _USED.get(plugin, frozenset())) is None:
        return []
    return sorted(args.keys() - used - {"apiVersion", "kind"})


def _spread_defaults(args: dict[str, Any], path: str) -> tuple[TopologySpreadConstraint, ...] | None:
    """Return the default constraints; None for those of the system (``validation_pluginargs.go``)."""
    spread = config_files.shaped(args, _SpreadArgs, path)
    constraints = spread.default_constraints or ()
    if spread.defaulting_type not in ("", "System", "List"):
        raise ConfigError(f"{path}.defaultingType: expected System or List, got {spread.defaulting_type}")
    if spread.defaulting_type != "List":
        if constraints:
            raise ConfigError(f"{path}.defaultConstraints: expected none if defaultingType is System, or List")
        return None
    for number, constraint in enumerate(constraints):
        at = f"{path}.defaultConstraints[{number}]"
        if constraint.max_skew <= 0:
            raise ConfigError(f"{at}.maxSkew: expected more than 0, got {constraint.max_skew}")
        if key_errors(constraint.topology_key):
            raise ConfigError(f"{at}.topologyKey: expected the key of a node label")
        if constraint.when_unsatisfiable not in ("DoNotSchedule", "ScheduleAnyway"):
            raise ConfigError(f"{at}.whenUnsatisfiable: expected DoNotSchedule or ScheduleAnyway")
        if constraint.label_selector is not None:
            raise ConfigError(f"{at}.labelSelector: expected none; the scheduler uses that of the pod's owner")
        same = (constraint.topology_key, constraint.when_unsatisfiable)
        if same in [(other.topology_key, other.when_unsatisfiable) for other in constraints[:number]]:
            raise ConfigError(f"{at}: expected each topologyKey once for {same[1]}, got {same[0]} twice")
    return constraints


def _unsupported(profile: _Profile, plugin: str, argument: str) -> str:
    return (
        f"scheduler {profile.scheduler_name}: the argument {argument} of {plugin} is not used; the scheduler may "
        "choose other nodes than the plan"
    )


def _sampled(profile: _Profile, for_all: int | None) -> str:
    """Return a note if the scheduler scores only a part of the nodes, "" otherwise. 0 is its default.

    The value of a profile has precedence over that *for_all* (``percentageOfNodesToScore`` in ``newScheduler``).
    """
    percentage = for_all if profile.percentage_of_nodes_to_score is None else profile.percentage_of_nodes_to_score
    if not percentage or percentage >= _ALL:
        return ""
    return (
        f"scheduler {profile.scheduler_name}: with percentageOfNodesToScore {percentage}, it may choose other nodes "
        "than the plan, whose forecasts compare all nodes that accept a pod"
    )


def _unknown(profiles: Collection[_Profile], extenders: Collection[_Extender]) -> Iterator[UnknownPlugin]:
    for profile in profiles:
        sets = profile.plugins or _PluginSets()
        enabled = (plugin.name for point in _POINTS for plugin in sets.at(point).enabled or ())
        for name in dict.fromkeys(enabled):
            if name not in _KNOWN:
                yield UnknownPlugin(profile.scheduler_name, name)
    for extender in extenders:
        if extender.filter_verb or extender.bind_verb:
            resources = frozenset(resource.name for resource in extender.managed_resources or ())
            yield UnknownPlugin("", _SECRETS.sub("", extender.url_prefix), resources)


def _named(unknown: Collection[UnknownPlugin]) -> Iterator[str]:
    """Yield a sentence for each plugin whose rules are not known."""
    for plugin in unknown:
        of = f"scheduler {plugin.scheduler}" if plugin.scheduler else "all schedulers of the file"
        pods = f" that request {', '.join(sorted(plugin.resources))}" if plugin.resources else ""
        yield f"the rules of {plugin.name} are not known: pods of {of}{pods} stay (--assume-plugins={plugin.name})"
