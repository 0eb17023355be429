"""An external gRPC service for Cluster Autoscaler, backed by any of our cloud providers."""

import rescheduler.providers.externalgrpc  # noqa: F401 - must be imported before gRPC, to disable the log of its core
