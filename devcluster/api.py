"""A small API server client for tests and the demo; objects are plain JSON values."""

import json
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import httpx2

from devcluster.errors import ApiError

Json = dict[str, Any]  #: a Kubernetes object, or any other JSON object
Query = Mapping[str, str | bool | int]

FIELD_MANAGER = "local"
REQUEST_SECONDS = 60.0
MERGE_PATCH = "application/merge-patch+json"
#: Server-side apply requires YAML; JSON is valid YAML.
APPLY_PATCH = "application/apply-patch+yaml"


class Api:
    """A user's connection to an API server; close it, or use it as a context manager.

    Paths are REST API paths such as `/api/v1/nodes/n1`. Methods raise ApiError if the server rejects the request, and
    httpx2.TransportError if the server is unreachable.
    """

    def __init__(self, server: str, *, ca: Path, token: str) -> None:
        self._client = httpx2.Client(
            base_url=server,
            headers={"Authorization": f"Bearer {token}"},
            verify=ssl.create_default_context(cafile=ca),
            timeout=REQUEST_SECONDS,
            trust_env=False,  # ignore HTTP_PROXY: the server is on 127.0.0.1
        )
        self._resources: dict[str, Mapping[str, tuple[str, bool]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Json:
        """Send a request and return the object in the response."""
        response = self._client.request(
            method,
            path,
            content=None if body is None else json.dumps(body),
            headers={"Content-Type": content_type, **(headers or {})},
            params=query or {},
        )
        if response.is_success:
            return _object(response)
        status = _object(response)
        raise ApiError(response.status_code, status.get("reason", ""), status.get("message", response.text))

    def get(self, path: str, **query: str | bool | int) -> Json:
        """Return the object at *path*."""
        return self.request("GET", path, query=query)

    def items(self, path: str, **query: str | bool | int) -> list[Json]:
        """Return the objects of the list at *path*; *query* takes labelSelector and fieldSelector."""
        objects: list[Json] = self.get(path, **query)["items"]
        return objects

    def post(self, path: str, body: Mapping[str, Any], **query: str | bool | int) -> Json:
        """Create an object at *path*, or call a subresource such as `…/pods/NAME/eviction`."""
        return self.request("POST", path, body, query=query)

    def patch(self, path: str, body: Mapping[str, Any], content_type: str = MERGE_PATCH) -> Json:
        """Patch the object at *path*; None in a merge patch removes a field."""
        return self.request("PATCH", path, body, content_type)

    def delete(self, path: str, **query: str | bool | int) -> None:
        """Delete the object or the collection at *path*; do nothing if it does not exist."""
        try:
            self.request("DELETE", path, query=query)
        except ApiError as error:
            if error.status != httpx2.codes.NOT_FOUND:
                raise

    def apply(self, objects: Iterable[Mapping[str, Any]]) -> list[Json]:
        """Apply *objects* with server-side apply in the given order, override conflicts, and return the stored objects.

        A `status` is written to the status subresource, because no kubelet or cloud reports one.
        """
        return [self._apply(item) for item in objects]

    def _apply(self, item: Mapping[str, Any]) -> Json:
        path = self.path(item)
        stored = self.request("PATCH", path, item, APPLY_PATCH, {"fieldManager": FIELD_MANAGER, "force": True})
        if "status" in item:
            stored = self.patch(f"{path}/status", {"status": item["status"]})
        return stored

    def path(self, item: Mapping[str, Any]) -> str:
        """Return the path of *item*; a namespaced object without a namespace is in `default`."""
        version, metadata = item["apiVersion"], item["metadata"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        plural, namespaced = self._resource(root, item["kind"])
        scope = f"/namespaces/{metadata.get('namespace', 'default')}" if namespaced else ""
        return f"{root}{scope}/{plural}/{metadata['name']}"

    def _resource(self, root: str, kind: str) -> tuple[str, bool]:
        """Return the plural of *kind* under *root* and whether it is namespaced, from the discovery API."""
        if kind not in self._resources.get(root, {}):
            resources = self.get(root)["resources"]
            self._resources[root] = {
                entry["kind"]: (entry["name"], entry["namespaced"]) for entry in resources if "/" not in entry["name"]
            }
        try:
            return self._resources[root][kind]
        except KeyError:
            raise ApiError(404, "NotFound", f"the server has no kind {kind} in {root}") from None


def _object(response: httpx2.Response) -> Json:
    """Return the JSON object of a response; {} for plain text, as health checks and proxies send it."""
    if not response.headers.get("Content-Type", "").startswith("application/json"):
        return {}
    decoded: Json = response.json()
    return decoded
