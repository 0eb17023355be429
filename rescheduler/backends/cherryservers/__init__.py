"""Cherry Servers (bare metal and virtual servers; pools are made of tags) as a system that owns machines."""

from rescheduler.backends.cherryservers.provider import load

__all__ = ["load"]
