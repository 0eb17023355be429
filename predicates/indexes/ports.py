"""Host ports in use on each node (``framework.HostPortInfo``)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from predicates.nodes import Flags, Rows
from predicates.objects import HostPort, PodClass
from predicates.placed import Watchers
from predicates.snapshot import Snapshot

#: The address that means all addresses of a node. All others, including ``::``, are compared as text, as upstream.
WILDCARD: Final = "0.0.0.0"  # noqa: S104

_PodsByRow: TypeAlias = dict[int, int]  #: number of pods by row

#: Up to this number of rows, single lookups are cheaper than marking all rows in use.
_FEW_ROWS: Final = 64


class PortsIndex:
    """Pods by port, address and row. A placement costs O(ports of the class)."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._nodes = snapshot.nodes
        self._in_use: defaultdict[tuple[str, int], dict[str, _PodsByRow]] = defaultdict(dict)

    def watch(self, pod: PodClass) -> Watchers | None:
        return Watchers(partial(self._shift, pod.ports)) if pod.ports else None

    def _shift(self, ports: tuple[HostPort, ...], row: int, delta: int) -> None:
        for port in ports:
            in_use = self._in_use[port.protocol, port.port].setdefault(port.ip, {})
            count = in_use.get(row, 0) + delta
            if count:
                in_use[row] = count
            else:
                del in_use[row]

    def conflicts(self, ports: Iterable[HostPort], rows: Rows) -> Flags:
        """Return which of *rows* already use any of *ports*.

        Costs O(nodes on which the ports are in use), or O(rows) for a few rows.
        """
        conflicting = [in_use for port in ports for in_use in self._conflicting(port)]
        numbers = range(len(self._nodes))[rows] if isinstance(rows, slice) else rows
        if len(numbers) <= _FEW_ROWS:
            return np.array([any(int(row) in in_use for in_use in conflicting) for row in numbers], np.bool_)
        marked: Flags = np.zeros(len(self._nodes), np.bool_)
        for in_use in conflicting:
            marked[np.fromiter(in_use, np.intp, len(in_use))] = True
        return marked[rows]

    def counts(self) -> Mapping[tuple[HostPort, int], int]:
        """Return the number of pods by port and row."""
        return {
            (HostPort(protocol, ip, port), row): count
            for (protocol, port), by_ip in self._in_use.items()
            for ip, in_use in by_ip.items()
            for row, count in in_use.items()
        }

    def _conflicting(self, port: HostPort) -> Iterable[_PodsByRow]:
        by_ip = self._in_use.get((port.protocol, port.port), {})
        if port.ip == WILDCARD:
            return by_ip.values()
        return [by_ip[ip] for ip in (WILDCARD, port.ip) if ip in by_ip]
