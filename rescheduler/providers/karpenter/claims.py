"""Karpenter's NodeClaims as machines, and its NodePools as their groups. No I/O.

Sources in sigs.k8s.io/karpenter: ``pkg/apis/v1/nodeclaim.go``, ``pkg/controllers/nodeclaim/lifecycle/controller.go``
(what a deletion does), ``pkg/controllers/state/statenode.go`` (ValidateNodeDisruptable).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from predicates.objects import NodePool
from predicates.objects.api import ObjectMeta, Wire
from predicates.objects.pods import CAPACITY_TYPE, DO_NOT_DISRUPT, KARPENTER, NODE_POOL
from predicates.quantity import QuantityError, parse
from rescheduler.providers.base import InstanceState, NodeGroup, ObjectVersion, Refusal, Refused
from rescheduler.providers.fleet import UNLIMITED, SystemMachine, SystemView

NODE_POOLS: Final = f"/apis/{KARPENTER}/v1/nodepools"
NODE_CLAIMS: Final = f"/apis/{KARPENTER}/v1/nodeclaims"

#: Without it, a NodeClaim is gone at once, and its machine keeps running until Karpenter finds it.
_FINALIZER: Final = f"{KARPENTER}/termination"


class ClaimMeta(ObjectMeta, frozen=True):
    finalizers: tuple[str, ...] = ()


class ClaimStatus(Wire, frozen=True):
    node_name: str = ""
    provider_id: str = msgspec.field(default="", name="providerID")


class NodeClaim(Wire, frozen=True):
    """A NodeClaim: the machine of a Node with the same provider ID."""

    metadata: ClaimMeta
    status: ClaimStatus = ClaimStatus()


def view_of(pools: Sequence[NodePool], claims: Sequence[NodeClaim]) -> SystemView:
    """Return the NodePools as groups, and the NodeClaims as their machines. A NodeClaim may have no NodePool."""
    groups = {pool.metadata.name: group_of(pool) for pool in pools}
    sharing: dict[str, list[str]] = defaultdict(list)
    for claim in claims:
        sharing[key_of(claim)].append(claim.metadata.name)
    return SystemView([*groups.values()], [_machine(claim, groups, sharing[key_of(claim)]) for claim in claims])


def group_of(pool: NodePool) -> NodeGroup:
    """Return *pool* as a group. Only static capacity has a minimum: Karpenter would launch a new machine."""
    name, replicas = pool.metadata.name, pool.spec.replicas
    try:
        limit = pool.spec.limits.get("nodes")
        most = UNLIMITED if limit is None else min(parse(limit).millis // 1000, UNLIMITED)
    except QuantityError:
        most = 0
    kind = f"{replicas} replicas" if replicas is not None else "as many nodes as pods need"
    return NodeGroup(name, replicas or 0, max(most, 0), f"NodePool {name}: {kind}")


def key_of(claim: NodeClaim) -> str:
    """Return the provider ID, which the Node has, too; the name of the NodeClaim before its machine is launched."""
    return claim.status.provider_id or claim.metadata.name


def _machine(claim: NodeClaim, groups: Mapping[str, NodeGroup], sharing: Sequence[str]) -> SystemMachine:
    meta, status = claim.metadata, claim.status
    state = InstanceState.RUNNING if status.node_name else InstanceState.CREATING
    pool = meta.labels.get(NODE_POOL, "")
    kind = meta.labels.get(CAPACITY_TYPE)
    return SystemMachine(
        key_of(claim),
        status.provider_id,
        pool if pool in groups else "",
        InstanceState.DELETING if meta.deletion_timestamp is not None else state,
        names=frozenset({status.node_name} - {""}),
        spot=None if kind is None else kind == "spot",
        protected=_protection(claim, sharing),
        object=ObjectVersion(f"{NODE_CLAIMS}/{meta.name}", meta.uid, meta.resource_version),
    )


def _protection(claim: NodeClaim, sharing: Sequence[str]) -> Refused | None:
    """Return why the NodeClaim must not be deleted, or None. *sharing* are the NodeClaims with its provider ID."""
    meta = claim.metadata
    if len(sharing) > 1:
        return Refused(Refusal.AMBIGUOUS, f"several NodeClaims have its provider ID: {', '.join(sorted(sharing))}")
    if meta.deletion_timestamp is None and _FINALIZER not in meta.finalizers:
        text = f"NodeClaim {meta.name} has no finalizer {_FINALIZER}: Karpenter would not end the machine"
        return Refused(Refusal.PROTECTED, text)
    if meta.annotations.get(DO_NOT_DISRUPT) == "true":
        return Refused(Refusal.PROTECTED, f'NodeClaim {meta.name} has the annotation {DO_NOT_DISRUPT}: "true"')
    return None
