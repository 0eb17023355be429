"""The placeholders of the in-memory cluster, with the interface of :mod:`rescheduler.kube.cluster`."""

from collections.abc import Iterable
from typing import Any

import msgspec

from predicates.objects import Namespace, ObjectMeta, Pod
from predicates.snapshot import ROOM_NAMESPACE, Snapshot
from predicates.wire import Decoder, Interner
from rescheduler.errors import ReschedulerError
from rescheduler.planning.outcome import PodRef


class PlaceholdersInMemory:
    """Creates and deletes placeholders in *cluster*, whose autoscaler is the test."""

    def __init__(self, cluster: Snapshot, writes: list[tuple[str, str]]) -> None:
        self._cluster = cluster
        self._writes = writes  # the record of the world
        self.create_error: ReschedulerError | None = None
        self.delete_error: ReschedulerError | None = None
        cluster.upsert("Namespace", Namespace(metadata=ObjectMeta(name=ROOM_NAMESPACE, uid="uid-room")))

    def create(self, manifest: dict[str, Any]) -> None:
        self._writes.append(("create", manifest["metadata"]["name"]))
        if self.create_error is not None:
            raise self.create_error
        uid = f"uid-{manifest['metadata']['name']}"
        created = {**manifest, "metadata": {**manifest["metadata"], "uid": uid}, "status": {"phase": "Pending"}}
        self._cluster.upsert("Pod", Decoder(Interner()).decode("Pod", msgspec.json.encode(created)))

    def delete(self, placeholder: PodRef) -> None:
        self._writes.append(("delete", placeholder.name))
        if self.delete_error is not None:
            raise self.delete_error
        self._cluster.delete("Pod", f"{placeholder.namespace}/{placeholder.name}")

    @property
    def names(self) -> list[str]:
        return sorted(pod.name for pod in self._cluster.placeholders.values())

    def run_on(self, node: str, names: Iterable[str] = ()) -> None:
        """Let all placeholders, or those with these *names*, run on *node*."""
        for pod in list(self._cluster.placeholders.values()):
            if not names or pod.name in names:
                self._cluster.upsert("Pod", _running(pod, node))


def _running(pod: Pod, node: str) -> Pod:
    return msgspec.structs.replace(pod, node_name=node, phase="Running", ready=True)
