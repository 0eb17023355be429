"""The container images on the nodes, and their sizes (``status.images``)."""

from typing import TypeAlias

import numpy as np

from predicates.nodes import Numbers
from predicates.objects import ContainerImage, PodClass
from predicates.snapshot import Snapshot

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
