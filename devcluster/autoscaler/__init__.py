"""The real Cluster Autoscaler on the local control plane, connected to `rescheduler provider serve`."""
