"""Which ``--cloud-provider`` ends the machines of drained nodes, by what their Node objects say. Pure."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

from predicates.objects import Node, NodePool
from predicates.objects.pods import NODE_POOL
from predicates.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class FittingBackend:
    """A cloud provider of this program, and the nodes that it can remove."""

    name: str  #: in ``--cloud-provider``
    owner: str  #: who manages the machines
    owns: Callable[[Node], bool]
    does: str  #: what the daemon does with it, after its name
    preset: str = ""  #: the ``install --preset`` that selects it


def _has_scheme(scheme: str) -> Callable[[Node], bool]:
    return lambda node: node.spec.provider_id.startswith(f"{scheme}://")


def _is_ec2(node: Node) -> bool:
    """Return whether the node is an EC2 instance: those of Fargate have the scheme, too."""
    return node.spec.provider_id.startswith("aws://") and node.spec.provider_id.rpartition("/")[2].startswith("i-")


def _has(annotation: str) -> Callable[[Node], bool]:
    return lambda node: annotation in node.metadata.annotations


#: The first one that owns a node counts: nodes of Karpenter and Cluster API have the provider ID of their cloud, too.
FITTING_BACKENDS: Final = (
    FittingBackend(
        "karpenter",
        "Karpenter",
        lambda node: NODE_POOL in node.metadata.labels,
        "deletes their NodeClaims as soon as they are empty, also where a budget of 0 or consolidateAfter: Never keeps "
        "Karpenter from it",
        preset="karpenter",
    ),
    FittingBackend(
        "clusterapi", "Cluster API", _has("cluster.x-k8s.io/machine"), "removes their Machines", preset="clusterapi"
    ),
    FittingBackend(
        "clusterapi", "OpenShift", _has("machine.openshift.io/machine"), "removes their Machines", preset="openshift"
    ),
    FittingBackend("aws", "AWS", _is_ec2, "ends their instances", preset="eks"),
    FittingBackend("cherryservers", "Cherry Servers", _has_scheme("cherryservers"), "deletes their servers"),
    FittingBackend("stackpoint", "StackPointCloud", _has_scheme("spc"), "deletes their machines"),
)


def backend_suggestions(snapshot: Snapshot, nodes: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each backend that could end the machines of some of *nodes*, which can be emptied.

    A NodePool with static capacity would replace its nodes: they are not counted.
    """
    static = {
        pool.metadata.name
        for pool in snapshot.of("NodePool").values()
        if isinstance(pool, NodePool) and pool.spec.replicas is not None
    }
    owned = dict.fromkeys(FITTING_BACKENDS, 0)
    for name in nodes:
        row = snapshot.nodes.row.get(name)
        node = None if row is None else snapshot.nodes.nodes[row]
        if node is None or node.metadata.labels.get(NODE_POOL) in static:
            continue
        if (backend := next((each for each in FITTING_BACKENDS if each.owns(node)), None)) is not None:
            owned[backend] += 1
    for backend in FITTING_BACKENDS:
        if number := owned[backend]:
            yield (
                f"{backend.owner} manages {f'{number} of {len(nodes)}' if number < len(nodes) else 'all'} of the nodes "
                f"that can be emptied: --cloud-provider={backend.name} {backend.does}"
            )
