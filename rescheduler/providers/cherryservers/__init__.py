"""The cloud provider for Cherry Servers (bare-metal and virtual servers, with pools defined by tags)."""

from rescheduler.providers.cherryservers.provider import load

__all__ = ["load"]
