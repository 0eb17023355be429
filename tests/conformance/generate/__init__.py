"""Random, odd, adversarial clusters: a seed is a cluster, a family is what it is odd about."""

from random import Random
from typing import Final

from tests.conformance.generate import devices, neighbours, nodes, resources, storage, volumes
from tests.conformance.generate.workloads import add_workloads
from tests.conformance.generate.world import Family, Json, World, add_namespaces, add_nodes

FAMILIES: Final[dict[str, Family]] = {
    family.name: family
    for module in (nodes, resources, storage, volumes, neighbours, devices)
    for family in module.FAMILIES
}


def cluster(seed: int, family: str = "all") -> Json:
    """A ``kind: List`` as ``kubectl get -o json`` would print it: the same for the same *seed* and *family*.

    *family* is a plugin's name in :data:`FAMILIES`, "all" for pods that mix some of them, or "plannable" for
    clusters in which few pods are odd, so that nodes can be emptied.
    """
    world = World(Random(f"{family}/{seed}"))
    families, oddness = _oddness(world, family)
    add_namespaces(world)
    add_nodes(world)
    for one in families:
        one.cluster(world)
    add_workloads(world, families, oddness)
    return world.as_list()


def _oddness(world: World, family: str) -> tuple[list[Family], float]:
    if family == "all":
        return world.some(list(FAMILIES.values()), 3, 9), 0.25
    if family == "plannable":
        return world.some(list(FAMILIES.values()), 1, 4), 0.15
    return [FAMILIES[family]], 0.9
