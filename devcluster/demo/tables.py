"""The tables that the demos print."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from rich.table import Table

from devcluster.demo import machines, scene
from devcluster.demo.machines import Machines
from devcluster.plane import ControlPlane


@dataclass(frozen=True, slots=True)
class Census:
    """The state of a pool at one point in time."""

    nodes: Mapping[str, str]  #: machine by Node name
    states: Mapping[str, str]  #: state by machine
    desired: int

    @property
    def running(self) -> int:
        return sum(state == "RUNNING" for state in self.states.values())


def census(plane: ControlPlane, pool: Machines) -> Census:
    return Census(machines.of_nodes(plane), pool.states, pool.desired)


def change(title: str, before: Census, after: Census) -> Table:
    """Return a table with each node and its machine, and the totals."""
    table = Table(title=title, title_justify="left")
    for column in ("node", "machine", "before", "after"):
        table.add_column(column, no_wrap=True)
    both = {**before.nodes, **after.nodes}
    for node, machine in sorted(both.items()):
        gone = "no longer listed" if machine in before.states else "—"
        table.add_row(node, machine, _of(machine, node, before), _of(machine, node, after, gone))
    table.add_section()
    table.add_row("machines RUNNING", "", str(before.running), str(after.running))
    table.add_row("Nodes", "", str(len(before.nodes)), str(len(after.nodes)))
    table.add_row("desired size", "", str(before.desired), str(after.desired))
    return table


def places(title: str, plane: ControlPlane) -> Table:
    """Return a table with the number of pods of each workload by node."""
    on: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for pod in scene.movable(plane):
        on[pod["spec"].get("nodeName") or "(Pending)"][scene.workload(pod)] += 1
    table = Table(title=title, title_justify="left")
    table.add_column("node", no_wrap=True)
    table.add_column("pods")
    names = sorted(node["metadata"]["name"] for node in plane.api.items("/api/v1/nodes"))
    for node in [*names, *(["(Pending)"] if on["(Pending)"] else [])]:
        table.add_row(node, ", ".join(f"{count} {app}" for app, count in sorted(on[node].items())) or "—")
    return table


def _of(machine: str, node: str, at: Census, unlisted: str = "—") -> str:
    """Return the state of a machine, which pools do not list any more a while after its end."""
    state = at.states.get(machine, unlisted)
    return state if node in at.nodes or state == "—" else f"{state}, Node gone"
