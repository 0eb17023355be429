"""Which machine a Node is: by the id that it bears, else by a private address, else by its name. No I/O."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rescheduler.backends.base import NodeRef, with_rivals
from rescheduler.backends.fleet.machine import Machine


@dataclass(frozen=True, slots=True)
class Matches:
    """By node name; a node that is in neither has no machine."""

    machines: Mapping[str, Machine] = field(default_factory=dict)
    unsure: Mapping[str, str] = field(default_factory=dict)  #: why it is not certain


class Index:
    """The machines of a view by all that names them."""

    def __init__(self, machines: Sequence[Machine], key_of: Callable[[NodeRef], str | None]) -> None:
        self._key_of = key_of
        self._by_key = {machine.key: machine for machine in machines}
        self._by_address = _grouped((address, one) for one in machines for address in one.addresses)
        self._by_name = _grouped((name, one) for one in machines for name in one.names)

    def get(self, key: str) -> Machine | None:
        return self._by_key.get(key)

    def match(self, nodes: Sequence[NodeRef]) -> Matches:
        """A machine that two nodes claim by weaker signs than its id is nobody's; *nodes*' rivals count."""
        found: dict[str, Machine] = {}
        unsure: dict[str, str] = {}
        claims: dict[str, list[NodeRef]] = defaultdict(list)
        for node in with_rivals(nodes):
            candidates = self._candidates(node)
            if len(candidates) > 1:
                keys = ", ".join(sorted(one.key for one in candidates))
                unsure[node.name] = f"several machines could be its machine: {keys}"
            for machine in candidates[:1] if len(candidates) == 1 else ():
                found[node.name] = machine
                claims[machine.key].append(node)
        for key, claimants in claims.items():
            names = sorted({node.name for node in claimants})
            if len(names) > 1 and not all(self._key_of(node) for node in claimants):
                for name in names:
                    del found[name]
                    unsure[name] = f"machine {key} could be that of {', '.join(names)}"
        return Matches(found, unsure)

    def _candidates(self, node: NodeRef) -> Sequence[Machine]:
        key = self._key_of(node)
        if key:
            machine = self._by_key.get(key)
            return [machine] if machine else []
        if key is None:
            return []
        by_address = {one.key: one for address in node.internal_ips for one in self._by_address.get(address, ())}
        return list(by_address.values()) or self._by_name.get(node.name.lower(), [])


def _grouped(pairs: Iterable[tuple[str, Machine]]) -> dict[str, list[Machine]]:
    found: dict[str, list[Machine]] = defaultdict(list)
    for name, machine in pairs:
        found[name].append(machine)
    return found
