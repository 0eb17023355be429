"""Which controllers pods belong to, and what the API server says of them, in one reading."""

from collections.abc import Collection
from typing import Protocol

from predicates.objects import OwnerReference
from rescheduler.access import Read
from rescheduler.planning.controllers import Controller, ControllerState


class Reader(Protocol):
    """What is needed of :class:`rescheduler.kube.controllers.ControllerReader`, which says what it means and raises."""

    def topmost_of(self, owners: Collection[tuple[str, OwnerReference]]) -> dict[tuple[str, str], Controller]: ...

    def states(
        self, controllers: Collection[Controller], *, words: bool = False
    ) -> dict[Controller, ControllerState]: ...


class Ownership:
    """See :class:`rescheduler.access.Controllers`."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def read(
        self,
        owners: Collection[tuple[str, OwnerReference]],
        controllers: Collection[Controller] = (),
        siblings: Collection[tuple[str, OwnerReference]] = (),
        *,
        words: bool = False,
    ) -> Read:
        topmost = self._reader.topmost_of(owners)
        wanted = frozenset((*controllers, *topmost.values()))
        # A Deployment names its ReplicaSets after itself, and so do the foreign kinds that have any. Which of them are
        # really its own is read; the name only keeps the rest of the namespace from being read, too.
        names = {(controller.namespace, controller.name) for controller in wanted}
        self._reader.topmost_of(
            [
                (namespace, sibling)
                for namespace, sibling in siblings
                if (namespace, sibling.name.rpartition("-")[0]) in names
            ]
        )
        return Read(self._reader.states(wanted, words=words), topmost)
