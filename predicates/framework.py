"""The interface of the filter plugins.

A plugin is called once for a pod class and evaluates many nodes at once. Its :class:`Scope` states what the result
depends on, which determines how long it can be cached: until the node changes, until the pods on the node change, or
until any pod in the cluster changes.
"""

import enum
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from predicates.nodes import Rows
from predicates.objects import PodClass
from predicates.placed import Needs
from predicates.snapshot import Snapshot

Codes: TypeAlias = npt.NDArray[np.int64]
Reasons: TypeAlias = tuple[str, ...]

#: Returns True if the node in the given row currently rejects the pod.
RejectsRow: TypeAlias = Callable[[int], bool]


class Scope(enum.Enum):
    """What the result of a plugin depends on, in addition to the pod class."""

    NODE = enum.auto()  #: the node itself, and volumes, claims and storage classes
    PODS = enum.auto()  #: also the pods on that node; adding pods never makes the node feasible again
    CLUSTER = enum.auto()  #: also the pods on other nodes


@dataclass(frozen=True, slots=True)
class Rejections:
    """Which of the requested rows a plugin rejects, and why.

    ``codes`` has one entry for each requested row; 0 means that the plugin accepts the node. ``reasons`` returns the
    scheduler's messages for a code. Building them is costly, so it is called only for codes that are reported.
    A code has the same meaning in every result for the same pod class.
    """

    codes: Codes
    reasons: Callable[[int], Reasons]
    prefilter: bool = False  #: PreFilter (or PreEnqueue) rejects the pod, regardless of the node


@dataclass(frozen=True, slots=True, eq=False)
class Plugin:
    """A filter plugin, under its name in the kube-scheduler.

    ``pre_filter`` returns the part of a pod class that the result depends on (the plugin's state), or None if the
    plugin does not apply to such pods (Skip). ``filter`` takes that state and the rows to evaluate; it returns None
    if it rejects none of them. ``row_filter`` is an optional faster path for single rows: it takes the state and
    returns a function that evaluates one row at the time of the call. ``concerns`` returns whether the plugin can
    reject any node for pods with this state, as long as ``Snapshot.ties`` stays the same; without it, it may.
    ``needs`` returns the amounts that a row must have free for the plugin to accept it, if nothing else matters.
    """

    name: str
    scope: Scope
    pre_filter: Callable[[PodClass], Hashable | None]
    filter: Callable[[Any, Snapshot, Rows], Rejections | None]
    row_filter: Callable[[Any, Snapshot], RejectsRow] | None = None
    concerns: Callable[[Any, Snapshot], bool] | None = None
    needs: Callable[[Any, Snapshot], Needs | None] | None = None

    def rejects_row(self, state: Any, snapshot: Snapshot) -> RejectsRow:
        """Return a function that evaluates single rows of *snapshot* for pods with this *state*."""
        if self.row_filter is not None:
            return self.row_filter(state, snapshot)
        return partial(self._filter_row, state, snapshot)

    def _filter_row(self, state: Any, snapshot: Snapshot, row: int) -> bool:
        rejections = self.filter(state, snapshot, slice(row, row + 1))
        return rejections is not None and bool(rejections.codes[0])


@dataclass(frozen=True, slots=True)
class PluginRejections:
    """The :class:`Rejections` of one plugin, with its name."""

    plugin: str
    codes: Codes
    reasons: Callable[[int], Reasons]
    prefilter: bool = False
