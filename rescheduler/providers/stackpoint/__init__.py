"""The cloud provider for StackPointCloud (later NetApp Kubernetes Service), for both generations of its API."""

from rescheduler.providers.stackpoint.provider import load

__all__ = ["load"]
