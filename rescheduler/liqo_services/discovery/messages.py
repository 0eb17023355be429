"""The JSON messages of discovery.

``GET /list`` has the format of Liqo's cluster autoscaler (discovery ``types/``), with additional keys.
"""

import datetime as dt
from typing import TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from rescheduler.net.config_files import Duration, Section

Quantities: TypeAlias = dict[str, str | int | float]


class Description(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One source's description of a cluster; `None` means unknown. ``repr`` contains no secrets."""

    kubeconfig: str | None = None
    resources: dict[str, str] | None = None  #: resources that the cluster shares
    labels: dict[str, str] | None = None
    has_nat: bool | None = None
    price: float | None = None  #: per hour
    free: dict[str, str] | None = None  #: the currently free part of the resources

    def over(self, other: "Description") -> "Description":
        """Return this description with its unknown values filled in from *other*."""
        given = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(other, **given)

    def __repr__(self) -> str:
        return f"Description({', '.join(name for name in self.__struct_fields__ if getattr(self, name) is not None)})"


class Listed(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An entry of ``/list``; the first five keys are Liqo's."""

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
    """The key ``info`` of a Secret; the first three keys are Liqo's, and unknown keys are ignored."""

    resources: Quantities
    labels: dict[str, str] = {}
    has_nat: bool = False
    price: float | None = None
    free: Quantities | None = None


class ClusterUpdate(Section, frozen=True, kw_only=True):
    """An agent's update of its cluster. Missing keys keep their value; null deletes it."""

    name: str
    kubeconfig: str | UnsetType | None = UNSET
    resources: Quantities | UnsetType | None = UNSET
    labels: dict[str, str] | UnsetType | None = UNSET
    has_nat: bool | UnsetType | None = UNSET
    price: float | UnsetType | None = UNSET
    free: Quantities | UnsetType | None = UNSET
    ttl: Duration | None = None  #: how long the update is valid; default: --expire-after

    def __repr__(self) -> str:
        return f"ClusterUpdate({self.name})"


class UpdateRequest(Section, frozen=True, kw_only=True):
    """The body of ``POST /update``, which is applied completely or not at all."""

    clusters: tuple[ClusterUpdate, ...] = ()
    deleted: tuple[str, ...] = ()


class Updated(msgspec.Struct, frozen=True):
    """The response: the number of updated clusters, and the number of deleted clusters that existed."""

    updated: int
    deleted: int
