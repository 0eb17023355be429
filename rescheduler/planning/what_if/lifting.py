"""Obstacles that the owners of pods can remove, and copies of pods without them."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from msgspec.structs import replace

from predicates.objects import Node, Pod
from predicates.texts import shown
from rescheduler.planning.answers.node import RULES
from rescheduler.planning.controllers import ControllerName, controller_of
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.policy import Policy
from rescheduler.planning.pool_shares import MAX_SHARE, WHOLE
from rescheduler.planning.rules.declared import Fate, PodRules
from rescheduler.planning.rules.lifts import PodLift, Remedy
from rescheduler.planning.rules.pod_traits import needed_volumes


class Trait(enum.StrEnum):
    """What pods of several controllers can have in common, so that one change removes their obstacles."""

    SELECTOR = "Selector"  #: what the pods demand of a node's labels
    TAINT = "Taint"  #: of the spot nodes, which the pods do not tolerate
    KEY = "Key"  #: of an annotation or label of the pods
    NODE_KEY = "NodeKey"  #: of an annotation or label of the nodes
    VOLUME = "Volume"  #: the name of a local volume


#: Traits with their texts, such as ``capacity-type=on-demand`` or ``spot=true:NoSchedule``.
Traits: TypeAlias = tuple[tuple[Trait, str], ...]


@dataclass(frozen=True, slots=True, order=True)
class Obstacle:
    """A property of pods or nodes that prevents drains, and that its owner can change."""

    controller: ControllerName
    reason: Reason
    description: str  #: the part to change, such as ``emptyDir cache``
    traits: Traits = ()  #: the obstacle is removed if all of these are; empty if only the owner can remove it

    def __str__(self) -> str:
        return f"{self.controller}: {self.description}"


def _without_share(pod: Pod, _: Policy) -> tuple[Pod, str]:
    """Return the pod whose controller may have all replicas on one pool of spot nodes."""
    return replace(pod, annotations={**pod.annotations, MAX_SHARE: f"{WHOLE}%"}), MAX_SHARE


def _declared(*, of_pods: bool) -> dict[Reason, Remedy]:
    """Return what the rules declare to lift their reasons, about pods or about nodes."""
    remedies = (item for rule in RULES for item in rule.lifted_by.items())
    return {reason: each for reason, each in remedies if (each.lift is not None) is of_pods}


#: What removes each obstacle of pods, and of nodes, that levers try, and that ``--what-if`` can remove. No rule finds
#: the share of a pool.
OF_PODS: Final[Mapping[Reason, Remedy]] = {
    **_declared(of_pods=True),
    Reason.SPOT_POOL_SHARE: Remedy(lift=_without_share),
}
OF_NODES: Final[Mapping[Reason, Remedy]] = _declared(of_pods=False)

#: Reasons that are an annotation or label of pods.
WITH_KEY: Final = frozenset(reason for reason, each in OF_PODS.items() if each.key)


def part_of_node(reason: Reason) -> str:
    """Return the part of a node to change for *reason*, one of :data:`OF_NODES`."""
    return f"{OF_NODES[reason].place} {OF_NODES[reason].key}"


def lifted(pod: Pod, reason: Reason, policy: Policy) -> Pod:
    """Return *pod* without the obstacle *reason*, which must be one of :data:`OF_PODS`."""
    return _lift_of(reason)(pod, policy)[0]


def _lift_of(reason: Reason) -> PodLift:
    lift = OF_PODS[reason].lift
    assert lift is not None
    return lift


def node_without(node: Node, reason: Reason) -> Node:
    """Return *node* without the annotation or label that is the obstacle *reason*, one of :data:`OF_NODES`."""
    key, meta = OF_NODES[reason].key, node.metadata
    annotations = {name: value for name, value in meta.annotations.items() if name != key}
    labels = {name: value for name, value in meta.labels.items() if name != key}
    return replace(node, metadata=replace(meta, annotations=annotations, labels=labels))


def lift_all(pod: Pod, rules: PodRules) -> tuple[Pod, frozenset[Obstacle], Fate | None]:
    """Return *pod* without the obstacles to its eviction, these obstacles, and its fate without them.

    The fate is None if no change to the pod would allow its eviction.
    """
    obstacles = set[Obstacle]()
    while isinstance(result := rules.fate(pod), Blocker):
        if result.reason not in OF_PODS or any(obstacle.reason is result.reason for obstacle in obstacles):
            return pod, frozenset(obstacles), None
        traits = _traits(pod, result.reason, rules.facts.policy)
        pod, description = _lift_of(result.reason)(pod, rules.facts.policy)
        obstacles.add(Obstacle(controller_of(pod), result.reason, shown(description), traits))
    return pod, frozenset(obstacles), result


def _traits(pod: Pod, reason: Reason, policy: Policy) -> Traits:
    """Return what *pod* can have in common with pods of other controllers that have the obstacle *reason*."""
    if reason is Reason.LOCAL_STORAGE:
        names = {volume.name for volume in needed_volumes(pod, policy.ignore_local_volumes)}
        return tuple((Trait.VOLUME, name) for name in sorted(names))
    return ((Trait.KEY, OF_PODS[reason].key),) if reason in WITH_KEY else ()
