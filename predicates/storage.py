"""Claims, the volumes they are bound to, and their classes: what the four volume plugins have in common.

Sources: ``component-helpers/storage/volume`` (``helpers.go``, ``pv_helpers.go``), ``storage/ephemeral``.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, cast

import numpy as np
from msgspec.structs import replace

from predicates.framework import Rejections
from predicates.nodes import Flags, Rows
from predicates.objects import (
    Claim,
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeClaim,
    PodClass,
    Requirement,
    StorageClass,
)
from predicates.quantity import ZERO, Quantity, parse
from predicates.selectors import compile_selector, node_selector_mask, valid_term
from predicates.snapshot import Snapshot

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"

EVERY_NODE: Final = None  #: in place of a NodeSelector: nothing restricts the nodes
NO_NODE: Final = NodeSelector()


def claim_key(namespace: str, name: str) -> str:
    """How the snapshot keys a claim."""
    return f"{namespace}/{name}" if namespace else name


def find_claim(snapshot: Snapshot, namespace: str, name: str) -> PersistentVolumeClaim | None:
    return cast("PersistentVolumeClaim | None", snapshot.of("PersistentVolumeClaim").get(claim_key(namespace, name)))


def find_volume(snapshot: Snapshot, name: str) -> PersistentVolume | None:
    return cast("PersistentVolume | None", snapshot.of("PersistentVolume").get(name))


def find_class(snapshot: Snapshot, name: str) -> StorageClass | None:
    return cast("StorageClass | None", snapshot.of("StorageClass").get(name))


def all_volumes(snapshot: Snapshot) -> Iterable[PersistentVolume]:
    return cast("Iterable[PersistentVolume]", snapshot.of("PersistentVolume").values())


def no_such(resource: str, name: str) -> str:
    """The API's words for an object that is not there."""
    return f'{resource} "{name}" not found'


def no_such_claim(name: str) -> str:
    return no_such("persistentvolumeclaim", name)


def not_owned(namespace: str, claim: Claim) -> str:
    """The scheduler's words for a generic ephemeral volume whose claim belongs to somebody else."""
    pod = f"{namespace}/{claim.pod}"
    return f"PVC {namespace}/{claim.name} was not created for pod {pod} (pod is not owner)"


def class_name(one: PersistentVolumeClaim | PersistentVolume) -> str:
    """The name of its storage class, "" for none; the beta annotation goes first."""
    if (beta := one.metadata.annotations.get(BETA_CLASS)) is not None:
        return beta
    return one.spec.storage_class_name or ""


def fully_bound(claim: PersistentVolumeClaim) -> bool:
    """Claim and volume know each other, and the volume controller has said so."""
    return claim.spec.volume_name != "" and BIND_COMPLETED in claim.metadata.annotations


def requested(claim: PersistentVolumeClaim) -> Quantity:
    """The size asked for."""
    return parse(claim.spec.resources.requests.get("storage", 0))


def capacity(volume: PersistentVolume) -> Quantity:
    size = volume.spec.capacity.get("storage")
    return ZERO if size is None else parse(size)


def rejected(reason: str, snapshot: Snapshot, rows: Rows) -> Rejections:
    """The pod is refused before any node is looked at."""
    return Rejections(np.ones(len(snapshot.nodes.alive[rows]), np.int64), lambda _: (reason,), prefilter=True)


def failed(plugin: str, error: str) -> str:
    """The scheduler's words where a filter plugin cannot judge a node (``RunFilterPlugins``)."""
    return f'running "{plugin}" filter plugin: {error}'


def own_claims(pod: PodClass) -> Iterable[str]:
    """The keys of the claims that the pod names itself; those of ephemeral volumes are left out."""
    return (claim_key(pod.namespace, one.name) for one in pod.claims if not one.ephemeral)


def affinity(volume: PersistentVolume) -> NodeSelector | None:
    """The nodes that reach the volume."""
    return by_labels(volume.spec.node_affinity.required if volume.spec.node_affinity else None)


@lru_cache(maxsize=4096)
def by_labels(selector: NodeSelector | None) -> NodeSelector | None:
    """*selector* as it is asked of a volume's nodes: of labels alone, so that fields hold of every node.

    Source: ``CheckNodeAffinity``, which shows the selector a node without a name.
    """
    if selector is None:
        return EVERY_NODE
    terms = [replace(one, match_fields=()) for one in selector.node_selector_terms if valid_term(one)]
    if any(not one.match_expressions for one in terms):
        return EVERY_NODE
    return NodeSelector(node_selector_terms=tuple(terms))


def allowed_nodes(of: StorageClass) -> NodeSelector | None:
    """The nodes that a volume of the class may be made for (``allowedTopologies``)."""
    if not of.allowed_topologies:
        return EVERY_NODE
    return NodeSelector(
        node_selector_terms=tuple(
            NodeSelectorTerm(
                match_expressions=tuple(
                    Requirement(key=one.key, operator="In", values=one.values) for one in term.match_label_expressions
                )
            )
            for term in of.allowed_topologies
        )
    )


def nodes_selected(selector: LabelSelector | None) -> NodeSelector | None:
    """A selector of node labels as a node selector; a broken one, or none, takes no node."""
    compiled = compile_selector(selector)
    if compiled.everything:
        return EVERY_NODE
    if compiled.nothing or selector is None:
        return NO_NODE
    equal = (Requirement(key=key, operator="In", values=(value,)) for key, value in selector.match_labels.items())
    term = NodeSelectorTerm(match_expressions=(*equal, *selector.match_expressions))
    return NodeSelector(node_selector_terms=(term,))


def reached(selector: NodeSelector | None, snapshot: Snapshot, rows: Rows) -> Flags:
    """Which of *rows* the selector takes; an array of the caller's own."""
    if selector is EVERY_NODE:
        return np.ones(len(snapshot.nodes.alive[rows]), np.bool_)
    return node_selector_mask(selector, snapshot, rows)
