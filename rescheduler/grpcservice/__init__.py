"""Any backend as the external gRPC service that Cluster Autoscaler calls."""

import rescheduler.backends.externalgrpc  # noqa: F401 - goes before gRPC, whose core it silences
