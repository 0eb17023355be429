"""What single nodes have: images, host ports in use, soft taints, and requests as the scheduler scores them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from predicates.node_selectors import tolerated
from predicates.nodes import Flags, Numbers, Rows
from predicates.objects import ContainerImage, HostPort, PodClass, Taint, Toleration
from predicates.placed import Watchers
from predicates.snapshot import Snapshot

# The container images on the nodes, and their sizes (``status.images``).

_SizesByRow: TypeAlias = dict[int, int]


class Images:
    """Image sizes by image name and row. Call :meth:`sync` before reading."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._stamp = (-1, 0)
        self._images: dict[int, tuple[ContainerImage, ...]] = {}
        self._nodes: dict[str, _SizesByRow] = {}
        self._weights: dict[str, Numbers] = {}

    def watch(self, _: PodClass) -> None:
        """Ignore pods: only nodes affect this index."""

    def sync(self) -> "Images":
        """Update the index and return it. Costs O(images of the changed nodes)."""
        snapshot = self._snapshot
        stamp = (snapshot.epoch, len(snapshot.node_changes))
        if stamp != self._stamp:
            same_epoch = stamp[0] == self._stamp[0]
            for row in set(snapshot.node_changes[self._stamp[1] :]) if same_epoch else range(len(snapshot.nodes)):
                self._read(row)
            self._stamp = stamp
            self._weights.clear()
        return self

    def weights(self, name: str) -> Numbers | None:
        """Return the image's size in bytes by row, scaled by the share of nodes that have it (``scaledImageScore``).

        Return None if no node has the image. The weights of an image are cached until a node changes.
        """
        if not (nodes := self._nodes.get(name)):
            return None
        if (weights := self._weights.get(name)) is None:
            sizes = np.zeros(len(self._snapshot.nodes), np.int64)
            sizes[np.fromiter(nodes, np.intp, len(nodes))] = np.fromiter(nodes.values(), np.int64, len(nodes))
            weights = self._weights[name] = (sizes * (len(nodes) / len(self._snapshot.nodes.row))).astype(np.int64)
        return weights

    def _read(self, row: int) -> None:
        node = self._snapshot.nodes.nodes[row]
        images = node.status.images if node is not None else ()
        before = self._images.get(row, ())
        if images == before:
            return
        for name in {name for image in before for name in image.names}:
            del self._nodes[name][row]
            if not self._nodes[name]:
                del self._nodes[name]
        for image in images:
            for name in image.names:
                self._nodes.setdefault(name, {})[row] = image.size_bytes
        self._images[row] = images


# Requests of the placed pods for scoring, with the scheduler's defaults for containers without requests.
#
# Source: ``NonZeroRequested`` of ``framework/types.go``. Only the amounts that the defaults add to the real requests
# are stored, so pods that request both cpu and memory cost nothing. Pods which have other defaults during an in-place
# resize are of a class of their own (``placed.py``).


class NonZero:
    """The defaults of cpu (thousandths) and memory (bytes) by row. A placement costs O(1)."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._resize(np.zeros((len(snapshot.nodes), 2), np.int64))

    def watch(self, pod: PodClass) -> Watchers | None:
        """Return the callbacks for pods of the class, or None if they get no default."""
        return Watchers(partial(self._shift, *pod.defaults)) if any(pod.defaults) else None

    def _shift(self, cpu: int, memory: int, row: int, delta: int) -> None:
        if row >= len(self._defaults):
            self._grow()
        cells = self._cells
        cells[row, 0] += delta * cpu
        cells[row, 1] += delta * memory

    def defaults(self) -> Numbers:
        """Return the amounts of cpu and memory that the defaults add, by row. Callers must not modify the array."""
        if len(self._defaults) < len(self._snapshot.nodes):
            self._grow()
        return self._defaults

    def _grow(self) -> None:
        new_rows = len(self._snapshot.nodes) - len(self._defaults)
        self._resize(np.pad(self._defaults, ((0, new_rows), (0, 0))))

    def _resize(self, defaults: Numbers) -> None:
        self._defaults = defaults
        self._cells = defaults.data  # Access to single cells is faster.


# Host ports in use on each node (``framework.HostPortInfo``).

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


# Counts of ``PreferNoSchedule`` taints on nodes that pods do not tolerate.

_SOFT = "PreferNoSchedule"


class SoftTaints:
    """The number of intolerable soft taints by row, for each distinct list of tolerations."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._stamp = (-1, 0)
        self._counts: dict[tuple[Toleration, ...], Numbers | None] = {}

    def watch(self, _: PodClass) -> None:
        """Ignore pods: only nodes affect this index."""

    def intolerable(self, tolerations: tuple[Toleration, ...]) -> Numbers | None:
        """Return the number of soft taints by row that *tolerations* do not tolerate; None if no row has any.

        The result is cached until a node changes. Each distinct set of taints is evaluated once.
        """
        stamp = (self._snapshot.epoch, len(self._snapshot.node_changes))
        if stamp != self._stamp:
            self._stamp = stamp
            self._counts.clear()
        if tolerations not in self._counts:
            self._counts[tolerations] = self._count(tolerations)
        return self._counts[tolerations]

    def _count(self, tolerations: tuple[Toleration, ...]) -> Numbers | None:
        table = self._snapshot.nodes

        def intolerable(taints: tuple[Taint, ...]) -> int:
            return sum(taint.effect == _SOFT and not tolerated(taint, tolerations) for taint in taints)

        by_row = np.array([intolerable(taints) for taints in table.taint_sets], np.int64)[table.taint_set]
        return by_row if by_row.any() else None
