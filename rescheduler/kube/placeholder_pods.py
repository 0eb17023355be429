"""Create and delete placeholders, which are pods in a namespace of their own."""

import contextlib
from typing import Any, Final
from urllib.parse import quote

from predicates.placeholders import ROOM_NAMESPACE
from rescheduler.errors import Conflict, NotFound
from rescheduler.kube.client import Client
from rescheduler.planning.outcome import PodRef

_PODS: Final = f"/api/v1/namespaces/{ROOM_NAMESPACE}/pods"


class PlaceholderPods:
    """The writes to placeholders. Thread-safe."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def create(self, manifest: dict[str, Any]) -> None:
        """Create a placeholder, unless it exists already.

        Raises NotFound if the namespace does not exist, Forbidden, Permanent if the API server rejects the manifest,
        Retryable, NotLeading.
        """
        with contextlib.suppress(Conflict):
            self._client.request(f"create placeholder {manifest['metadata']['name']}", "POST", _PODS, body=manifest)

    def delete(self, placeholder: PodRef) -> None:
        """Delete *placeholder*, unless it is gone or another pod has its name.

        Raises Forbidden, Retryable, NotLeading.
        """
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": placeholder.uid}}
        path = f"{_PODS}/{quote(placeholder.name, safe='')}"
        with contextlib.suppress(NotFound, Conflict):
            self._client.request(f"delete placeholder {placeholder.name}", "DELETE", path, body=options)
