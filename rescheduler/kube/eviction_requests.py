"""EvictionRequests (``lifecycle.k8s.io/v1alpha1``, KEP-4563): ask other components to evict a pod, and follow them.
Separate from the daemon's assembly, because it is a client of the API server.

The components in ``spec.evictionResponders`` of the pod handle its eviction one after the other, and the eviction API
last. A controller observes EvictionRequests and records the progress in one Eviction for each pod. The deletion of a
request withdraws it.

Source: ``k8s.io/api/lifecycle/v1alpha1/types.go``.
"""

import contextlib
import hashlib
from typing import Any, Final
from urllib.parse import quote

import msgspec

from predicates.texts import one_line
from rescheduler.draining.events import EvictionFailed, EvictionRequested, RequestOutcome, RequestSeen, RequestsUnserved
from rescheduler.errors import Conflict, Forbidden, NotFound, NotLeading, ReschedulerError, Retryable, is_transient
from rescheduler.kube.client import Client
from rescheduler.kube.responses import decoded
from rescheduler.planning.outcome import PodRef

VERSION: Final = "lifecycle.k8s.io/v1alpha1"

#: Our name as a requester. The controller adds it to the labels of Evictions.
REQUESTER: Final = "spot-rescheduler/drain"

#: The label of our requests: a digest of the installation.
INSTALLATION: Final = "spot-rescheduler/installation"

_ROOT: Final = f"/apis/{VERSION}"
_DIGITS: Final = 32  #: hexadecimal digits of a digest
_LONGEST_NOTE: Final = 300
_MOST_DELETIONS: Final = 200  #: at once: anybody may give requests our label


class _PodTarget(msgspec.Struct):
    uid: str = ""


class _Target(msgspec.Struct):
    pod: _PodTarget = msgspec.field(default_factory=_PodTarget)


class _Spec(msgspec.Struct):
    target: _Target = msgspec.field(default_factory=_Target)
    intent: str = "Eviction"


class _Condition(msgspec.Struct):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class _TargetResponder(msgspec.Struct):
    name: str
    state: str = ""


class _ResponderStatus(msgspec.Struct):
    name: str
    message: str | None = None


class _Status(msgspec.Struct, rename="camel"):
    """The fields of both kinds."""

    conditions: tuple[_Condition, ...] = ()
    observed_generation: int | None = None
    target_responders: tuple[_TargetResponder, ...] = ()
    responders: tuple[_ResponderStatus, ...] = ()

    @property
    def failure(self) -> str:
        """Why no responder will evict the pod any more, or ""."""
        failed = (each for each in self.conditions if (each.type, each.status) == ("Failed", "True"))
        return next((f"{each.reason}: {each.message}" if each.message else each.reason for each in failed), "")


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    deletion_timestamp: str | None = None


class _Item(msgspec.Struct):
    """An EvictionRequest or an Eviction."""

    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Items(msgspec.Struct):
    items: tuple[_Item, ...] | None = ()


class EvictionRequests:
    """The EvictionRequests of one *installation* (namespace and Lease). Thread-safe.

    Their names follow from the installation and the pod, so that the next process finds those of one that was killed.
    They belong to their pods: the garbage collector deletes a request that is left when its pod is gone.
    """

    def __init__(self, client: Client, installation: str) -> None:
        self._client = client
        self._installation = installation
        self._label = _digest(installation)

    def create(self, pod: PodRef, *, dry_run: bool = False) -> RequestOutcome:
        """Ask for the eviction of *pod*. A usable earlier request is taken over, another is deleted first.

        Raises NotLeading only; all other errors are outcomes.
        """
        act, query = f"create evictionrequest of pod {pod}", {"dryRun": "All"} if dry_run else {}
        try:
            self._client.request(act, "POST", _collection(pod.namespace), query=query, body=self._manifest(pod))
        except NotLeading:
            raise
        except NotFound as error:
            return RequestsUnserved(pod.uid, str(error))
        except Conflict:
            return EvictionRequested(pod.uid) if dry_run else self._existing(pod)
        except ReschedulerError as error:
            return _failed(pod, error)
        return EvictionRequested(pod.uid)

    def follow(self, pod: PodRef) -> RequestSeen:
        """Read the state of the pod's request. Raises no errors of requests: it is read again."""
        try:
            request = self._read(pod)
        except NotFound:
            return RequestSeen(pod.uid, taken=False, gone=True)
        except ReschedulerError as error:
            return RequestSeen(pod.uid, taken=False, note=one_line(str(error)))
        taken = request.status.observed_generation is not None or bool(request.status.conditions)
        note = self._note(pod) if taken else ""
        return RequestSeen(pod.uid, taken, failed=one_line(request.status.failure), note=note)

    def withdraw(self, pod: PodRef) -> None:
        """Delete the request of *pod*, if there is one. Raises the errors of requests."""
        with contextlib.suppress(NotFound):
            self._client.request(f"delete evictionrequest of pod {pod}", "DELETE", self._path(pod))

    def withdraw_all(self) -> None:
        """Delete all requests of this installation. Raises the errors of requests."""
        act, query = "list evictionrequests", {"labelSelector": f"{INSTALLATION}={self._label}"}
        try:
            body = self._client.request(act, "GET", f"{_ROOT}/evictionrequests", query=query).body
        except NotFound:  # the API is not served
            return
        items = decoded(act, body, _Items, strict=False).items or ()
        left = [item for item in items if item.metadata.deletion_timestamp is None]
        for item in left[:_MOST_DELETIONS]:
            self._delete(item)
        if len(left) > _MOST_DELETIONS:
            raise Retryable(f"{act}: {len(left) - _MOST_DELETIONS} more are withdrawn later")

    def _delete(self, item: _Item) -> None:
        known = item.metadata
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": known.uid}}
        path = f"{_collection(known.namespace)}/{quote(known.name, safe='')}"
        with contextlib.suppress(NotFound, Conflict):
            self._client.request(f"delete evictionrequest {known.namespace}/{known.name}", "DELETE", path, body=options)

    def _existing(self, pod: PodRef) -> RequestOutcome:
        try:
            request = self._read(pod)
            wanted = (request.spec.target.pod.uid, request.spec.intent) == (pod.uid, "Eviction")
            if wanted and request.metadata.deletion_timestamp is None and not request.status.failure:
                return EvictionRequested(pod.uid)
            self._delete(request)
        except NotLeading:
            raise
        except NotFound:
            pass
        except ReschedulerError as error:
            return _failed(pod, error)
        return EvictionFailed(pod.uid, f"an earlier EvictionRequest of pod {pod} is being deleted", retryable=True)

    def _read(self, pod: PodRef) -> _Item:
        act = f"get evictionrequest of pod {pod}"
        return decoded(act, self._client.request(act, "GET", self._path(pod)).body, _Item, strict=False)

    def _note(self, pod: PodRef) -> str:
        """Return which responder is active and its message, from the Eviction of the pod; "" if it cannot be read."""
        act = f"list evictions of namespace {pod.namespace}"
        path = f"{_ROOT}/namespaces/{quote(pod.namespace, safe='')}/evictions"
        try:
            body = self._client.request(act, "GET", path, query={"labelSelector": REQUESTER}).body
            items = decoded(act, body, _Items, strict=False).items or ()
        except ReschedulerError:
            return ""
        for item in items:
            if item.spec.target.pod.uid == pod.uid:
                messages = {each.name: each.message or "" for each in item.status.responders}
                active = (each.name for each in item.status.target_responders if each.state == "Active")
                return one_line("; ".join(f"{name}: {messages.get(name, '')}" for name in active))[:_LONGEST_NOTE]
        return ""

    def _path(self, pod: PodRef) -> str:
        return f"{_collection(pod.namespace)}/{self._name(pod)}"

    def _name(self, pod: PodRef) -> str:
        return f"spot-rescheduler-{_digest(f'{self._installation}/{pod.uid}')}"

    def _manifest(self, pod: PodRef) -> dict[str, Any]:
        target = {"name": pod.name, "uid": pod.uid}
        metadata = {
            "name": self._name(pod),
            "namespace": pod.namespace,
            "labels": {INSTALLATION: self._label},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", **target}],
        }
        spec = {"target": {"pod": target}, "requester": REQUESTER, "intent": "Eviction"}
        return {"apiVersion": VERSION, "kind": "EvictionRequest", "metadata": metadata, "spec": spec}


def _failed(pod: PodRef, error: ReschedulerError) -> EvictionFailed:
    wait = error.retry_after if isinstance(error, Retryable) else None
    retryable = is_transient(error) and not isinstance(error, Forbidden)
    return EvictionFailed(pod.uid, str(error), retryable=retryable, retry_after=wait)


def _collection(namespace: str) -> str:
    return f"{_ROOT}/namespaces/{quote(namespace, safe='')}/evictionrequests"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
