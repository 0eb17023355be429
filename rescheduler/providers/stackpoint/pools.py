"""The groups, and the group of each node of the API. No I/O except for the mounted ConfigMap."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rescheduler import decoding
from rescheduler.net import files
from rescheduler.net.http_errors import UNREADABLE
from rescheduler.providers.base import NodeGroup, NodeTemplate, NotSupported
from rescheduler.providers.stackpoint import sizes
from rescheduler.providers.stackpoint.config import PREFIX, Spec
from rescheduler.providers.stackpoint.messages import ClusterNode, NodeAdd, NodePool

GROUP_LABEL = "stackpoint.io/node_group"


@dataclass(frozen=True, slots=True)
class StackpointGroup:
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
        """Return the template with the CPU and memory of the pool, or of its size if the pool reports none."""
        if self.cpu.isdigit() and self.memory.isdigit():
            amounts: tuple[int, int] | None = (int(self.cpu), int(self.memory))
        else:
            amounts = sizes.of(self.size)
        if amounts is None:
            raise NotSupported(f"stackpoint: group {self.group.id}: the size {self.size!r} is unknown")
        capacity = {"cpu": str(amounts[0]), "memory": f"{amounts[1]}Mi", "pods": "110"}
        labels = {
            GROUP_LABEL: self.group.id,
            "stackpoint.io/role": "worker",
            "node.kubernetes.io/instance-type": self.size,
            "kubernetes.io/os": "linux",
        }
        return NodeTemplate(labels, (), capacity, capacity)


def of_specs(specs: Sequence[Spec]) -> Mapping[str, StackpointGroup]:
    return {spec.group.id: StackpointGroup(spec.group, spec.size) for spec in specs}


def of_pools(pools: Sequence[NodePool]) -> Mapping[str, StackpointGroup]:
    """Return the groups of autoscaled pools; without a maximum, a pool cannot grow beyond its minimum."""
    groups = {}
    for pool in pools:
        if not pool.autoscaled or pool.state in {"deleting", "deleted"}:
            continue
        low = max(pool.min_count or 0, 0)
        group = NodeGroup(
            PREFIX + pool.instance_id, low, max(pool.max_count or 0, low), f"StackPointCloud pool {pool.instance_id}"
        )
        groups[group.id] = StackpointGroup(
            group, pool.instance_size or "", pool.pk, str(pool.cpu or "").strip(), str(pool.memory or "").strip()
        )
    return groups


def mounted(path: Path) -> Sequence[NodePool] | None:
    """Return the pools of the mounted ConfigMap; `None` if it is missing or invalid."""
    try:
        return decoding.decode(files.read_bytes(path), list[NodePool], strict=False)
    except (OSError, *UNREADABLE):
        return None


def group_of(node: ClusterNode, groups: Mapping[str, StackpointGroup]) -> str:
    """Return the group of *node* by group name (with or without the prefix) and by pool; "" if they disagree."""
    name = node.group_name or ""
    named = name if name in groups else PREFIX + name if PREFIX + name in groups else ""
    if node.pool is None or not any(group.pk for group in groups.values()):
        return named
    pooled = next((key for key, group in groups.items() if group.pk == node.pool), "")
    return pooled if not name or pooled == named else ""
