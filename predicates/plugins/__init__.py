"""The filter plugins by name, and those of a profile, in the scheduler's order."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from predicates.framework import Plugin, Rejections
from predicates.nodes import Rows
from predicates.plugins import nodes, pods, resources, volumes
from predicates.scheduler import Profile, Scheduler
from predicates.snapshot import Snapshot

#: Plugins that check a pod before it enters the scheduling queue (PreEnqueue), by name.
_PRE_ENQUEUE: Final[Mapping[str, Plugin]] = {
    "SchedulingGates": nodes.SCHEDULING_GATES,
    "DynamicResources": resources.PRE_ENQUEUE,
}

_FILTERS: Final[Mapping[str, tuple[Plugin, ...]]] = {
    "NodeUnschedulable": (nodes.NODE_UNSCHEDULABLE,),
    "NodeName": (nodes.NODE_NAME,),
    "TaintToleration": (nodes.TAINT_TOLERATION,),
    "NodeAffinity": (nodes.NODE_AFFINITY,),
    "NodePorts": (nodes.NODE_PORTS,),
    "NodeResourcesFit": (resources.NODE_RESOURCES_FIT,),
    "VolumeRestrictions": (volumes.VOLUME_RESTRICTIONS,),
    "NodeVolumeLimits": (volumes.NODE_VOLUME_LIMITS,),
    "VolumeBinding": (volumes.VOLUME_BINDING, volumes.ASSUMED),
    "VolumeZone": (volumes.VOLUME_ZONE,),
    "PodTopologySpread": (pods.POD_TOPOLOGY_SPREAD,),
    "InterPodAffinity": (pods.INTER_POD_AFFINITY,),
    "DynamicResources": (resources.DYNAMIC_RESOURCES,),
    "NodeDeclaredFeatures": (nodes.NODE_DECLARED_FEATURES,),
}


@lru_cache(maxsize=64)
def of(profile: Profile) -> tuple[Plugin, ...]:
    """Return the plugins of *profile*, PreEnqueue first. The same profile gets the same objects each time."""
    before = [_PRE_ENQUEUE[name] for name in profile.filters if name in _PRE_ENQUEUE]
    configured = {
        "NodeAffinity": (nodes.plugin(profile.added_affinity),),
        "NodeResourcesFit": (resources.plugin(profile),),
        "PodTopologySpread": (pods.plugin(profile.spread_defaults or ()),),
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
