"""StackPointCloud (later NetApp Kubernetes Service) as a system that owns machines; both generations of its API."""

from rescheduler.backends.stackpoint.provider import load

__all__ = ["load"]
