"""The writes to a cluster: each is a PATCH, or contains the UID of its target object."""

from collections.abc import Collection
from functools import partial
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

from predicates.objects import Node, ObjectMeta, Pod
from rescheduler import decoding
from rescheduler.draining.eviction_outcomes import EvictionFailed, EvictionOutcome, PodGone
from rescheduler.errors import Conflict, InputError, MarkLost, NotFound, NotLeading, ReschedulerError, Retryable
from rescheduler.kube import consistent_reads, eviction
from rescheduler.kube.client import MERGE_PATCH, Client
from rescheduler.kube.conflicts import retry_on_conflict
from rescheduler.kube.eviction import Replaced
from rescheduler.kube.node_edit import NodeEdit, patch, refused
from rescheduler.planning.freshness import Fresh

_T = TypeVar("_T")

#: Maximum number of attempts of a PATCH that fails with a conflict (kubelets update Nodes every few seconds).
PATCH_ATTEMPTS: Final = 5

#: Timeout of an eviction request: admission webhooks may take up to 30 s.
EVICTION_SECONDS: Final = 45.0


class _PodMetadata(msgspec.Struct):
    metadata: ObjectMeta


class KubeCluster:
    """The writes to the cluster, and the reads that must bypass the watch cache. Thread-safe.

    With a guarded client, every write may raise NotLeading. The write was then not performed, whether or not the object
    exists.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def edit_node(self, name: str, uid: str, edit: NodeEdit) -> None:
        """Apply *edit* to the node *name* if its UID is still *uid*.

        Reads the node, patches it, and retries after a conflict. Raises NotFound (deleted, or replaced by another node
        of the same name), MarkLost if the condition of the edit does not hold, Conflict after PATCH_ATTEMPTS,
        Unauthorized, Retryable, NotLeading.
        """
        retry_on_conflict(partial(self._edit_once, name, uid, edit), PATCH_ATTEMPTS)

    def _edit_once(self, name: str, uid: str, edit: NodeEdit) -> None:
        current = msgspec.json.decode(self._get_node(name))
        if current["metadata"]["uid"] != uid:
            raise NotFound(f"patch node {name}: it was replaced by another node of the same name")
        if why := refused(current, edit):
            raise MarkLost(f"patch node {name}: {why}")
        if (change := patch(current, edit)) is not None:
            self._client.request(f"patch node {name}", "PATCH", _node(name), body=change, content_type=MERGE_PATCH)

    def delete_node(self, name: str, uid: str) -> None:
        """Delete the Node object with *uid*, unless it is gone or was replaced by another node."""
        act = f"delete node {name}"
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        try:
            self._client.request(act, "DELETE", _node(name), body=options)
        except NotFound:
            return
        except Conflict:
            if self._is_there(name, uid):
                raise

    def node(self, name: str) -> Node:
        """Read the Node *name*. Raises NotFound, Unauthorized, Retryable, InputError."""
        return consistent_reads.read_node(self._client, name)

    def nodes(self) -> list[Node]:
        """Read all Nodes consistently. Raises Unauthorized, Retryable, InputError."""
        return consistent_reads.read_nodes(self._client)

    def pods(self, node: str, namespaces: Collection[str]) -> list[Pod]:
        """Read the pods on *node* and in *namespaces* consistently; see :func:`.consistent_reads.read_pods`."""
        return consistent_reads.read_pods(self._client, node, namespaces)

    def read_fresh(
        self, node: str, targets: Collection[str], namespaces: Collection[str], *, target_pods: bool = True
    ) -> Fresh:
        """Read the objects that a drain depends on consistently; see :func:`.consistent_reads.read_fresh`."""
        return consistent_reads.read_fresh(self._client, node, targets, namespaces, target_pods=target_pods)

    def evict(
        self, namespace: str, name: str, uid: str, grace_seconds: int | None = None, *, dry_run: bool = False
    ) -> EvictionOutcome:
        """Evict the pod *name* if its UID is *uid*. Raises NotLeading only; all other errors are outcomes."""
        act = f"evict pod {namespace}/{name}"
        try:
            response = self._client.send(
                act,
                "POST",
                f"{_pod(namespace, name)}/eviction",
                query=eviction.query(dry_run=dry_run),
                body=eviction.body(namespace, name, uid, grace_seconds, dry_run=dry_run),
                read_seconds=EVICTION_SECONDS,
            )
        except NotLeading:
            raise
        except Retryable as error:
            return EvictionFailed(uid, str(error), retryable=True, retry_after=error.retry_after)
        except ReschedulerError as error:
            return EvictionFailed(uid, str(error), retryable=False)
        outcome = eviction.outcome(act, uid, response)
        return self._conflict_cause(act, namespace, name, uid) if isinstance(outcome, Replaced) else outcome

    def _conflict_cause(self, act: str, namespace: str, name: str, uid: str) -> EvictionOutcome:
        """Read the pod after a 409 to determine whether it was replaced by another pod or modified concurrently."""
        try:
            response = self._client.request(f"get pod {namespace}/{name}", "GET", _pod(namespace, name))
            same_pod = _decoded(act, response.body, _PodMetadata).metadata.uid == uid
        except NotFound:
            return PodGone(uid)
        except ReschedulerError as error:
            return EvictionFailed(uid, str(error), retryable=True)
        return (
            EvictionFailed(uid, f"{act}: the pod was modified concurrently (409)", retryable=True, code=409)
            if same_pod
            else PodGone(uid)
        )

    def _is_there(self, name: str, uid: str) -> bool:
        try:
            return bool(msgspec.json.decode(self._get_node(name))["metadata"]["uid"] == uid)
        except NotFound:
            return False

    def _get_node(self, name: str) -> bytes:
        return self._client.request(f"get node {name}", "GET", _node(name)).body


def _node(name: str) -> str:
    return f"/api/v1/nodes/{quote(name, safe='')}"


def _pod(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"


def _decoded(act: str, body: bytes, kind: type[_T]) -> _T:
    try:
        return decoding.decode(body, kind, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"{act}: unexpected response: {error}") from error
