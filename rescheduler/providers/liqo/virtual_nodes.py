"""Properties common to all virtual nodes of Liqo (``cmd/virtual-kubelet`` and the chart's values, v1.0 to v1.2).

Later releases may add more. A template has only the properties of every Node: ``type=virtual-kubelet``, for example,
was added after v1.2.0.
"""

from typing import Final

from rescheduler.providers.base import NodeTaint

#: Set by Liqo's virtual kubelet on each of its Nodes, independent of the provider's architecture.
VIRTUAL_NODE_LABELS: Final = {
    "liqo.io/type": "virtual-node",
    "kubernetes.io/role": "agent",
    "kubernetes.io/os": "linux",
    "kubernetes.io/arch": "amd64",
    "node.kubernetes.io/exclude-from-external-load-balancers": "true",
}
VIRTUAL_NODE_TAINT: Final = NodeTaint("virtual-node.liqo.io/not-allowed", "true", "NoExecute")
#: Resources granted by default in addition to cpu, memory and pods (``offloading.defaultNodeResources``).
ADDED_RESOURCES: Final = {"ephemeral-storage": "20Gi"}
