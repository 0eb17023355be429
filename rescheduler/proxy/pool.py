"""The active machines of a pool, matched to Nodes, and their order of removal. No I/O, no clock."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rescheduler.providers.base import NodeRef
from rescheduler.providers.cloudpool import identity
from rescheduler.providers.cloudpool.matching import MachineIndex
from rescheduler.providers.cloudpool.messages import Machine, MachineState, moment

_ORDER = {MachineState.REQUESTED: 0, MachineState.PENDING: 1, MachineState.RUNNING: 2}


@dataclass(frozen=True, slots=True)
class Members:
    """The active machines of a pool, matched to Nodes."""

    active: int
    nodeless: Sequence[Machine]  #: evictable machines that certainly have no Node, in the order of removal
    nodes: Mapping[str, Machine]  #: Node name → its evictable machine
    reasons: Sequence[str]  #: why the other machines are not removed


def members(machines: Sequence[Machine], index: MachineIndex, nodes: Sequence[NodeRef]) -> Members:
    """Match machines and Nodes. A machine that could belong to an unmatched Node is kept, as its pods are unknown."""
    matching = index.match(nodes)
    unpaired = [node for node in nodes if node.name not in matching.machines]
    paired = {machine.id: name for name, machine in matching.machines.items()}
    nodeless: list[Machine] = []
    of_nodes: dict[str, Machine] = {}
    reasons: list[str] = []
    for position, machine in enumerate(machines):
        if not machine.active:
            continue
        if not machine.membership.evictable:
            reasons.append(f"machine {machine.id}: its membership status is not evictable")
        elif machine.id in paired:
            of_nodes[paired[machine.id]] = machine
        elif position in matching.claimed or not _differs(machine, unpaired):
            reasons.append(f"machine {machine.id}: its node is unknown")
        else:
            nodeless.append(machine)
    reasons += [f"node {name}: {why}" for name, why in sorted(matching.ambiguous.items())]
    active = sum(machine.active for machine in machines)
    return Members(active, sorted(nodeless, key=_giving_up), of_nodes, reasons)


def surely_nodeless(
    machine: Machine, machines: Sequence[Machine], index: MachineIndex, nodes: Sequence[NodeRef]
) -> bool:
    """Return whether *machine*, which is one of *machines*, certainly belongs to none of *nodes*."""
    matching = index.match(nodes)
    claimed = any(machines[position].id == machine.id for position in matching.claimed)
    return not claimed and _differs(machine, [node for node in nodes if node.name not in matching.machines])


def _differs(machine: Machine, unpaired: Collection[NodeRef]) -> bool:
    """Return whether the machine is not launched yet or certainly differs from every unmatched Node."""
    if machine.machine_state == MachineState.REQUESTED:
        return True
    own = identity.of_machine(machine)
    return all(_differ(own, identity.of_provider_id(node.provider_id)) for node in unpaired)


def _differ(own: identity.Identity | None, other: identity.Identity | None) -> bool:
    return own is not None and other is not None and other.cloud in identity.CLOUDS and own != other


def _giving_up(machine: Machine) -> tuple[int, float, str]:
    """Return the sort key for removal: requested machines first, then pending ones, then the youngest."""
    launched = moment(machine.launch_time)
    return _ORDER[MachineState(machine.machine_state)], -launched.timestamp() if launched else 0.0, machine.id
