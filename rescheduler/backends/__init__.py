"""The systems that own machines, by the names of ``--cloud-provider``; each is imported when it is chosen."""

import importlib
from collections.abc import Callable
from pathlib import Path

from rescheduler.backends.base import CloudProvider, ConfigError
from rescheduler.clock import Clock

#: Name → module with ``load(config: Path | None, clock: Clock) -> CloudProvider``.
BACKENDS = {
    "none": "rescheduler.backends.none",
    "cloudpool": "rescheduler.backends.cloudpool",
}


def load(name: str, config: Path | None, clock: Clock) -> CloudProvider:
    """The provider *name*, configured by the file *config*; ConfigError names what is wrong with either."""
    if name not in BACKENDS:
        raise ConfigError(f"--cloud-provider {name!r}: expected one of {', '.join(BACKENDS)}")
    loader: Callable[[Path | None, Clock], CloudProvider] = importlib.import_module(BACKENDS[name]).load
    return loader(config, clock)
