"""The default profile's filter plugins, in the scheduler's order, as data (``apis/config/v1/default_plugins.go``)."""

from typing import Final

from predicates.framework import Plugin
from predicates.plugins import (
    inter_pod_affinity,
    node_name,
    node_resources_fit,
    node_unschedulable,
    pod_topology_spread,
    taint_toleration,
)

DEFAULT: Final[tuple[Plugin, ...]] = (
    node_unschedulable.PLUGIN,
    node_name.PLUGIN,
    taint_toleration.PLUGIN,
    node_resources_fit.PLUGIN,
    pod_topology_spread.PLUGIN,
    inter_pod_affinity.PLUGIN,
)
