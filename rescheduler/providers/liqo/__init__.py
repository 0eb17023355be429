"""The cloud provider for Liqo's virtual nodes, through our node manager or Liqo's original one."""

from rescheduler.providers.liqo.provider import load

__all__ = ["load"]
