"""How the filter plugins are asked, in the scheduler's order, and what they answer.

A plugin is asked once for a pod class and answers for many nodes at once. Its :class:`Scope` tells for how long
an answer holds, and so what may be kept: an answer about node facts until that node changes, one about the
pods of a node until that node's pods change, one about the cluster until any pod moves.
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
from predicates.snapshot import Snapshot

Codes: TypeAlias = npt.NDArray[np.int64]
Reasons: TypeAlias = tuple[str, ...]

#: Whether a row is refused, as things are.
Judge: TypeAlias = Callable[[int], bool]


class Scope(enum.Enum):
    """What an answer depends on, beside the pod class."""

    NODE = enum.auto()  #: the facts of the node itself (and of volumes, claims and classes of storage)
    PODS = enum.auto()  #: also the pods on that node; more pods never make it better
    CLUSTER = enum.auto()  #: pods on other nodes too


@dataclass(frozen=True, slots=True)
class Refusal:
    """Which of the asked rows are refused, and why.

    ``codes`` has one entry an asked row: 0 where the plugin has nothing against it. ``sentences`` gives the
    scheduler's own words for a code, and is called only for what somebody reads. A code means the same in
    every answer about the same pod.
    """

    codes: Codes
    sentences: Callable[[int], Reasons]
    prefilter: bool = False  #: the pod itself is refused, before any node is looked at


@dataclass(frozen=True, slots=True, eq=False)
class Plugin:
    """A filter plugin of the kube-scheduler, called as there.

    ``reads`` gives the part of a class that the answer depends on, None where the plugin has nothing to say
    about such pods (Skip). ``refuse`` gets that part and the rows asked about; None = refuses none of them.
    ``judge`` gives what says of one row whether it would be refused, at any later time; it is there where that is
    cheaper without arrays.
    """

    name: str
    scope: Scope
    reads: Callable[[PodClass], Hashable | None]
    refuse: Callable[[Any, Snapshot, Rows], Refusal | None]
    judge: Callable[[Any, Snapshot], Judge] | None = None

    def judging(self, part: Any, snapshot: Snapshot) -> Judge:
        """Whether the plugin refuses single rows of *snapshot* to pods with that *part*."""
        return self.judge(part, snapshot) if self.judge is not None else partial(self._alone, part, snapshot)

    def _alone(self, part: Any, snapshot: Snapshot, row: int) -> bool:
        refusal = self.refuse(part, snapshot, slice(row, row + 1))
        return refusal is not None and bool(refusal.codes[0])


@dataclass(frozen=True, slots=True)
class Refused:
    """One plugin's refusals among the rows asked about; ``codes`` and ``sentences`` as in :class:`Refusal`."""

    plugin: str
    codes: Codes
    sentences: Callable[[int], Reasons]
    prefilter: bool = False
