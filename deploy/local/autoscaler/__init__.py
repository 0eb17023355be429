"""The real Cluster Autoscaler on the local control plane, driving `rescheduler provider serve`: `make autoscaler`."""
