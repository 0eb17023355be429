"""The systems that own machines, by the names of ``--cloud-provider``; each is imported when it is chosen."""

import importlib
from collections.abc import Callable
from pathlib import Path

from rescheduler.backends.base import CloudProvider, ConfigError, GroupFlags
from rescheduler.clock import Clock

#: Name → module with ``load(config: Path | None, clock: Clock) -> CloudProvider``.
BACKENDS = {
    "none": "rescheduler.backends.none",
    "cloudpool": "rescheduler.backends.cloudpool",
    "externalgrpc": "rescheduler.backends.externalgrpc",
    "cherryservers": "rescheduler.backends.cherryservers",
    "stackpoint": "rescheduler.backends.stackpoint",
    "spc": "rescheduler.backends.stackpoint",
    "stackpointio": "rescheduler.backends.stackpoint",
    "liqo": "rescheduler.backends.liqo",
}

#: Those that are told their groups by ``--nodes`` and ``--cluster-name``: ``load`` takes GroupFlags as well.
FLAGGED = frozenset({"cherryservers", "stackpoint", "spc", "stackpointio"})


def load(name: str, config: Path | None, clock: Clock, flags: GroupFlags | None = None) -> CloudProvider:
    """The provider *name*, configured by the file *config* and *flags*; ConfigError names what is wrong with either."""
    if name not in BACKENDS:
        raise ConfigError(f"--cloud-provider {name!r}: expected one of {', '.join(BACKENDS)}")
    loader: Callable[..., CloudProvider] = importlib.import_module(BACKENDS[name]).load
    if name in FLAGGED:
        return loader(config, clock, flags or GroupFlags())
    if flags is not None and flags.nodes:
        raise ConfigError(f"--nodes={flags.nodes[0]}: the cloud provider {name!r} knows its groups without it")
    return loader(config, clock)
