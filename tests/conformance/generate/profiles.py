"""Random configurations of kube-scheduler: profiles with plugins off, on again and in another order, and arguments."""

from random import Random
from typing import Final

from tests.conformance.generate.world import Json

#: The plugins that are switched off and on. Pods with gates are never scheduled, so that one stays.
PLUGINS: Final = (
    "NodeName",
    "NodeUnschedulable",
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
)
#: The plugins that get another weight.
SCORED: Final = ("NodeResourcesFit", "NodeResourcesBalancedAllocation", "ImageLocality", "InterPodAffinity")
#: The names of the profiles besides the default one.
NAMES: Final = ("bin-packing", "batch")
_ZONE: Final = "topology.kubernetes.io/zone"


def configuration(seed: int, resources: list[str], zones: list[str]) -> Json:
    """Return a KubeSchedulerConfiguration. *resources* and *zones* are those of the cluster."""
    rng = Random(f"profiles/{seed}")
    names = ["default-scheduler", *(name for name in NAMES if rng.random() < 0.7)]
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [_profile(rng, name, resources, zones) for name in names],
    }


def _profile(rng: Random, name: str, resources: list[str], zones: list[str]) -> Json:
    off = rng.sample(PLUGINS, rng.randint(0, 4))
    on = [each for each in off if rng.random() < 0.4]
    plugins: Json = {"multiPoint": {"disabled": _named(off), "enabled": _named(on)}}
    if rng.random() < 0.3:
        again = [each for each in off if each not in on and rng.random() < 0.5]
        plugins["filter"] = {"enabled": _named(again)}
        plugins["preFilter"] = {"enabled": _named([each for each in again if each not in _WITHOUT_PRE_FILTER])}
    if rng.random() < 0.6:
        left = [each for each in SCORED if each not in off or each in on]  # without its PreScore, a plugin fails
        scored = rng.sample(left, rng.randint(1, len(left)))
        plugins["score"] = {"enabled": [{"name": each, "weight": rng.randint(1, 9)} for each in scored]}
    if rng.random() < 0.4:
        plugins.setdefault("filter", {})["disabled"] = _named(rng.sample(PLUGINS, rng.randint(1, 3)))
    arguments = [
        {"name": "NodeAffinity", "args": _affinity(rng, zones)},
        {"name": "NodeResourcesFit", "args": _fit(rng, resources)},
        {"name": "PodTopologySpread", "args": _spread(rng)},
    ]
    config = [each for each in arguments if each["args"] and rng.random() < 0.6]
    return {"schedulerName": name, "plugins": plugins, "pluginConfig": config}


#: Plugins that have no PreFilter.
_WITHOUT_PRE_FILTER: Final = ("NodeName", "NodeUnschedulable", "TaintToleration")


def _named(names: list[str]) -> list[Json]:
    return [{"name": name} for name in names]


def _affinity(rng: Random, zones: list[str]) -> Json:
    operator = rng.choice(("In", "NotIn", "Exists"))
    expression: Json = {"key": _ZONE, "operator": operator}
    if operator != "Exists":
        expression["values"] = rng.sample(zones, min(len(zones), rng.randint(1, 2))) or ["none"]
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    added: Json = {"requiredDuringSchedulingIgnoredDuringExecution": terms} if rng.random() < 0.7 else {}
    if rng.random() < 0.5:
        preference = {"matchExpressions": [{"key": _ZONE, "operator": "In", "values": zones[:1] or ["none"]}]}
        added["preferredDuringSchedulingIgnoredDuringExecution"] = [{"weight": 7, "preference": preference}]
    return {"addedAffinity": added} if added else {}


def _fit(rng: Random, resources: list[str]) -> Json:
    return _ignored(rng, resources) | ({"scoringStrategy": _strategy(rng, resources)} if rng.random() < 0.7 else {})


def _strategy(rng: Random, resources: list[str]) -> Json:
    """Return a scoring strategy, by default of cpu and memory."""
    kind = rng.choice(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"))
    strategy: Json = {"type": kind}
    if rng.random() < 0.6:
        names = rng.sample(sorted({"cpu", "memory", "ephemeral-storage", *resources} - {"pods"}), 3)
        strategy["resources"] = [{"name": name, "weight": rng.randint(1, 5)} for name in names]
    if kind == "RequestedToCapacityRatio":
        steps = sorted(rng.sample(range(101), rng.randint(1, 4)))
        shape = [{"utilization": step, "score": rng.randint(0, 10)} for step in steps]
        strategy["requestedToCapacityRatio"] = {"shape": shape}
    return strategy


def _ignored(rng: Random, resources: list[str]) -> Json:
    extended = [name for name in resources if "/" in name and "kubernetes.io/" not in name]
    if not extended:
        return {}
    if rng.random() < 0.5:
        return {"ignoredResources": rng.sample(extended, rng.randint(1, len(extended)))}
    return {"ignoredResourceGroups": [rng.choice(extended).partition("/")[0]]}


def _spread(rng: Random) -> Json:
    """Return default constraints that only score: the selector of hard ones is that of owners, which we do not read."""
    if rng.random() < 0.3:
        return {"defaultingType": "System"}
    key = rng.choice((_ZONE, "kubernetes.io/hostname"))
    constraint = {"maxSkew": rng.randint(1, 3), "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway"}
    return {"defaultingType": "List", "defaultConstraints": [constraint]}
