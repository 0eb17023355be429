"""Match the machines of a pool to Nodes; a node without a certain match has none.

Provider IDs decide if both sides have comparable ones; a spot request has the one of its instance, from the metadata.
If one side has none, an internal address decides, then a name, but only among allocated machines that no stronger
evidence assigns to another node. A machine that two nodes claim by the same evidence matches neither.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rescheduler.providers.base import NodeRef, with_rivals
from rescheduler.providers.cloudpool import identity
from rescheduler.providers.cloudpool.messages import Machine

_HOSTNAME_LABEL = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class Matching:
    """The result of a match. A node in neither `machines` nor `ambiguous` has no machine in the pool."""

    machines: Mapping[str, Machine]  #: node name → its machine
    ambiguous: Mapping[str, str]  #: node name → why its machine is uncertain
    claimed: frozenset[int]  #: positions of the machines that any node claims, even if the match is uncertain


@dataclass(frozen=True, slots=True)
class _Evidence:
    """A property that a node and its machine must share."""

    name: str
    of_node: Callable[[NodeRef], Iterable[str]]
    of_machine: Callable[[Machine], Iterable[str]]


class MachineIndex:
    """The machines of a pool, indexed for repeated matches."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self._machines = machines
        self._indexes = [_index(machines, evidence.of_machine) for evidence in _EVIDENCE]

    def match(self, nodes: Sequence[NodeRef]) -> Matching:
        """Match *nodes* and their rivals to the machines; the order of the nodes does not matter."""
        candidates, how = _candidates(self._machines, self._indexes, with_rivals(nodes))
        return _decide(self._machines, nodes, candidates, how)


def _decide(
    machines: Sequence[Machine], nodes: Sequence[NodeRef], candidates: Mapping[str, set[int]], how: Mapping[str, str]
) -> Matching:
    repeated = {name for name, count in Counter(node.name for node in nodes).items() if count > 1}
    claims = Counter(index for indexes in candidates.values() for index in indexes)
    matched: dict[str, Machine] = {}
    ambiguous: dict[str, str] = {}
    for node in nodes:
        indexes = candidates[node.name]
        if node.name in repeated:
            ambiguous[node.name] = "the node is listed twice"
        elif len(indexes) > 1:
            ids = sorted(machines[index].id for index in indexes)
            ambiguous[node.name] = f"several machines have its {how[node.name]}: {', '.join(ids)}"
        elif any(claims[index] > 1 for index in indexes):
            ids = sorted(machines[index].id for index in indexes)
            ambiguous[node.name] = f"other nodes also have the {how[node.name]} of machine {', '.join(ids)}"
        elif indexes:
            matched[node.name] = machines[next(iter(indexes))]
    return Matching(matched, ambiguous, frozenset(claims))


def _candidates(
    machines: Sequence[Machine], indexes: Sequence[Mapping[str, list[int]]], nodes: Sequence[NodeRef]
) -> tuple[dict[str, set[int]], dict[str, str]]:
    """Return the machines of each node by its strongest evidence, and the name of that evidence."""
    candidates: dict[str, set[int]] = {node.name: set() for node in nodes}
    how: dict[str, str] = {}
    for evidence, index in zip(_EVIDENCE, indexes, strict=True):
        taken = {claimed for claims in candidates.values() for claimed in claims}
        for node in nodes:
            if candidates[node.name]:
                continue
            hits = {hit for key in evidence.of_node(node) for hit in index.get(key, ()) if hit not in taken}
            if evidence is not _PROVIDER_ID:
                hits = {hit for hit in hits if machines[hit].allocated and not _differ(node, machines[hit])}
            if hits:
                candidates[node.name], how[node.name] = hits, evidence.name
    return candidates, how


def _index(machines: Sequence[Machine], keys: Callable[[Machine], Iterable[str]]) -> dict[str, list[int]]:
    index: dict[str, list[int]] = {}
    for position, machine in enumerate(machines):
        for key in keys(machine):
            index.setdefault(key, []).append(position)
    return index


def _differ(node: NodeRef, machine: Machine) -> bool:
    """Return whether the two provider IDs denote different instances, which overrides addresses and names."""
    of_node, of_machine = identity.of_provider_id(node.provider_id), identity.of_machine(machine)
    if of_node is None or of_machine is None or of_node == of_machine:
        return False
    return of_node.cloud in identity.CLOUDS or of_node.cloud == of_machine.cloud


def _node_ids(node: NodeRef) -> list[str]:
    """Return the Node's instance and its raw provider ID, which for placeholders is the machine's id."""
    known = identity.of_provider_id(node.provider_id)
    bare = [node.provider_id] if node.provider_id else []
    return [f"{known.cloud}://{known.instance}", *bare] if known else bare


def _machine_ids(machine: Machine) -> set[str]:
    known = identity.of_machine(machine)
    return {machine.id} | ({f"{known.cloud}://{known.instance}"} if known else set())


def _node_names(node: NodeRef) -> set[str]:
    return {node.name.lower(), node.labels.get(_HOSTNAME_LABEL, node.name).lower()}


_PROVIDER_ID = _Evidence("provider ID", _node_ids, _machine_ids)
_EVIDENCE = (
    _PROVIDER_ID,
    _Evidence("internal address", lambda node: set(node.internal_ips), identity.addresses),
    _Evidence("name", _node_names, identity.names),
)
