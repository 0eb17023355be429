"""A small client of the API server for tests and the demo: manifests in and out as plain JSON values."""

import json
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import httpx

from deploy.local.errors import ApiError

Json = dict[str, Any]  #: a Kubernetes object, or any other JSON object
Query = Mapping[str, str | bool | int]

FIELD_MANAGER = "local"
REQUEST_SECONDS = 60.0
MERGE_PATCH = "application/merge-patch+json"
#: YAML is what the API server takes for an apply, and JSON is YAML
APPLY_PATCH = "application/apply-patch+yaml"


class Api:
    """One user's connection to one API server; close it, or use it in a `with`.

    Paths are those of the REST API, `/api/v1/nodes/n1`. What the server refuses raises ApiError; where it
    cannot be reached, httpx.TransportError.
    """

    def __init__(self, server: str, *, ca: Path, token: str) -> None:
        self._client = httpx.Client(
            base_url=server,
            headers={"Authorization": f"Bearer {token}"},
            verify=ssl.create_default_context(cafile=ca),
            timeout=REQUEST_SECONDS,
            trust_env=False,  # a proxy for the world is none for 127.0.0.1
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
    ) -> Json:
        """One request; the object that came back."""
        answer = self._client.request(
            method,
            path,
            content=None if body is None else json.dumps(body),
            headers={"Content-Type": content_type},
            params=query or {},
        )
        if answer.is_success:
            return _object(answer)
        status = _object(answer)
        raise ApiError(answer.status_code, status.get("reason", ""), status.get("message", answer.text))

    def get(self, path: str, **query: str | bool | int) -> Json:
        """The object at *path*."""
        return self.request("GET", path, query=query)

    def items(self, path: str, **query: str | bool | int) -> list[Json]:
        """The objects of the list at *path*; *query* takes labelSelector and fieldSelector."""
        found: list[Json] = self.get(path, **query)["items"]
        return found

    def post(self, path: str, body: Mapping[str, Any], **query: str | bool | int) -> Json:
        """Create at *path*, or call a subresource such as `…/pods/NAME/eviction`."""
        return self.request("POST", path, body, query=query)

    def patch(self, path: str, body: Mapping[str, Any], content_type: str = MERGE_PATCH) -> Json:
        """Change the object at *path*; None in a merge patch takes a field away."""
        return self.request("PATCH", path, body, content_type)

    def delete(self, path: str, **query: str | bool | int) -> None:
        """Delete the object or the collection at *path*; what is not there is deleted already."""
        try:
            self.request("DELETE", path, query=query)
        except ApiError as error:
            if error.status != httpx.codes.NOT_FOUND:
                raise

    def apply(self, objects: Iterable[Mapping[str, Any]]) -> list[Json]:
        """Server-side apply in the given order, conflicts overruled; the objects as the server has them.

        A `status` goes to the status subresource: no kubelet or cloud is there to report one.
        """
        return [self._apply(item) for item in objects]

    def _apply(self, item: Mapping[str, Any]) -> Json:
        path = self.path(item)
        made = self.request("PATCH", path, item, APPLY_PATCH, {"fieldManager": FIELD_MANAGER, "force": True})
        if "status" in item:
            made = self.patch(f"{path}/status", {"status": item["status"]})
        return made

    def path(self, item: Mapping[str, Any]) -> str:
        """Where *item* lives; a namespaced object that names no namespace lives in `default`."""
        version, metadata = item["apiVersion"], item["metadata"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        plural, namespaced = self._resource(root, item["kind"])
        scope = f"/namespaces/{metadata.get('namespace', 'default')}" if namespaced else ""
        return f"{root}{scope}/{plural}/{metadata['name']}"

    def _resource(self, root: str, kind: str) -> tuple[str, bool]:
        """The plural of *kind* under *root* and whether it is namespaced, from the server's discovery."""
        if kind not in self._resources.get(root, {}):
            found = self.get(root)["resources"]
            self._resources[root] = {
                entry["kind"]: (entry["name"], entry["namespaced"]) for entry in found if "/" not in entry["name"]
            }
        try:
            return self._resources[root][kind]
        except KeyError:
            raise ApiError(404, "NotFound", f"the server has no kind {kind} in {root}") from None


def _object(answer: httpx.Response) -> Json:
    """The JSON object of an answer; health checks and proxies answer in plain text, which gives {}."""
    if not answer.headers.get("Content-Type", "").startswith("application/json"):
        return {}
    decoded: Json = answer.json()
    return decoded
