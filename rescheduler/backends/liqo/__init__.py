"""Virtual nodes of Liqo, through a node manager: ours (``rescheduler liqo node-manager``) or Liqo's first one."""

from rescheduler.backends.liqo.provider import load

__all__ = ["load"]
