"""A ConfigMap that stores a value, such as the memory, across restarts and changes of the leader.

This module does not interpret the value: it stores bytes, a human-readable summary, and the waived controllers.
"""

import base64
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec

from rescheduler import decoding
from rescheduler.errors import Forbidden, NotFound, Retryable, Unauthorized
from rescheduler.kube.client import MERGE_PATCH, Client, deletion_conflicts

_T = TypeVar("_T")

#: Annotation of the Lease with the name of the created ConfigMap. Without it, a missing ConfigMap was never created.
ANNOTATION: Final = "spot-rescheduler/memory"

#: Keys of ``binaryData``.
MEMORY_KEY: Final = "memory"
SAVINGS_KEY: Final = "savings"

_SUMMARY: Final = "summary"
_WAIVED: Final = "waived"


@dataclass(frozen=True, slots=True)
class Absent:
    """Nothing is stored: the ConfigMap does not exist, or it is empty as in the shipped manifests."""

    version: str = ""  #: the resourceVersion of the empty ConfigMap; "" if there is none


@dataclass(frozen=True, slots=True)
class UnreadableMemory:
    """The ConfigMap could not be read; its content is unknown."""

    why: str
    forbidden: bool = False  #: we may not read a ConfigMap of this name; it need not exist


@dataclass(frozen=True, slots=True)
class Stored:
    """The content of the ConfigMap."""

    content: bytes
    version: str  #: the ConfigMap's resourceVersion
    waived: tuple[str, ...] = ()  #: controllers whose debts a user waived, ``namespace/Kind/name``


Reading: TypeAlias = Absent | UnreadableMemory | Stored


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _AnnotatedLease(msgspec.Struct):
    metadata: _Metadata


class _ConfigMap(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    binary_data: dict[str, bytes] | None = None
    data: dict[str, str] | None = None


class MemoryStore:
    """The ConfigMap, and the annotation of the Lease that records its creation. Not thread-safe."""

    def __init__(self, client: Client, namespace: str, name: str, lease: str = "", *, key: str = MEMORY_KEY) -> None:
        """Create the store. *lease* is the name of the Lease that records that the ConfigMap was created; "" for none.

        *key* is the key of the content in ``binaryData``.
        """
        self._client = client
        self._key = key
        self.namespace = namespace
        self.name = name
        self._lease = lease
        root = f"namespaces/{quote(namespace, safe='')}"
        self._collection = f"/api/v1/{root}/configmaps"
        self._path = f"{self._collection}/{quote(name, safe='')}"
        self._lease_path = f"/apis/coordination.k8s.io/v1/{root}/leases/{quote(lease, safe='')}"

    def __str__(self) -> str:
        return f"ConfigMap {self.namespace}/{self.name}"

    def read(self) -> Reading:
        """Read the ConfigMap from the API server. Raises Retryable."""
        try:
            config_map = self._config_map("get", "GET", self._path)
        except NotFound:
            return Absent()
        except Unauthorized as error:
            return UnreadableMemory(str(error), isinstance(error, Forbidden))
        if not config_map.binary_data and not config_map.data:
            return Absent(config_map.metadata.resource_version)
        content = (config_map.binary_data or {}).get(self._key)
        if content is None:
            return UnreadableMemory(f"{self} has no binaryData.{self._key}")
        waived = (config_map.data or {}).get(_WAIVED, "").split()
        return Stored(content, config_map.metadata.resource_version, tuple(waived))

    def write(self, content: bytes, summary: str, version: str) -> str:
        """Store *content* if the ConfigMap still has *version* ("" if it must not exist). Return its new version.

        The waivers are removed, because the caller has read them with *version*. Raises Conflict (it was changed,
        created or deleted), NotFound (the namespace does not exist), Unauthorized, Retryable. The shipped Role does not
        allow to create ConfigMaps, because that permission cannot be limited to a name.
        """
        binary = {self._key: base64.b64encode(content).decode()}
        if version:
            return self._patch(version, {"binaryData": binary, "data": {_SUMMARY: summary, _WAIVED: None}})
        metadata = {"namespace": self.namespace, "name": self.name}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": binary}
        try:
            created = self._config_map("create", "POST", self._collection, body=body | {"data": {_SUMMARY: summary}})
        except Forbidden as error:
            command = f"kubectl -n {self.namespace} create configmap {self.name}"
            raise Forbidden(f"{error}; create it with: {command}") from error
        return created.metadata.resource_version

    def waive(self, controllers: Collection[str], version: str) -> None:
        """Store waivers for *controllers* (``namespace/Kind/name``). Raises the same errors as :meth:`write`."""
        self._patch(version, {"data": {_WAIVED: "".join(f"{name}\n" for name in sorted(controllers))}})

    def was_created(self) -> bool:
        """Return whether the Lease records that the ConfigMap was created. Raises Unauthorized, Retryable."""
        if not self._lease:
            return False
        try:
            response = self._client.request(f"get {self._of_lease}", "GET", self._lease_path)
        except NotFound:
            return False
        annotations = _decoded(response.body, _AnnotatedLease).metadata.annotations or {}
        return annotations.get(ANNOTATION) == self.name

    def note_created(self) -> None:
        """Record on the Lease that the ConfigMap was created. Raises NotFound, Unauthorized, Retryable."""
        if self._lease:
            body = {"metadata": {"annotations": {ANNOTATION: self.name}}}
            self._client.request(
                f"patch {self._of_lease}", "PATCH", self._lease_path, body=body, content_type=MERGE_PATCH
            )

    @property
    def _of_lease(self) -> str:
        return f"lease {self.namespace}/{self._lease}"

    def _patch(self, version: str, change: Mapping[str, Any]) -> str:
        body = {"metadata": {"resourceVersion": version}, **change}
        with deletion_conflicts():
            patched = self._config_map("patch", "PATCH", self._path, body=body, content_type=MERGE_PATCH)
        return patched.metadata.resource_version

    def _config_map(self, verb: str, method: str, path: str, **options: Any) -> _ConfigMap:
        act = f"{verb} configmap {self.namespace}/{self.name}"
        return _decoded(self._client.request(act, method, path, **options).body, _ConfigMap)


def write_text(client: Client, namespace: str, name: str, key: str, text: str) -> None:
    """Set one key of ``data`` of a ConfigMap, which must exist: RBAC can limit patch to its name, but not create.

    Raises the errors of the request, such as NotFound.
    """
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{quote(name, safe='')}"
    act = f"patch configmap {namespace}/{name}"
    client.request(act, "PATCH", path, body={"data": {key: text}}, content_type=MERGE_PATCH)


def _decoded(body: bytes, shape: type[_T]) -> _T:
    try:
        return decoding.decode(body, shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Retryable(f"the response is not a {shape.__name__.lstrip('_')}: {error}") from error
