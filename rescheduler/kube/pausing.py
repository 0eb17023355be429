"""Pause and resume drains with annotations of the Lease."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from rescheduler.errors import NotFound
from rescheduler.kube.client import MERGE_PATCH, Client
from rescheduler.kube.conflicts import deletion_conflicts, retry_on_conflict
from rescheduler.kube.lease_object import LeaseObject, lease_of, lease_path

#: Maximum number of attempts when a write fails with a conflict. The leader renews the Lease every two seconds.
ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class LeaseStore:
    """The Lease of an installation. The holder and the times in it are never changed here."""

    client: Client
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"Lease {self.namespace}/{self.name}"

    def read(self) -> LeaseObject | None:
        """Return the Lease, or None if it does not exist. Raises Unauthorized, Retryable."""
        try:
            return lease_of(self._send("get", "GET", lease_path(self.namespace, self.name)))
        except NotFound:
            return None

    def annotate(self, annotations: Mapping[str, str | None]) -> None:
        """Set *annotations*; None removes one. A missing Lease is created without a holder.

        The change is conditional on the Lease's resourceVersion, and is repeated after a conflict. Raises Conflict,
        NotFound (the namespace does not exist), Unauthorized, Retryable.
        """
        retry_on_conflict(partial(self._annotate_once, annotations), ATTEMPTS)

    def _annotate_once(self, annotations: Mapping[str, str | None]) -> None:
        if (lease := self.read()) is None:
            self._create({key: text for key, text in annotations.items() if text is not None})
            return
        with deletion_conflicts():
            self._patch(lease, annotations)

    def _create(self, annotations: Mapping[str, str]) -> None:
        metadata = {"namespace": self.namespace, "name": self.name, "annotations": annotations}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
        self._send("create", "POST", lease_path(self.namespace), body=body)

    def _patch(self, lease: LeaseObject, annotations: Mapping[str, str | None]) -> None:
        metadata = {"resourceVersion": lease.metadata.resource_version, "annotations": annotations}
        path = lease_path(self.namespace, self.name)
        self._send("patch", "PATCH", path, body={"metadata": metadata}, content_type=MERGE_PATCH)

    def _send(self, verb: str, method: str, path: str, **options: Any) -> bytes:
        return self.client.request(f"{verb} lease {self.namespace}/{self.name}", method, path, **options).body
