"""Random clusters with unusual objects. The seed determines the cluster, the family the kind of unusual objects."""

from random import Random
from typing import Final

from tests.conformance.generate import devices, neighbours, nodes, resources, storage, volumes
from tests.conformance.generate.admission import add_labels
from tests.conformance.generate.workloads import add_workloads
from tests.conformance.generate.world import ClusterBuilder, Family, Json, add_namespaces, add_nodes

FAMILIES: Final[dict[str, Family]] = {
    family.name: family
    for module in (nodes, resources, storage, volumes, neighbours, devices)
    for family in module.FAMILIES
}


def cluster(seed: int, family: str = "all", scale: int = 1) -> Json:
    """Return a cluster as a ``kind: List``, determined by *seed*, *family* and *scale*, which multiplies its nodes.

    *family* is a name in :data:`FAMILIES`, "all" for a mix of several families, or "plannable" for clusters with few
    unusual pods, so that nodes can be emptied.
    """
    world = ClusterBuilder(Random(f"{family}/{seed}" if scale == 1 else f"{family}/{seed}/{scale}"))
    families, oddness = _oddness(world, family)
    add_namespaces(world)
    add_nodes(world, scale)
    for selected in families:
        selected.cluster(world)
    add_workloads(world, families, oddness)
    add_labels(Random(f"labels of {family}/{seed}"), world.nodes, world.pods)
    return world.as_list()


def _oddness(world: ClusterBuilder, family: str) -> tuple[list[Family], float]:
    if family == "all":
        return world.some(list(FAMILIES.values()), 3, 9), 0.25
    if family == "plannable":
        return world.some(list(FAMILIES.values()), 1, 4), 0.15
    return [FAMILIES[family]], 0.9
