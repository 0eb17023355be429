"""Cloud providers by their name in ``--cloud-provider``; each is imported when it is selected.

The provider protocol is imported together with a provider: commands that use no provider need only the names.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from rescheduler.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rescheduler.clock import Clock
    from rescheduler.providers.base import CloudProvider, GroupFlags

#: Name → module with ``load(config: Path | None, clock: Clock) -> CloudProvider``.
BACKENDS = {
    "none": "rescheduler.providers.none",
    "cloudpool": "rescheduler.cloudpool.provider",
    "externalgrpc": "rescheduler.providers.externalgrpc",
    "cherryservers": "rescheduler.providers.cherryservers",
    "stackpoint": "rescheduler.providers.stackpoint",
    "spc": "rescheduler.providers.stackpoint",
    "stackpointio": "rescheduler.providers.stackpoint",
    "liqo": "rescheduler.liqo.provider",
    "karpenter": "rescheduler.providers.karpenter",
    "aws": "rescheduler.providers.aws",
    "clusterapi": "rescheduler.providers.clusterapi",
}

#: Providers whose groups come from ``--nodes`` and ``--cluster-name``: their ``load`` also takes GroupFlags.
FLAGGED = frozenset({"cherryservers", "stackpoint", "spc", "stackpointio"})


#: Providers whose machines are objects of a Kubernetes API → why they are not served to Cluster Autoscaler.
OF_THE_CLUSTER = {
    "karpenter": "Cluster Autoscaler cannot scale the nodes of Karpenter",
    "clusterapi": "Cluster Autoscaler has its own provider clusterapi",
}

#: Providers that add no machines on request: the cluster's autoscaler does so for pending pods.
ADDS_NONE = frozenset({"karpenter"})


def load(name: str, config: Path | None, clock: Clock, flags: GroupFlags | None = None) -> CloudProvider:
    """Load the provider *name* with the file *config* and *flags*. Raises ConfigError."""
    if name not in BACKENDS:
        raise ConfigError(f"--cloud-provider {name!r}: expected one of {', '.join(BACKENDS)}")
    loader: Callable[..., CloudProvider] = importlib.import_module(BACKENDS[name]).load
    if name in FLAGGED:
        return loader(config, clock, flags) if flags is not None else loader(config, clock)
    if flags is not None and flags.nodes:
        raise ConfigError(f"--nodes={flags.nodes[0]}: the cloud provider {name!r} does not use this flag")
    if flags is not None and flags.cluster_name:
        raise ConfigError(f"--cluster-name={flags.cluster_name}: the cloud provider {name!r} does not use this flag")
    return loader(config, clock)
