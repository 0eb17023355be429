"""Which container images the nodes hold, and how large they are (``status.images``)."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from predicates.nodes import Numbers
from predicates.objects import ContainerImage, PodClass
from predicates.snapshot import Snapshot

_Holders: TypeAlias = dict[int, int]


class Images:
    """Sizes by image name and row. Current once :meth:`sync` was called."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._stamp = (-1, 0)
        self._seen: dict[int, tuple[ContainerImage, ...]] = {}
        self._holders: dict[str, _Holders] = {}

    def watch(self, _: PodClass) -> None:
        """Pods do not matter here."""

    def sync(self) -> "Images":
        """Take over what changed about the nodes, at the cost of the images that did; itself."""
        snapshot = self._snapshot
        stamp = (snapshot.epoch, len(snapshot.node_changes))
        if stamp != self._stamp:
            same_epoch = stamp[0] == self._stamp[0]
            for row in set(snapshot.node_changes[self._stamp[1] :]) if same_epoch else range(len(snapshot.nodes)):
                self._read(row)
            self._stamp = stamp
        return self

    def sizes(self, name: str, rows: npt.NDArray[np.intp]) -> tuple[Numbers, int] | None:
        """The bytes of the image on each of *rows*, 0 where it is not, and how many nodes hold it; None: no node."""
        if not (holders := self._holders.get(name)):
            return None
        found = np.zeros(len(self._snapshot.nodes), np.int64)
        found[np.fromiter(holders, np.intp, len(holders))] = np.fromiter(holders.values(), np.int64, len(holders))
        return found[rows], len(holders)

    def _read(self, row: int) -> None:
        node = self._snapshot.nodes.nodes[row]
        images = node.status.images if node is not None else ()
        before = self._seen.get(row, ())
        if images == before:
            return
        for name in {name for image in before for name in image.names}:
            del self._holders[name][row]
            if not self._holders[name]:
                del self._holders[name]
        for image in images:
            for name in image.names:
                self._holders.setdefault(name, {})[row] = image.size_bytes
        self._seen[row] = images
