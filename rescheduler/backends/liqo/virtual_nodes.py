"""What all virtual nodes of Liqo have in common (``pkg/vkMachinery``, ``cmd/virtual-kubelet`` of Liqo 1.0)."""

from typing import Final

from rescheduler.backends.base import Taint

#: Set by Liqo's virtual kubelet on every Node of its own.
VIRTUAL_NODE_LABELS: Final = {
    "liqo.io/type": "virtual-node",
    "type": "virtual-kubelet",
    "kubernetes.io/role": "agent",
    "node.kubernetes.io/exclude-from-external-load-balancers": "true",
}
VIRTUAL_NODE_TAINT: Final = Taint("virtual-node.liqo.io/not-allowed", "true", "NoExecute")
