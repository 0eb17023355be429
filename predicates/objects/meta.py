"""Object metadata, and the base class of all structs that mirror the API."""

from typing import Annotated, TypeAlias

import msgspec

QuantityText: TypeAlias = str | int | float
Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Amounts: TypeAlias = tuple[tuple[str, int], ...]


class Wire(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """Base class of structs with the JSON shape of the Kubernetes API."""


class OwnerReference(Wire, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool = False


class ObjectMeta(Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
