"""What discovery is told and what it tells, as JSON.

``GET /list`` answers what Liqo's cluster autoscaler has always read (discovery ``types/``) and adds keys of its own.
"""

import datetime as dt
from typing import TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from rescheduler.backends.config import Duration, Section

Quantities: TypeAlias = dict[str, str | int | float]


class Said(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one source says of a cluster; `None` is nothing. ``repr`` shows no secret."""

    kubeconfig: str | None = None
    resources: dict[str, str] | None = None  #: that it lends
    labels: dict[str, str] | None = None
    has_nat: bool | None = None
    price: float | None = None  #: an hour
    free: dict[str, str] | None = None  #: of what it lends, now

    def over(self, other: "Said") -> "Said":
        """What is said here, and where nothing is said what *other* says."""
        given = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(other, **given)

    def __repr__(self) -> str:
        return f"Said({', '.join(name for name in self.__struct_fields__ if getattr(self, name) is not None)})"


class Listed(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An entry of ``/list``: the first five keys are Liqo's own."""

    name: str  #: Liqo's cluster ID
    kubeconfig: str = ""
    resources: dict[str, str] = {}
    labels: dict[str, str] = {}
    has_nat: bool = False
    price: float | None = None
    free: dict[str, str] | None = None
    last_seen: dt.datetime

    def __repr__(self) -> str:
        return f"Listed({self.name})"


class Info(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The key ``info`` of a Secret; the first three keys are Liqo's own, and keys that we do not know are others'."""

    resources: Quantities
    labels: dict[str, str] = {}
    has_nat: bool = False
    price: float | None = None
    free: Quantities | None = None


class ClusterUpdate(Section, frozen=True, kw_only=True):
    """What an agent says of its cluster. Keys that are left out keep their value; null is "not known (any more)"."""

    name: str
    kubeconfig: str | UnsetType | None = UNSET
    resources: Quantities | UnsetType | None = UNSET
    labels: dict[str, str] | UnsetType | None = UNSET
    has_nat: bool | UnsetType | None = UNSET
    price: float | UnsetType | None = UNSET
    free: Quantities | UnsetType | None = UNSET
    ttl: Duration | None = None  #: how long it holds; not given: --expire-after

    def __repr__(self) -> str:
        return f"ClusterUpdate({self.name})"


class Update(Section, frozen=True, kw_only=True):
    """The body of ``POST /update``: done as a whole or not at all."""

    clusters: tuple[ClusterUpdate, ...] = ()
    deleted: tuple[str, ...] = ()


class Updated(msgspec.Struct, frozen=True):
    """The answer: how many clusters were taken in, and how many of the deleted ones there had been."""

    updated: int
    deleted: int
