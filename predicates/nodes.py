"""The nodes as columns: one row per node, one NumPy array per property."""

from collections.abc import Iterator, Mapping
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from predicates.objects import Amounts, Node, NodeFeatures, Requirement, RuntimeHandler, Taint
from predicates.pod_classes import LabelPairs, bound_labels
from predicates.requests import allocatable

Flags: TypeAlias = npt.NDArray[np.bool_]
Numbers: TypeAlias = npt.NDArray[np.int64]
Ids: TypeAlias = npt.NDArray[np.int32]
#: The rows to evaluate: a slice of all rows, or row numbers.
Rows: TypeAlias = slice | npt.NDArray[np.intp]

ALL: Final = slice(None)
MISSING: Final = -1

#: The first columns of ``allocatable`` and ``free``; columns of extended resources are added on first use.
PODS, CPU, MEMORY = range(3)
_FIXED: Final = ("pods", "cpu", "memory", "ephemeral-storage")


class NodeTable:
    """Properties of the nodes, by row.

    A node gets a row when it is added. The row of a removed node is unused (``alive`` is False) until another node
    gets it. Costs, for n nodes: ``put`` O(columns); a label column O(n) when first requested, then updated by
    ``put``; the arrays grow by half.
    """

    def __init__(self) -> None:
        self.nodes: list[Node | None] = []
        self.names: list[str] = []  #: by row; "" for an unused row
        self.row: dict[str, int] = {}
        self.resources: dict[str, int] = {name: column for column, name in enumerate(_FIXED)}
        self.alive: Flags = np.zeros(0, np.bool_)
        self.unschedulable: Flags = np.zeros(0, np.bool_)
        self.allocatable: Numbers = np.zeros((0, len(_FIXED)), np.int64)
        #: ``allocatable`` minus the requests of the placed pods, in 64-bit arithmetic as in the scheduler.
        self.free: Numbers = np.zeros((0, len(_FIXED)), np.int64)
        self.free_rows: list[Numbers] = []  #: a view of each row of ``free``: faster for access to single rows
        self._taints: DistinctColumn[tuple[Taint, ...]] = DistinctColumn(())
        self.kubelets: DistinctColumn[Kubelet] = DistinctColumn(Kubelet())  #: what each reports
        self._labels: dict[str, LabelColumn] = {}
        self.bound_labels: list[LabelPairs] = []  #: by row: the labels that the API server copies to bound pods
        self._unused: list[int] = []

    def __len__(self) -> int:
        """Return the number of rows, including unused ones: the length of every column."""
        return len(self.nodes)

    def __iter__(self) -> Iterator[Node]:
        return (node for node in self.nodes if node is not None)

    def put(self, node: Node) -> int:
        """Add or update *node* and return its row. Requests of the pods on it are not changed."""
        amounts = allocatable(node.status.allocatable)
        if (row := self.row.get(node.name)) is None:
            row = self._unused.pop() if self._unused else self._grow()
            self.row[node.name] = row
        self.nodes[row], self.names[row] = node, node.name
        self.alive[row], self.unschedulable[row] = True, node.spec.unschedulable
        self._set_allocatable(row, amounts)
        self.bound_labels[row] = bound_labels(node.metadata.labels)
        self._taints.put(row, _timeless(node.spec.taints))
        self.kubelets.put(row, Kubelet.of(node))
        for column in self._labels.values():
            column.put(row, node.metadata.labels)
        return row

    def remove(self, name: str) -> int:
        """Remove the node and return its former row. The requests of its pods must already have been released."""
        row = self.row.pop(name)
        self.nodes[row], self.names[row] = None, ""
        self.alive[row] = self.unschedulable[row] = False
        self.allocatable[row] = self.free[row] = 0
        self._taints.ids[row] = self.kubelets.ids[row] = 0
        self.bound_labels[row] = ()
        for column in self._labels.values():
            column.put(row, {})
        self._unused.append(row)
        return row

    def hide(self, row: int) -> Node | None:
        """Treat the node in *row* as removed, but keep its row, amounts and name. Return it for :meth:`show`."""
        node = self.nodes[row]
        self.nodes[row] = None
        self.alive[row] = self.unschedulable[row] = False
        for column in self._labels.values():
            column.put(row, {})
        return node

    def show(self, row: int, node: Node) -> None:
        """Undo :meth:`hide`."""
        self.nodes[row] = node
        self.alive[row], self.unschedulable[row] = True, node.spec.unschedulable
        for column in self._labels.values():
            column.put(row, node.metadata.labels)

    @property
    def taint_set(self) -> Ids:
        """The number of each row's taints in ``taint_sets``."""
        return self._taints.ids

    @property
    def taint_sets(self) -> list[tuple[Taint, ...]]:
        """The distinct sets of taints. No filter reads when a taint was added, so they have no times."""
        return self._taints.values

    @property
    def requested(self) -> Numbers:
        """The requests of the placed pods, by row and resource, as a new array."""
        return self.allocatable - self.free

    def label(self, key: str) -> "LabelColumn":
        """Return the column of the label *key*."""
        if (column := self._labels.get(key)) is None:
            column = self._labels[key] = LabelColumn(key, len(self))
            for row, node in enumerate(self.nodes):
                if node is not None:
                    column.put(row, node.metadata.labels)
        return column

    def vector(self, amounts: Amounts, *, pods: int = 1) -> Numbers:
        """Return *amounts* and the number of *pods* as a row of ``free``. New resources get a column."""
        for name, _ in amounts:
            self._column(name)
        vector = np.zeros(self.free.shape[1], np.int64)
        for name, amount in amounts:
            vector[self.resources[name]] = amount
        vector[PODS] = pods
        return vector

    def _set_allocatable(self, row: int, amounts: Mapping[str, int]) -> None:
        columns = [(self._column(name), amount) for name, amount in amounts.items()]
        before = self.allocatable[row].copy()
        self.allocatable[row] = 0
        for column, amount in columns:
            self.allocatable[row, column] = amount
        self.free[row] += self.allocatable[row] - before

    def _column(self, resource: str) -> int:
        if (column := self.resources.get(resource)) is None:
            column = self.resources[resource] = len(self.resources)
            self._pad_amounts(0, 1)
        return column

    def _pad_amounts(self, rows: int, columns: int) -> None:
        self.allocatable = np.pad(self.allocatable, ((0, rows), (0, columns)))
        self.free = np.pad(self.free, ((0, rows), (0, columns)))
        self.free_rows = list(self.free)

    def _grow(self) -> int:
        """Add unused rows, half of the current number but at least 8, and return the first of them."""
        first, count = len(self), max(8, len(self) // 2)
        self.nodes += [None] * count
        self.names += [""] * count
        self.bound_labels += [()] * count
        self.alive = np.pad(self.alive, (0, count))
        self.unschedulable = np.pad(self.unschedulable, (0, count))
        self._pad_amounts(count, 0)
        self._taints.grow(count)
        self.kubelets.grow(count)
        for column in self._labels.values():
            column.grow(count)
        self._unused = list(range(first + count - 1, first, -1))
        return first


_T = TypeVar("_T")


class DistinctColumn(Generic[_T]):
    """Values of which few are distinct. ``ids`` has the number of each row's value in ``values``."""

    def __init__(self, absent: _T) -> None:
        """Give unused rows the value *absent*, whose number is 0."""
        self.ids: Ids = np.zeros(0, np.int32)
        self.values: list[_T] = [absent]
        self._numbers: dict[_T, int] = {absent: 0}

    def put(self, row: int, value: _T) -> None:
        """Set the value of *row*."""
        if (number := self._numbers.get(value)) is None:
            if len(self.values) > 2 * len(self.ids):
                self._drop_unused()
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
        self.ids[row] = number

    def grow(self, count: int) -> None:
        """Add *count* unused rows."""
        self.ids = np.pad(self.ids, (0, count))

    def _drop_unused(self) -> None:
        """Drop the values that no row has, and renumber the others."""
        used = sorted({0, *self.ids.tolist()})
        self.ids = np.searchsorted(used, self.ids).astype(np.int32)
        self.values = [self.values[number] for number in used]
        self._numbers = {value: number for number, value in enumerate(self.values)}


class Kubelet(NamedTuple):
    """What a node reports about its kubelet and container runtime. Empty fields are not reported."""

    os: str = ""
    version: str = ""
    handlers: tuple[RuntimeHandler, ...] = ()
    features: NodeFeatures = NodeFeatures()
    declared: tuple[str, ...] = ()  #: features (KEP-5328)

    @classmethod
    def of(cls, node: Node) -> "Kubelet":
        """Return what *node* reports."""
        status = node.status
        info = status.node_info
        return cls(
            info.operating_system,
            info.kubelet_version,
            status.runtime_handlers,
            status.features,
            status.declared_features,
        )


class RefusingNodes(NamedTuple):
    """The nodes of one kind, whose kubelets have refused pods of some class."""

    labels: tuple[tuple[str, str | None], ...]  #: what these nodes have in common; None: they do not have the label
    why: str  #: what a kubelet said, and when


#: By namespace and :func:`predicates.kubelet.digest` of the class.
LearnedRefusals: TypeAlias = Mapping[str, Mapping[str, tuple[RefusingNodes, ...]]]


def _timeless(taints: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """Return *taints* without the times at which they were added, which would make almost every set distinct."""
    return tuple(taint if taint.time_added is None else replace(taint, time_added=None) for taint in taints)


class LabelColumn:
    """The values of one label.

    ``ids`` has the number of each row's value, or :data:`MISSING`; ``values`` has the value of each number.
    """

    def __init__(self, key: str, rows: int) -> None:
        self.key = key
        self.ids: Ids = np.full(rows, MISSING, np.int32)
        self.values: list[str] = []
        self.number: dict[str, int] = {}
        self.verdicts: dict[Requirement, Flags] = {}  #: cache of the selectors: by value number

    def put(self, row: int, labels: Mapping[str, str]) -> None:
        """Set the value of *row* from the labels of its node."""
        if (value := labels.get(self.key)) is None:
            self.ids[row] = MISSING
            return
        if (number := self.number.get(value)) is None:
            number = self.number[value] = len(self.values)
            self.values.append(value)
        self.ids[row] = number

    def grow(self, count: int) -> None:
        """Add *count* rows without the label."""
        self.ids = np.pad(self.ids, (0, count), constant_values=MISSING)
