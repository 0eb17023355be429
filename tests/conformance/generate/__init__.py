"""Random, odd, adversarial clusters: a seed is a cluster, a family is what it is odd about."""

from random import Random
from typing import Final

from tests.conformance.generate import devices, neighbours, nodes, resources, storage
from tests.conformance.generate.workloads import add_workloads
from tests.conformance.generate.world import Family, Json, World, add_namespaces, add_nodes

FAMILIES: Final[dict[str, Family]] = {
    family.name: family for module in (nodes, resources, storage, neighbours, devices) for family in module.FAMILIES
}


def cluster(seed: int, family: str = "all") -> Json:
    """A ``kind: List`` as ``kubectl get -o json`` would print it: the same for the same *seed* and *family*.

    *family* is a plugin's name in :data:`FAMILIES`, or "all" for pods that mix some of them.
    """
    world = World(Random(f"{family}/{seed}"))
    families = world.some(list(FAMILIES.values()), 3, 9) if family == "all" else [FAMILIES[family]]
    add_namespaces(world)
    add_nodes(world)
    for one in families:
        one.cluster(world)
    add_workloads(world, families)
    return world.as_list()
