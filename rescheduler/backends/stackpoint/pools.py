"""Which groups there are, and which group a node of the API is of. No I/O but the mounted ConfigMap."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rescheduler import files, shapes
from rescheduler.backends.base import NodeGroup, NodeTemplate, NotSupported
from rescheduler.backends.http import UNREADABLE
from rescheduler.backends.stackpoint import sizes
from rescheduler.backends.stackpoint.config import PREFIX, Spec
from rescheduler.backends.stackpoint.messages import Node, NodeAdd, NodePool

GROUP_LABEL = "stackpoint.io/node_group"


@dataclass(frozen=True, slots=True)
class Group:
    """A group of either generation; `pk` is 0 in the first, which has no pools."""

    group: NodeGroup
    size: str
    pk: int = 0
    cpu: str = ""
    memory: str = ""  #: MB

    def order(self, count: int) -> NodeAdd:
        if self.pk:
            return NodeAdd(self.size, count, node_pool=self.pk)
        return NodeAdd(self.size, count, group=self.group.id)

    def template(self) -> NodeTemplate:
        """From the pool's numbers, else from the table of sizes."""
        if self.cpu.isdigit() and self.memory.isdigit():
            found: tuple[int, int] | None = (int(self.cpu), int(self.memory))
        else:
            found = sizes.of(self.size)
        if found is None:
            raise NotSupported(f"stackpoint: group {self.group.id}: nothing is known about the size {self.size!r}")
        capacity = {"cpu": str(found[0]), "memory": f"{found[1]}Mi", "pods": "110"}
        labels = {
            GROUP_LABEL: self.group.id,
            "stackpoint.io/role": "worker",
            "node.kubernetes.io/instance-type": self.size,
            "kubernetes.io/os": "linux",
        }
        return NodeTemplate(labels, (), capacity, capacity)


def of_specs(specs: Sequence[Spec]) -> Mapping[str, Group]:
    return {spec.group.id: Group(spec.group, spec.size) for spec in specs}


def of_pools(pools: Sequence[NodePool]) -> Mapping[str, Group]:
    """The pools that are to be scaled; a pool without a maximum may not grow beyond its minimum."""
    found = {}
    for pool in pools:
        if not pool.autoscaled or pool.state in {"deleting", "deleted"}:
            continue
        low = max(pool.min_count or 0, 0)
        group = NodeGroup(
            PREFIX + pool.instance_id, low, max(pool.max_count or 0, low), f"StackPointCloud pool {pool.instance_id}"
        )
        found[group.id] = Group(
            group, pool.instance_size or "", pool.pk, str(pool.cpu or "").strip(), str(pool.memory or "").strip()
        )
    return found


def mounted(path: Path) -> Sequence[NodePool] | None:
    """The pools of the mounted ConfigMap; `None` where it is missing or is not what it should be."""
    try:
        return shapes.decode(files.read_bytes(path), list[NodePool], strict=False)
    except (OSError, *UNREADABLE):
        return None


def group_of(node: Node, groups: Mapping[str, Group]) -> str:
    """By its group's name, with or without the prefix, and by its pool; empty where they do not agree."""
    name = node.group_name or ""
    named = name if name in groups else PREFIX + name if PREFIX + name in groups else ""
    if node.pool is None or not any(group.pk for group in groups.values()):
        return named
    pooled = next((key for key, group in groups.items() if group.pk == node.pool), "")
    return pooled if not name or pooled == named else ""
