"""The cloud provider for cloudpools (elastisys' REST API, version 5)."""

from rescheduler.providers.cloudpool.provider import load

__all__ = ["load"]
