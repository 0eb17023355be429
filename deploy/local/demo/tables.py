"""What the demos count, and show as tables."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from rich.table import Table

from deploy.local.demo import machines, scene
from deploy.local.demo.machines import Machines
from deploy.local.plane import ControlPlane


@dataclass(frozen=True, slots=True)
class Census:
    """A pool at one moment."""

    nodes: Mapping[str, str]  #: the machines' Nodes that there are → machine
    states: Mapping[str, str]  #: machine → its state
    desired: int

    @property
    def running(self) -> int:
        return sum(state == "RUNNING" for state in self.states.values())


def census(plane: ControlPlane, pool: Machines) -> Census:
    return Census(machines.of_nodes(plane), pool.states, pool.desired)


def change(title: str, before: Census, after: Census) -> Table:
    """Each node and its machine, then the sums."""
    table = Table(title=title, title_justify="left")
    for column in ("node", "machine", "before", "after"):
        table.add_column(column, no_wrap=True)
    both = {**before.nodes, **after.nodes}
    for node, machine in sorted(both.items()):
        table.add_row(node, machine, _of(machine, node, before), _of(machine, node, after))
    table.add_section()
    table.add_row("machines RUNNING", "", str(before.running), str(after.running))
    table.add_row("Nodes", "", str(len(before.nodes)), str(len(after.nodes)))
    table.add_row("desired size", "", str(before.desired), str(after.desired))
    return table


def places(title: str, plane: ControlPlane) -> Table:
    """What runs where: a workload's name and how many of its pods."""
    on: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for one in scene.movable(plane):
        on[one["spec"].get("nodeName") or "(Pending)"][scene.workload(one)] += 1
    table = Table(title=title, title_justify="left")
    table.add_column("node", no_wrap=True)
    table.add_column("pods")
    names = sorted(node["metadata"]["name"] for node in plane.api.items("/api/v1/nodes"))
    for node in [*names, *(["(Pending)"] if on["(Pending)"] else [])]:
        table.add_row(node, ", ".join(f"{count} {app}" for app, count in sorted(on[node].items())) or "—")
    return table


def _of(machine: str, node: str, at: Census) -> str:
    state = at.states.get(machine, "—")
    return state if node in at.nodes or state == "—" else f"{state}, Node gone"
