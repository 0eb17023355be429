"""What a change of size means for a pool: whom it takes, and in which order. No I/O, no clock."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rescheduler.backends.base import NodeRef
from rescheduler.backends.cloudpool import identity
from rescheduler.backends.cloudpool.matching import Machines
from rescheduler.backends.cloudpool.messages import Machine, MachineState, moment

_ORDER = {MachineState.REQUESTED: 0, MachineState.PENDING: 1, MachineState.RUNNING: 2}


@dataclass(frozen=True, slots=True)
class Members:
    """The active machines of a pool, and which of them are which Nodes."""

    active: int
    nodeless: Sequence[Machine]  #: surely no Node's, and evictable; in the order in which they are given up
    nodes: Mapping[str, Machine]  #: Node name → its machine, of those that may be evicted
    reasons: Sequence[str]  #: why the others are not given up


def members(machines: Sequence[Machine], index: Machines, nodes: Sequence[NodeRef]) -> Members:
    """Pair machines and Nodes. A machine that could be an unpaired Node's stays: nobody knows what runs there."""
    found = index.match(nodes)
    unpaired = [node for node in nodes if node.name not in found.machines]
    paired = {machine.id: name for name, machine in found.machines.items()}
    nodeless: list[Machine] = []
    of_nodes: dict[str, Machine] = {}
    reasons: list[str] = []
    for position, machine in enumerate(machines):
        if not machine.active:
            continue
        if not machine.membership.evictable:
            reasons.append(f"machine {machine.id}: its membership status says that it is not evictable")
        elif machine.id in paired:
            of_nodes[paired[machine.id]] = machine
        elif position in found.claimed or not _differs(machine, unpaired):
            reasons.append(f"machine {machine.id}: it cannot be told which node it is")
        else:
            nodeless.append(machine)
    reasons += [f"node {name}: {why}" for name, why in sorted(found.unsure.items())]
    active = sum(machine.active for machine in machines)
    return Members(active, sorted(nodeless, key=_giving_up), of_nodes, reasons)


def surely_nodeless(machine: Machine, machines: Sequence[Machine], index: Machines, nodes: Sequence[NodeRef]) -> bool:
    """Whether *machine*, one of *machines*, can be none of *nodes*."""
    found = index.match(nodes)
    claimed = any(machines[position].id == machine.id for position in found.claimed)
    return not claimed and _differs(machine, [node for node in nodes if node.name not in found.machines])


def _differs(machine: Machine, unpaired: Collection[NodeRef]) -> bool:
    """It is not launched yet, or every Node without a machine is provably another one."""
    if machine.machine_state == MachineState.REQUESTED:
        return True
    own = identity.of_machine(machine)
    return all(_differ(own, identity.of_provider_id(node.provider_id)) for node in unpaired)


def _differ(own: identity.Identity | None, other: identity.Identity | None) -> bool:
    return own is not None and other is not None and other.cloud in identity.CLOUDS and own != other


def _giving_up(machine: Machine) -> tuple[int, float, str]:
    """What is only requested, then what is being launched, then the youngest."""
    launched = moment(machine.launch_time)
    return _ORDER[MachineState(machine.machine_state)], -launched.timestamp() if launched else 0.0, machine.id
