"""What the product does to a cluster: every write is a PATCH or carries the uid of the object it is meant for."""

from collections.abc import Collection
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

from predicates.objects import Node, ObjectMeta
from rescheduler import shapes
from rescheduler.errors import Conflict, InputError, MarkLost, NotFound, NotLeading, ReschedulerError, Retryable
from rescheduler.kube import eviction, fresh
from rescheduler.kube.client import MERGE_PATCH, Client
from rescheduler.kube.eviction import Evicted, Failed, Gone, Outcome, Refused, Replaced
from rescheduler.kube.node_edit import NodeEdit, patch, refused
from rescheduler.planning.freshness import Fresh

_T = TypeVar("_T")

#: How often a PATCH is tried against writers that come in between (kubelets write every few seconds).
PATCH_ATTEMPTS: Final = 5

#: Longest answer to an eviction: admission webhooks may take 30 s of their own.
EVICTION_SECONDS: Final = 45.0


class _Pod(msgspec.Struct):
    metadata: ObjectMeta


class Cluster:
    """The writes, and the reads that must not come from a cache. Safe for use by many threads.

    With a guarded client every write may raise NotLeading: it was not done, and says nothing about its object.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def edit_node(self, name: str, uid: str, edit: NodeEdit) -> None:
        """Make *edit* true of the node *name*, if it still is the one with *uid*.

        Reads, patches what it read, and starts over where somebody wrote in between. Raises NotFound
        (gone, or another node of that name), MarkLost where its condition does not hold, Conflict after
        PATCH_ATTEMPTS, Unauthorized, Retryable, NotLeading.
        """
        conflict: Conflict | None = None
        for _ in range(PATCH_ATTEMPTS):
            seen = msgspec.json.decode(self._get_node(name))
            if seen["metadata"]["uid"] != uid:
                raise NotFound(f"patch node {name}: it was replaced by another one of that name")
            if why := refused(seen, edit):
                raise MarkLost(f"patch node {name}: {why}")
            if (change := patch(seen, edit)) is None:
                return
            try:
                self._client.request(f"patch node {name}", "PATCH", _node(name), body=change, content_type=MERGE_PATCH)
            except Conflict as error:
                conflict = error
            else:
                return
        raise Conflict(f"{conflict} (tried {PATCH_ATTEMPTS} times)")

    def delete_node(self, name: str, uid: str) -> None:
        """Delete the Node object with *uid*; one that is gone, or was replaced by another of that name, is no error."""
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
        """The Node *name* as it is now. Raises NotFound, Unauthorized, Retryable, InputError."""
        return fresh.read_node(self._client, name)

    def read_fresh(self, node: str, targets: Collection[str], namespaces: Collection[str]) -> Fresh:
        """See :func:`rescheduler.kube.fresh.read_fresh`."""
        return fresh.read_fresh(self._client, node, targets, namespaces)

    def evict(
        self, namespace: str, name: str, uid: str, grace_seconds: int | None = None, *, dry_run: bool = False
    ) -> Outcome:
        """Ask for the eviction of the pod *name* if it is the one with *uid*. Raises NotLeading, and nothing else."""
        act = f"evict pod {namespace}/{name}"
        try:
            answer = self._client.send(
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
            return Failed(str(error), retryable=True, retry_after=error.retry_after)
        except ReschedulerError as error:
            return Failed(str(error), retryable=False)
        match eviction.outcome(act, answer):
            case Replaced():
                return self._look(act, namespace, name, uid)
            case Evicted() | Gone() | Refused() | Failed() as seen:
                return seen

    def _look(self, act: str, namespace: str, name: str, uid: str) -> Outcome:
        """After a 409: is it another pod, or did somebody write to ours at the same moment?"""
        try:
            answer = self._client.request(f"get pod {namespace}/{name}", "GET", _pod(namespace, name))
            there = _decoded(act, answer.body, _Pod).metadata.uid == uid
        except NotFound:
            return Gone()
        except ReschedulerError as error:
            return Failed(str(error), retryable=True)
        return Failed(f"{act}: written to by somebody else (409)", retryable=True, code=409) if there else Gone()

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
        return shapes.decode(body, kind, strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"{act}: the answer is not what was expected: {error}") from error
