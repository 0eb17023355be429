"""A client of services with Cluster Autoscaler's external gRPC protocol; our own service also uses `codec`."""

import importlib.util
import os
from pathlib import Path

from rescheduler.clock import Clock
from rescheduler.errors import ConfigError
from rescheduler.providers.base import CloudProvider

# gRPC's core would log errors to stderr that calls and binding report anyway.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def load(config: Path, clock: Clock) -> CloudProvider:
    """Load the provider from the `--cloud-config` file. Raises ConfigError."""
    if importlib.util.find_spec("grpc") is None:
        raise ConfigError("--cloud-provider externalgrpc: gRPC is not installed: in a checkout, pip install '.[grpc]'")
    from rescheduler.providers.externalgrpc import provider  # noqa: PLC0415 -- an extra, imported when selected

    return provider.load(config, clock)
