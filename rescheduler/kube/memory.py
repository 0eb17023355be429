"""The ConfigMap that keeps what restarts and changes of leader must not forget.

Whoever reads it decides what it means: here it is bytes, a summary for people, and the names that somebody waived.
"""

import base64
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec

from rescheduler import shapes
from rescheduler.errors import NotFound, Retryable, Unauthorized
from rescheduler.kube.client import MERGE_PATCH, Client

_T = TypeVar("_T")

#: On the Lease: the name of the ConfigMap that was created. Without it, a missing ConfigMap never was.
ANNOTATION: Final = "spot-rescheduler/memory"

_CONTENT: Final = "memory"
_SUMMARY: Final = "summary"
_WAIVED: Final = "waived"


@dataclass(frozen=True, slots=True)
class Absent:
    """There is no such ConfigMap."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """There may be one; what it holds is not known."""

    why: str


@dataclass(frozen=True, slots=True)
class Stored:
    content: bytes
    version: str  #: the ConfigMap's resourceVersion
    waived: tuple[str, ...] = ()  #: controllers whose debts somebody waived, ``namespace/Kind/name``


Reading: TypeAlias = Absent | Unreadable | Stored


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Lease(msgspec.Struct):
    metadata: _Metadata


class _ConfigMap(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    binary_data: dict[str, bytes] | None = None
    data: dict[str, str] | None = None


class MemoryStore:
    """One ConfigMap, and what the Lease tells of it. For one thread."""

    def __init__(self, client: Client, namespace: str, name: str, lease: str = "") -> None:
        """*lease*: the name of the Lease where there is an election, "" where there is none."""
        self._client = client
        self._namespace = namespace
        self._name = name
        self._lease = lease
        root = f"namespaces/{quote(namespace, safe='')}"
        self._collection = f"/api/v1/{root}/configmaps"
        self._path = f"{self._collection}/{quote(name, safe='')}"
        self._lease_path = f"/apis/coordination.k8s.io/v1/{root}/leases/{quote(lease, safe='')}"

    def __str__(self) -> str:
        return f"ConfigMap {self._namespace}/{self._name}"

    def read(self) -> Reading:
        """The ConfigMap as the API server has it now. Raises Retryable."""
        try:
            found = self._config_map("get", "GET", self._path)
        except NotFound:
            return Absent()
        except Unauthorized as error:
            return Unreadable(str(error))
        content = (found.binary_data or {}).get(_CONTENT)
        if content is None:
            return Unreadable(f"{self} has no binaryData.{_CONTENT}")
        waived = (found.data or {}).get(_WAIVED, "").split()
        return Stored(content, found.metadata.resource_version, tuple(waived))

    def write(self, content: bytes, summary: str, version: str) -> str:
        """Store *content* if the ConfigMap still has *version*, "": if there is none; its new version.

        What was waived is taken off: whoever has read *version* has seen it. Raises Conflict, NotFound (it was
        deleted, or its namespace), Unauthorized, Retryable.
        """
        binary = {_CONTENT: base64.b64encode(content).decode()}
        if version:
            return self._patch(version, {"binaryData": binary, "data": {_SUMMARY: summary, _WAIVED: None}})
        metadata = {"namespace": self._namespace, "name": self._name}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": binary}
        made = self._config_map("create", "POST", self._collection, body=body | {"data": {_SUMMARY: summary}})
        return made.metadata.resource_version

    def waive(self, controllers: Collection[str], version: str) -> None:
        """Ask the daemon to forget its debts to *controllers* (``namespace/Kind/name``); raises as :meth:`write`."""
        self._patch(version, {"data": {_WAIVED: "".join(f"{name}\n" for name in sorted(controllers))}})

    def was_created(self) -> bool:
        """Whether the Lease tells that the ConfigMap was created at some time. Raises Unauthorized, Retryable."""
        if not self._lease:
            return False
        try:
            answer = self._client.request(f"get {self._of_lease}", "GET", self._lease_path)
        except NotFound:
            return False
        annotations = _decoded(answer.body, _Lease).metadata.annotations or {}
        return annotations.get(ANNOTATION) == self._name

    def note_created(self) -> None:
        """Have the Lease tell that the ConfigMap was created. Raises NotFound, Unauthorized, Retryable."""
        if self._lease:
            body = {"metadata": {"annotations": {ANNOTATION: self._name}}}
            self._client.request(
                f"patch {self._of_lease}", "PATCH", self._lease_path, body=body, content_type=MERGE_PATCH
            )

    @property
    def _of_lease(self) -> str:
        return f"lease {self._namespace}/{self._lease}"

    def _patch(self, version: str, change: Mapping[str, Any]) -> str:
        body = {"metadata": {"resourceVersion": version}, **change}
        made = self._config_map("patch", "PATCH", self._path, body=body, content_type=MERGE_PATCH)
        return made.metadata.resource_version

    def _config_map(self, verb: str, method: str, path: str, **options: Any) -> _ConfigMap:
        act = f"{verb} configmap {self._namespace}/{self._name}"
        return _decoded(self._client.request(act, method, path, **options).body, _ConfigMap)


def _decoded(body: bytes, shape: type[_T]) -> _T:
    try:
        return shapes.decode(body, shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Retryable(f"the answer is no {shape.__name__.lstrip('_')}: {error}") from error
