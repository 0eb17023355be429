"""Cloudpools (elastisys' REST API, version 5) as a system that owns machines."""

from rescheduler.backends.cloudpool.provider import load

__all__ = ["load"]
