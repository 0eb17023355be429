"""The writes to a cluster: each is a PATCH, or contains the UID of its target object."""

import contextlib
import http
import logging
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import msgspec

from predicates.objects import Node, ObjectMeta, Pod, Taint
from predicates.snapshot import ROOM_NAMESPACE
from predicates.texts import one_line
from rescheduler.draining.events import EvictionAccepted, EvictionFailed, EvictionOutcome, EvictionRefused, PodGone
from rescheduler.errors import Conflict, Forbidden, MarkLost, NotFound, NotLeading, ReschedulerError, Retryable
from rescheduler.kube import consistent_reads
from rescheduler.kube.client import MERGE_PATCH, STRATEGIC_PATCH, Client, retry_on_conflict
from rescheduler.kube.responses import ApiResponse, ApiStatus, decoded, refusal, retry_after_seconds
from rescheduler.planning.last_look import Fresh, NodeLease, PreemptedPod
from rescheduler.planning.outcome import PodRef
from rescheduler.planning.rules.interruptions import DRAIN_CONDITION, OUR_REASON

log = logging.getLogger(__name__)

# Eviction requests and their outcomes.
#
# Source: ``kubernetes/pkg/registry/core/pod/storage/eviction.go``.

#: The cause of a rejection by a PodDisruptionBudget: 429, or 403 since Kubernetes 1.37. Any other 429 is an admission
#: webhook or rate limiting.
_BUDGET: Final = "DisruptionBudget"
_TWO_BUDGETS: Final = "more than one PodDisruptionBudget"

#: How the API server reports the denial of an admission webhook, before the webhook's own words.
_WEBHOOK: Final = re.compile(r'admission webhook "[^"]*" denied the request')

#: The disruption controller has not processed the latest budget yet, or the pod changed concurrently. The budget may
#: allow the eviction.
_UNDECIDED: Final = "still being processed by the server"


@dataclass(frozen=True, slots=True)
class Replaced:
    """A precondition failed: the pod was replaced by another pod of the same name, or modified concurrently."""


def query(*, dry_run: bool) -> dict[str, str]:
    """Return the query of the request. Admission and audit detect a dry run by the query, not by the body."""
    return {"dryRun": "All"} if dry_run else {}


def body(namespace: str, name: str, uid: str, grace_seconds: int | None, *, dry_run: bool) -> dict[str, Any]:
    """Return a ``policy/v1`` Eviction of the pod with *uid*. *grace_seconds* None means the pod's own grace period."""
    options: dict[str, Any] = {"preconditions": {"uid": uid}}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    if dry_run:
        options["dryRun"] = ["All"]
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": namespace, "name": name},
        "deleteOptions": options,
    }


def eviction_outcome(act: str, uid: str, response: ApiResponse) -> EvictionOutcome | Replaced:
    """Return the outcome of a request to evict the pod with *uid*.

    If several budgets match the pod, the API server responds with 201 and a Status of failure in the body, so the code
    alone is not sufficient.
    """
    status = response.status()
    code = status.code if response.ok and status.status == "Failure" else response.code
    match code:
        case http.HTTPStatus.TOO_MANY_REQUESTS | http.HTTPStatus.FORBIDDEN if _has_budgets(status):
            return _refused(act, uid, response, status)
        case _ if _WEBHOOK.match(status.message):
            return _denied(act, uid, msgspec.structs.replace(response, code=code))
        case http.HTTPStatus.NOT_FOUND:
            return PodGone(uid)
        case http.HTTPStatus.CONFLICT:
            return Replaced()
        case http.HTTPStatus.UNAUTHORIZED:
            # The credentials are renewed before the retry.
            return EvictionFailed(uid, str(refusal(act, response)), retryable=True, code=code)
        case _ if response.ok and status.status != "Failure":
            return EvictionAccepted(uid)
        case _:
            return _failed(act, uid, msgspec.structs.replace(response, code=code), status)


def _refused(act: str, uid: str, response: ApiResponse, status: ApiStatus) -> EvictionRefused | EvictionFailed:
    why, wait = _rejection_message(status), retry_after_seconds(response, status)
    if _UNDECIDED in why:
        code = http.HTTPStatus.TOO_MANY_REQUESTS
        return EvictionFailed(uid, f"{act}: {why} (429)", retryable=True, retry_after=wait, code=code)
    return EvictionRefused(uid, why, wait)


def _denied(act: str, uid: str, response: ApiResponse) -> EvictionFailed:
    """Return the outcome after an admission webhook denied the eviction. The same request would be denied again."""
    migrating = response.code == http.HTTPStatus.TOO_MANY_REQUESTS
    why = str(refusal(act, response))
    return EvictionFailed(uid, why, retryable=False, code=response.code, migrating=migrating)


def _failed(act: str, uid: str, response: ApiResponse, status: ApiStatus) -> EvictionFailed:
    error = refusal(act, response)
    if isinstance(error, Retryable) and _TWO_BUDGETS not in status.message:
        return EvictionFailed(uid, str(error), retryable=True, retry_after=error.retry_after, code=response.code)
    return EvictionFailed(uid, str(error), retryable=False, code=response.code)


def _has_budgets(status: ApiStatus) -> bool:
    return any(cause.reason == _BUDGET for cause in status.details.causes)


def _rejection_message(status: ApiStatus) -> str:
    messages = [cause.message for cause in status.details.causes if cause.reason == _BUDGET]
    return one_line("; ".join(filter(None, messages)) or status.message)


# Edits of a Node (taints, annotations, cordon), converted to a patch. Pure.


@dataclass(frozen=True, slots=True)
class NodeEdit:
    """The desired changes of a node. Other fields stay unchanged."""

    taint: tuple[Taint, ...] = ()  #: taints to add; a taint with the same key and effect is replaced
    untaint: tuple[str, ...] = ()  #: keys of taints to remove, with any effect and value
    annotate: Mapping[str, str | None] = field(default_factory=dict)  #: None removes the annotation
    cordon: bool | None = None  #: the desired value of spec.unschedulable
    #: Receives the node, as read right before, and returns why the edit must not be made, or "". The patch contains
    #: the resourceVersion of this node, so the check still holds when the patch is applied.
    only_if: Callable[[Node], str] | None = None


def patch(node: Mapping[str, Any], edit: NodeEdit) -> dict[str, Any] | None:
    """Return the merge patch that applies *edit* to *node* (as JSON), or None if nothing has to change.

    The patch contains the node's UID and resourceVersion, so the API server rejects it with 409 if the node has
    changed. The list of taints is replaced as a whole, but no taint that another client adds concurrently is lost.
    """
    spec: dict[str, Any] = {}
    taints = list(node.get("spec", {}).get("taints") or ())
    if (desired := _taints(taints, edit)) != taints:
        spec["taints"] = desired or None
    if edit.cordon is not None and edit.cordon != node.get("spec", {}).get("unschedulable", False):
        spec["unschedulable"] = edit.cordon or None
    present = node["metadata"].get("annotations") or {}
    annotations = {key: text for key, text in edit.annotate.items() if present.get(key) != text}
    if not spec and not annotations:
        return None
    metadata = {field_name: node["metadata"][field_name] for field_name in ("uid", "resourceVersion")}
    if annotations:
        metadata["annotations"] = annotations
    return {"metadata": metadata, "spec": spec} if spec else {"metadata": metadata}


def _taints(taints: list[dict[str, Any]], edit: NodeEdit) -> list[dict[str, Any]]:
    """Return the taints after the edit, as JSON. Unknown fields of other taints are kept."""
    ours = {(taint.key, taint.effect): taint for taint in edit.taint}
    remaining = [taint for taint in taints if taint["key"] not in edit.untaint]
    present = {(taint["key"], taint.get("effect", "")) for taint in remaining}
    replaced = [_merged(taint, ours.get((taint["key"], taint.get("effect", "")))) for taint in remaining]
    return replaced + [_as_json(taint) for key, taint in ours.items() if key not in present]


def _merged(taint: dict[str, Any], ours: Taint | None) -> dict[str, Any]:
    if ours is None or taint.get("value", "") == ours.value:
        return taint
    return _as_json(ours)


def _as_json(taint: Taint) -> dict[str, Any]:
    fields = {"key": taint.key, "value": taint.value, "effect": taint.effect, "timeAdded": taint.time_added}
    return {name: text for name, text in fields.items() if text}


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
        self._leases_forbidden = False

    def edit_node(self, name: str, uid: str, edit: NodeEdit) -> None:
        """Apply *edit* to the node *name* if its UID is still *uid*.

        Reads the node, patches it, and retries after a conflict. Raises NotFound (deleted, or replaced by another node
        of the same name), MarkLost if the condition of the edit does not hold, Conflict after PATCH_ATTEMPTS,
        Unauthorized, Retryable, NotLeading, InputError if the node cannot be decoded for the condition.
        """
        retry_on_conflict(partial(self._edit_once, name, uid, edit), PATCH_ATTEMPTS)

    def _edit_once(self, name: str, uid: str, edit: NodeEdit) -> None:
        act, body = f"patch node {name}", self._get_node(name)
        current = msgspec.json.decode(body)
        if current["metadata"]["uid"] != uid:
            raise NotFound(f"{act}: it was replaced by another node of the same name")
        if edit.only_if is not None and (why := edit.only_if(consistent_reads.decoded_node(act, body))):
            raise MarkLost(f"{act}: {why}")
        if (change := patch(current, edit)) is not None:
            self._client.request(act, "PATCH", _node(name), body=change, content_type=MERGE_PATCH)

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

    def pods(self, node: str, owners: Collection[tuple[str, str]]) -> list[Pod]:
        """Read the pods on *node* and those of *owners* consistently; see :func:`.consistent_reads.read_pods`."""
        return consistent_reads.read_pods(self._client, node, owners)

    def node_leases(self, names: Collection[str]) -> dict[str, NodeLease]:
        """Read the Leases of the Nodes *names*; see :func:`.consistent_reads.read_node_leases`.

        If they may not be read, log it once and return none.
        """
        try:
            return consistent_reads.read_node_leases(self._client, names)
        except Forbidden as error:
            if not self._leases_forbidden:
                log.warning("%s; a dead node is noticed only when its Node is not Ready", error)
            self._leases_forbidden = True
            return {}

    def preempted(self) -> list[PreemptedPod]:
        """Read which pods were preempted in the last hour; see :func:`.consistent_reads.read_preempted`."""
        return consistent_reads.read_preempted(self._client)

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
                query=query(dry_run=dry_run),
                body=body(namespace, name, uid, grace_seconds, dry_run=dry_run),
                read_seconds=EVICTION_SECONDS,
            )
        except NotLeading:
            raise
        except Retryable as error:
            return EvictionFailed(uid, str(error), retryable=True, retry_after=error.retry_after)
        except ReschedulerError as error:
            return EvictionFailed(uid, str(error), retryable=False)
        outcome = eviction_outcome(act, uid, response)
        return self._conflict_cause(act, namespace, name, uid) if isinstance(outcome, Replaced) else outcome

    def _conflict_cause(self, act: str, namespace: str, name: str, uid: str) -> EvictionOutcome:
        """Read the pod after a 409 to determine whether it was replaced by another pod or modified concurrently."""
        try:
            response = self._client.request(f"get pod {namespace}/{name}", "GET", _pod(namespace, name))
            same_pod = decoded(act, response.body, _PodMetadata, strict=False).metadata.uid == uid
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


# The condition DrainInProgress of nodes that are being drained (KEP-5683).


class NodeConditions:
    """The writes to the condition of one *identity*, which its message names. Thread-safe."""

    def __init__(self, client: Client, identity: str) -> None:
        self._client = client
        self._message = f"spot-rescheduler drains this node (installation {identity})"

    def set(self, name: str, uid: str, now: datetime) -> None:
        """Add the condition to the node *name* with this *uid*, unless it has one, whoever wrote it.

        Raises NotFound, Forbidden, Permanent if the API server rejects it, Conflict, Retryable, NotLeading.
        """
        written = {"status": "True", "reason": OUR_REASON, "message": self._message}
        times = dict.fromkeys(("lastHeartbeatTime", "lastTransitionTime"), f"{now:%Y-%m-%dT%H:%M:%SZ}")
        condition = {"type": DRAIN_CONDITION, **written, **times}
        retry_on_conflict(partial(self._write, name, uid, condition), PATCH_ATTEMPTS)

    def remove(self, name: str, uid: str) -> None:
        """Remove the condition, unless it is gone, the node is, or somebody else wrote it. Raises as :meth:`set`."""
        deletion = {"type": DRAIN_CONDITION, "$patch": "delete"}
        with contextlib.suppress(NotFound):
            retry_on_conflict(partial(self._write, name, uid, deletion), PATCH_ATTEMPTS)

    def _write(self, name: str, uid: str, condition: Mapping[str, str]) -> None:
        act, path = f"patch conditions of node {name}", _node(name)
        node = msgspec.json.decode(self._client.request(f"get node {name}", "GET", path).body)
        if node["metadata"]["uid"] != uid:
            raise NotFound(f"{act}: it was replaced by another node of the same name")
        present = [each for each in node.get("status", {}).get("conditions") or () if each["type"] == DRAIN_CONDITION]
        ours = [(each.get("reason"), each.get("message")) for each in present] == [(OUR_REASON, self._message)]
        if ours if "$patch" in condition else not present:
            metadata = {key: node["metadata"][key] for key in ("uid", "resourceVersion")}
            body = {"metadata": metadata, "status": {"conditions": [condition]}}
            self._client.request(act, "PATCH", f"{path}/status", body=body, content_type=STRATEGIC_PATCH)


def _node(name: str) -> str:
    return f"/api/v1/nodes/{quote(name, safe='')}"


def _pod(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"


# Create and delete placeholders, which are pods in a namespace of their own.

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
