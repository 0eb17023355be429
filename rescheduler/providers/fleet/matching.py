"""Match Nodes to machines by the ID on the Node, otherwise by a private address, otherwise by name. No I/O."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rescheduler.providers.base import NodeRef, with_rivals
from rescheduler.providers.fleet.machine import SystemMachine


@dataclass(frozen=True, slots=True)
class Matches:
    """Matches by node name; a node in neither mapping has no machine."""

    machines: Mapping[str, SystemMachine] = field(default_factory=dict)
    ambiguous: Mapping[str, str] = field(default_factory=dict)  #: why the match is uncertain


class Index:
    """The machines of a view, indexed by key, address and name."""

    def __init__(self, machines: Sequence[SystemMachine], key_of: Callable[[NodeRef], str | None]) -> None:
        self._key_of = key_of
        self._by_key = {machine.key: machine for machine in machines}
        self._by_address = _grouped((address, machine) for machine in machines for address in machine.addresses)
        self._by_name = _grouped((name, machine) for machine in machines for name in machine.names)

    def get(self, key: str) -> SystemMachine | None:
        return self._by_key.get(key)

    def match(self, nodes: Sequence[NodeRef]) -> Matches:
        """Match *nodes* and their rivals. If several nodes match a machine and one has no ID, none of them gets it."""
        matched: dict[str, SystemMachine] = {}
        ambiguous: dict[str, str] = {}
        claims: dict[str, list[NodeRef]] = defaultdict(list)
        for node in with_rivals(nodes):
            candidates = self._candidates(node)
            if len(candidates) > 1:
                keys = ", ".join(sorted(machine.key for machine in candidates))
                ambiguous[node.name] = f"several machines match the node: {keys}"
            for machine in candidates[:1] if len(candidates) == 1 else ():
                matched[node.name] = machine
                claims[machine.key].append(node)
        for key, claimants in claims.items():
            names = sorted({node.name for node in claimants})
            if len(names) > 1 and not all(self._key_of(node) for node in claimants):
                for name in names:
                    del matched[name]
                    ambiguous[name] = f"machine {key} could be that of {', '.join(names)}"
        return Matches(matched, ambiguous)

    def _candidates(self, node: NodeRef) -> Sequence[SystemMachine]:
        key = self._key_of(node)
        if key:
            machine = self._by_key.get(key)
            return [machine] if machine else []
        if key is None:
            return []
        machines = (machine for address in node.internal_ips for machine in self._by_address.get(address, ()))
        by_address = {machine.key: machine for machine in machines}
        return list(by_address.values()) or self._by_name.get(node.name.lower(), [])


def _grouped(pairs: Iterable[tuple[str, SystemMachine]]) -> dict[str, list[SystemMachine]]:
    machines: dict[str, list[SystemMachine]] = defaultdict(list)
    for name, machine in pairs:
        machines[name].append(machine)
    return machines
