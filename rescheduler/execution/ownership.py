"""Read the controllers of pods and their states from the API server."""

import contextlib
from collections.abc import Collection, Mapping
from typing import Protocol

from predicates.objects import OwnerReference
from rescheduler.errors import InputError
from rescheduler.execution.context import ControllerReading
from rescheduler.planning.controllers import Controller, ControllerState


class Reader(Protocol):
    """The methods of :class:`rescheduler.kube.controllers.ControllerReader` that are used here.

    They are documented there.
    """

    def topmost_of(self, owners: Collection[tuple[str, OwnerReference]]) -> dict[tuple[str, str], Controller]: ...

    def states(
        self, controllers: Collection[Controller], *, read_refusals: bool = False
    ) -> dict[Controller, ControllerState]: ...

    def ending(self, owners: Collection[tuple[str, OwnerReference]]) -> Mapping[tuple[str, str], str]: ...


class Ownership:
    """An implementation of :class:`rescheduler.execution.context.Controllers` that reads from the API server."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def read(
        self,
        owners: Collection[tuple[str, OwnerReference]],
        controllers: Collection[Controller] = (),
        siblings: Collection[tuple[str, OwnerReference]] = (),
        *,
        read_refusals: bool = False,
    ) -> ControllerReading:
        topmost = self._reader.topmost_of(owners)
        all_controllers = frozenset((*controllers, *topmost.values()))
        # The name of a ReplicaSet starts with the name of its Deployment, and custom controllers do the same. The
        # owner references decide; the name only limits how many ReplicaSets of the namespace are read.
        names = {(controller.namespace, controller.name) for controller in all_controllers}
        for namespace, sibling in siblings:
            if (namespace, sibling.name.rpartition("-")[0]) in names:
                with contextlib.suppress(InputError):  # a reference that a tenant wrote concerns its own pod only
                    self._reader.topmost_of([(namespace, sibling)])
        return ControllerReading(self._reader.states(all_controllers, read_refusals=read_refusals), topmost)

    def ending(self, owners: Collection[tuple[str, OwnerReference]]) -> Mapping[tuple[str, str], str]:
        return self._reader.ending(owners)
