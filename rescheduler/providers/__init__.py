"""Cloud providers by their name in ``--cloud-provider``; each is imported when it is selected.

The provider protocol is imported together with a provider: commands that use no provider need only the names.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from rescheduler.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
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

#: Providers whose groups come from ``--nodes`` and ``--cluster-name``: their ``load`` also takes GroupFlags, and their
#: module has ``check_nodes(nodes: Sequence[str])``, which raises ConfigError.
FLAGGED = frozenset({"cherryservers", "stackpoint", "spc", "stackpointio"})

#: Providers that have no file of ``--cloud-config``, and those that need one. The others may have one.
WITHOUT_FILE = frozenset({"none", "karpenter"})
WITH_FILE = frozenset({"cloudpool", "externalgrpc", "cherryservers", "liqo"})

#: Providers whose machines are objects of a Kubernetes API → why they are not served to Cluster Autoscaler.
OF_THE_CLUSTER = {
    "karpenter": "Cluster Autoscaler cannot scale the nodes of Karpenter",
    "clusterapi": "Cluster Autoscaler has its own provider clusterapi",
}

#: Providers that add no machines on request: the cluster's autoscaler does so for pending pods.
ADDS_NONE = frozenset({"karpenter"})


def load(name: str, config: Path | None, clock: Clock, flags: GroupFlags | None = None) -> CloudProvider:
    """Load the provider *name* with the file *config* and *flags*. Raises ConfigError."""
    check(name, config, *((flags.nodes, flags.cluster_name) if flags is not None else ()))
    loader: Callable[..., CloudProvider] = importlib.import_module(BACKENDS[name]).load
    return loader(config, clock, flags) if name in FLAGGED and flags is not None else loader(config, clock)


def check(name: str, config: Path | None, nodes: Sequence[str] = (), cluster_name: str = "") -> None:
    """Raise ConfigError if the provider *name* cannot be loaded with these flags, whatever the file *config* contains.

    Neither the file nor the environment is read: they may be those of another machine.
    """
    if name not in BACKENDS:
        raise ConfigError(f"--cloud-provider {name!r}: expected one of {', '.join(BACKENDS)}")
    if name in WITHOUT_FILE and config is not None:
        raise ConfigError(f"--cloud-config {config}: the cloud provider {name!r} has nothing to configure")
    if name in WITH_FILE and config is None:
        raise ConfigError(f"--cloud-provider {name}: --cloud-config FILE is missing")
    if name in FLAGGED:
        importlib.import_module(BACKENDS[name]).check_nodes(nodes)
        return
    if nodes:
        raise ConfigError(f"--nodes={nodes[0]}: the cloud provider {name!r} does not use this flag")
    if cluster_name:
        raise ConfigError(f"--cluster-name={cluster_name}: the cloud provider {name!r} does not use this flag")
