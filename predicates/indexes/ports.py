"""Which host ports are taken on which nodes, kept right by every placement (``framework.HostPortInfo``)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from predicates.nodes import Flags, Rows
from predicates.objects import HostPort, PodClass
from predicates.placed import Watchers
from predicates.snapshot import Snapshot

#: The address that stands for all of a node's addresses. Any other is compared as text, ``::`` too, as upstream.
WILDCARD: Final = "0.0.0.0"  # noqa: S104

Taken: TypeAlias = dict[int, int]  #: pods by row

#: Up to this many rows it is cheaper to look each of them up than to mark all that are taken.
_FEW: Final = 64


class PortsIndex:
    """Pods by port, address and row. Costs: a placement O(ports of the class)."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._nodes = snapshot.nodes
        self._taken: defaultdict[tuple[str, int], dict[str, Taken]] = defaultdict(dict)

    def watch(self, pod: PodClass) -> Watchers | None:
        return Watchers(partial(self._shift, pod.ports)) if pod.ports else None

    def _shift(self, ports: tuple[HostPort, ...], row: int, by: int) -> None:
        for port in ports:
            taken = self._taken[port.protocol, port.port].setdefault(port.ip, {})
            count = taken.get(row, 0) + by
            if count:
                taken[row] = count
            else:
                del taken[row]

    def conflicts(self, wanted: Iterable[HostPort], rows: Rows) -> Flags:
        """On which of *rows* any of *wanted* is taken.

        Costs O(nodes where the ports are taken), or O(rows) for a few rows.
        """
        holders = [taken for port in wanted for taken in self._holders(port)]
        asked = range(len(self._nodes))[rows] if isinstance(rows, slice) else rows
        if len(asked) <= _FEW:
            return np.array([any(int(row) in taken for taken in holders) for row in asked], np.bool_)
        marked: Flags = np.zeros(len(self._nodes), np.bool_)
        for taken in holders:
            marked[np.fromiter(taken, np.intp, len(taken))] = True
        return marked[rows]

    def counts(self) -> Mapping[tuple[HostPort, int], int]:
        """Pods by port and row."""
        return {
            (HostPort(protocol, ip, port), row): count
            for (protocol, port), by_ip in self._taken.items()
            for ip, taken in by_ip.items()
            for row, count in taken.items()
        }

    def _holders(self, port: HostPort) -> Iterable[Taken]:
        by_ip = self._taken.get((port.protocol, port.port), {})
        if port.ip == WILDCARD:
            return by_ip.values()
        return [by_ip[ip] for ip in (WILDCARD, port.ip) if ip in by_ip]
