"""Any backend as the external gRPC service that Cluster Autoscaler calls."""
