"""Any service of Cluster Autoscaler's external gRPC protocol as a backend; `codec` serves our own service, too."""

import importlib.util
import os
from pathlib import Path

from rescheduler.backends.base import CloudProvider, ConfigError
from rescheduler.clock import Clock

# gRPC's core writes lines of its own to standard error, for what calls and binding report anyway.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def load(config: Path | None, clock: Clock) -> CloudProvider:
    """The provider of the file `--cloud-config`; ConfigError names what is wrong with it."""
    if importlib.util.find_spec("grpc") is None:
        raise ConfigError("--cloud-provider externalgrpc: gRPC is not installed: pip install 'spot-rescheduler[grpc]'")
    from rescheduler.backends.externalgrpc import provider  # noqa: PLC0415 -- the extra is imported when it is chosen

    return provider.load(config, clock)
