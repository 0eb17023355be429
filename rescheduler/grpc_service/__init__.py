"""An external gRPC service for Cluster Autoscaler, backed by any of our cloud providers."""

import rescheduler.providers.externalgrpc  # noqa: F401 - must precede gRPC, to disable its core's log
