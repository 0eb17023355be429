"""What all objects of the API have in common, and the base of their structs."""

from typing import Annotated, TypeAlias

import msgspec

QuantityText: TypeAlias = str | int | float
Int32: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Amounts: TypeAlias = tuple[tuple[str, int], ...]


class Wire(msgspec.Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """The base of all structs in the API's own shape."""


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
