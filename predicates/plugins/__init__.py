"""The filter plugins by name, and those of a profile, in the scheduler's order."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from predicates.framework import Plugin, Rejections
from predicates.nodes import Rows
from predicates.plugins import (
    dynamic_resources,
    inter_pod_affinity,
    node_affinity,
    node_declared_features,
    node_name,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    node_volume_limits,
    pod_topology_spread,
    scheduling_gates,
    taint_toleration,
    volume_binding,
    volume_restrictions,
    volume_zone,
)
from predicates.scheduler import Profile, Scheduler
from predicates.snapshot import Snapshot

#: Plugins that check a pod before it enters the scheduling queue (PreEnqueue), by name.
_PRE_ENQUEUE: Final[Mapping[str, Plugin]] = {
    "SchedulingGates": scheduling_gates.PLUGIN,
    "DynamicResources": dynamic_resources.PRE_ENQUEUE,
}

_FILTERS: Final[Mapping[str, tuple[Plugin, ...]]] = {
    "NodeUnschedulable": (node_unschedulable.PLUGIN,),
    "NodeName": (node_name.PLUGIN,),
    "TaintToleration": (taint_toleration.PLUGIN,),
    "NodeAffinity": (node_affinity.PLUGIN,),
    "NodePorts": (node_ports.PLUGIN,),
    "NodeResourcesFit": (node_resources_fit.PLUGIN,),
    "VolumeRestrictions": (volume_restrictions.PLUGIN,),
    "NodeVolumeLimits": (node_volume_limits.PLUGIN,),
    "VolumeBinding": (volume_binding.PLUGIN, volume_binding.ASSUMED),
    "VolumeZone": (volume_zone.PLUGIN,),
    "PodTopologySpread": (pod_topology_spread.PLUGIN,),
    "InterPodAffinity": (inter_pod_affinity.PLUGIN,),
    "DynamicResources": (dynamic_resources.PLUGIN,),
    "NodeDeclaredFeatures": (node_declared_features.PLUGIN,),
}


@lru_cache(maxsize=64)
def of(profile: Profile) -> tuple[Plugin, ...]:
    """Return the plugins of *profile*, PreEnqueue first. The same profile gets the same objects each time."""
    before = [_PRE_ENQUEUE[name] for name in profile.filters if name in _PRE_ENQUEUE]
    configured = {
        "NodeAffinity": (node_affinity.plugin(profile.added_affinity),),
        "NodeResourcesFit": (node_resources_fit.plugin(profile),),
        "PodTopologySpread": (pod_topology_spread.plugin(profile.spread_defaults or ()),),
    }
    filters = {**_FILTERS, **configured}
    return (
        *before,
        *(
            _before(plugin) if name in profile.before else plugin
            for name in profile.filters
            for plugin in filters.get(name, ())
        ),
    )


def _before(plugin: Plugin) -> Plugin:
    """Return *plugin* without its Filter: it only rejects pods regardless of the node."""

    def filtered(state: Any, snapshot: Snapshot, rows: Rows) -> Rejections | None:
        found = plugin.filter(state, snapshot, rows)
        return found if found is not None and found.prefilter else None

    return Plugin(plugin.name, plugin.scope, plugin.pre_filter, filtered)


#: The plugins of the default profile of the newest version.
DEFAULT: Final = of(Scheduler().default)
