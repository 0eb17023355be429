"""What all virtual nodes of Liqo have in common (``cmd/virtual-kubelet`` and the chart's values, v1.0 to v1.2).

Later releases may add to it. A template promises no more than what every Node has: ``type=virtual-kubelet``, for one,
came after v1.2.0.
"""

from typing import Final

from rescheduler.backends.base import Taint

#: Set by Liqo's virtual kubelet on every Node of its own, whatever the architecture of the provider.
VIRTUAL_NODE_LABELS: Final = {
    "liqo.io/type": "virtual-node",
    "kubernetes.io/role": "agent",
    "kubernetes.io/os": "linux",
    "kubernetes.io/arch": "amd64",
    "node.kubernetes.io/exclude-from-external-load-balancers": "true",
}
VIRTUAL_NODE_TAINT: Final = Taint("virtual-node.liqo.io/not-allowed", "true", "NoExecute")
#: What a provider grants beside cpu, memory and pods without being asked (``offloading.defaultNodeResources``).
ADDED_RESOURCES: Final = {"ephemeral-storage": "20Gi"}
