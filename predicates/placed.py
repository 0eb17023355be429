"""Which pods stand where, what they leave free, and the indexes that are kept right by every pod that comes or goes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, Self, TypeAlias, TypeVar

from predicates.nodes import NodeTable, Numbers
from predicates.objects import Amounts, Pod, PodClass

#: The longest list of changes that is kept; past it everything cached is computed anew.
_LOG_LIMIT: Final = 200_000

#: Is told on which row how many pods of a class came (+n) or went (-n).
Watcher: TypeAlias = Callable[[int, int], None]


class Watchers:
    """Who is told of the pods of one class. The index that gave it may change it at any time."""

    __slots__ = ("told",)

    def __init__(self, *told: Watcher) -> None:
        self.told = told


class Index(Protocol):
    """A view of the placed pods that is kept right by every placement: ports, volumes, counts by domain."""

    def watch(self, pod: PodClass) -> Watchers | None:
        """Who is told of pods of the class; None where they do not matter."""
        ...


_I = TypeVar("_I", bound=Index)


class Effects:
    """What placing one pod of a class changes."""

    __slots__ = ("pod", "rows", "vector", "watchers")

    def __init__(self, pod: PodClass, watchers: list[Watchers], vector: Numbers) -> None:
        self.pod = pod
        self.watchers = watchers
        self.vector = vector  #: what a pod of the class requests
        self.rows: dict[int, int] = {}  #: how many pods of the class stand on each row


class Placed:
    """The nodes, and the pods on them by class. What is cached of it goes by ``moment``, or by the logs."""

    def __init__(self) -> None:
        self.nodes = NodeTable()
        self.moment = 0  #: grows with each change but those of a trial that are not kept
        self.epoch = 0  #: grows when nothing cached may be kept
        self.facts: list[int] = []  #: rows whose node changed, or what its CSINode says or is attached, in this epoch
        self.changed: list[int] = []  #: rows whose pods changed, in this epoch
        self._effects: dict[PodClass, Effects] = {}
        self._vectors: dict[Amounts, Numbers] = {}
        self._indexes: list[Index] = []
        self._singletons: dict[object, Any] = {}

    def invalidate(self) -> None:
        """Forget all that was cached of this snapshot."""
        self.moment += 1
        self.epoch += 1
        self.facts.clear()
        self.changed.clear()

    def add_index(self, index: Index) -> None:
        """Keep *index* right from here on; it is told of all pods placed already."""
        self._indexes.append(index)
        for pod, effects in self._effects.items():
            if (watchers := index.watch(pod)) is not None:
                effects.watchers.append(watchers)
                self.catch_up(watchers, pod)

    def index(self, kind: Callable[[Self], _I]) -> _I:
        """The snapshot's own index of this *kind*: made and registered when first asked for, the same ever after."""
        found: _I | None = self._singletons.get(kind)
        if found is None:
            found = self._singletons[kind] = kind(self)
            self.add_index(found)
        return found

    def classes(self) -> Iterable[PodClass]:
        """The classes of which a pod is, or was, placed."""
        return self._effects.keys()

    def rows_of(self, pod: PodClass) -> Mapping[int, int]:
        """How many pods of the class stand on each row; rows without any are left out."""
        effects = self._effects.get(pod)
        return effects.rows if effects else {}

    def catch_up(self, watchers: Watchers, pod: PodClass) -> None:
        """Tell them of the pods of the class that are placed."""
        for told in watchers.told:
            for row, count in self.rows_of(pod).items():
                told(row, count)

    def vector(self, amounts: Amounts) -> Numbers:
        """*amounts* and one pod, as a row of the node table."""
        width = len(self.nodes.resources)
        vector = self._vectors.get(amounts)
        if vector is None or len(vector) != width:
            vector = self._vectors[amounts] = self.nodes.vector(amounts)
            if len(vector) != width:
                self._widen()
        return vector

    def _taken_by(self, pod: Pod) -> tuple[Effects, Numbers]:
        effects = self._effects_of(pod.cls)
        return effects, effects.vector if pod.load is pod.cls.requests else self.vector(pod.load)

    def _effects_of(self, pod: PodClass) -> Effects:
        """What a pod of the class changes; its resources get their columns here, never within a trial."""
        if (effects := self._effects.get(pod)) is None:
            watchers = [some for index in self._indexes if (some := index.watch(pod)) is not None]
            effects = self._effects[pod] = Effects(pod, watchers, self.vector(pod.requests))
        return effects

    def _log(self, log: list[int], rows: Iterable[int]) -> None:
        self.moment += 1
        log.extend(rows)
        if len(log) > _LOG_LIMIT:
            self.invalidate()

    def _widen(self) -> None:
        """A resource was met for the first time."""
        for pod, effects in self._effects.items():
            effects.vector = self.vector(pod.requests)
        self.invalidate()

    def _shift(self, pods: Sequence[Effects], taken: Numbers, row: int, by: int) -> None:
        """Pods that take so much together come to *row* (+1) or leave it (-1)."""
        free = self.nodes.lines[row]
        if by > 0:
            free -= taken
        else:
            free += taken
        for effects in pods:
            rows = effects.rows
            if count := rows.get(row, 0) + by:
                rows[row] = count
            else:
                rows.pop(row, None)
            for watchers in effects.watchers:
                for told in watchers.told:
                    told(row, by)
