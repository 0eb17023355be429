"""The fields of a Node by which a cloud provider identifies its machine."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: Kubernetes sets the first on control-plane nodes; the second was used before 1.24.
CONTROL_PLANE_LABELS = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")

#: Cluster Autoscaler's names of templates begin with it.
TEMPLATE_PREFIX = "template-node-for-"


@dataclass(frozen=True, slots=True)
class NodeRef:
    """A caller's description of a Node. Providers match it by provider ID, their own label, address, then name."""

    name: str
    provider_id: str = ""  #: spec.providerID
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    internal_ips: tuple[str, ...] = ()  #: status.addresses of type InternalIP
    control_plane: bool = False  #: the caller recognized a control-plane node by something other than labels
    #: The intent's time, if an earlier process may have ordered the deletion. Providers then order nothing before
    #: they have a state observed after this time, and treat a missing machine as deleted.
    ordered_at: dt.datetime | None = None
    #: Other Nodes of the cluster with the same provider ID, address or name. A machine that could also belong to one
    #: of them is not matched.
    rivals: tuple["NodeRef", ...] = ()

    @property
    def placeholder(self) -> bool:
        """Whether this is Cluster Autoscaler's placeholder for an instance without a Node: name and ID are equal."""
        return bool(self.provider_id) and self.name == self.provider_id

    @property
    def template(self) -> bool:
        """Whether this is Cluster Autoscaler's template of a group's next node, used for prices: it has no machine.

        cluster-autoscaler/simulator/node_info_utils.go generates the name; the Node has the labels of the template.
        """
        return self.name.startswith(TEMPLATE_PREFIX)

    @property
    def on_control_plane(self) -> bool:
        return self.control_plane or any(label in self.labels for label in CONTROL_PLANE_LABELS)


def with_rivals(nodes: Sequence[NodeRef]) -> list[NodeRef]:
    """Return *nodes*, followed by their rivals that are not among *nodes*."""
    known = {node.name for node in nodes}
    others = {rival.name: rival for node in nodes for rival in node.rivals if rival.name not in known}
    return [*nodes, *others.values()]
