"""Deployments that roll out: which there are, one of them as it is now, and the change of its template's annotation."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import msgspec

from predicates.objects import Deployment, Wire
from predicates.snapshot import Snapshot, key_of
from predicates.texts import one_line
from predicates.wire import Decoder, Interner, WireError
from rescheduler import decoding
from rescheduler.clock import Clock
from rescheduler.errors import Forbidden, InputError, NotFound, ReschedulerError
from rescheduler.kube.api_server import AccessRight, is_allowed
from rescheduler.kube.client import MERGE_PATCH, Client
from rescheduler.kube.codec import JsonCodec
from rescheduler.kube.lister import TEMPLATES, read_all
from rescheduler.kube.workloads import WorkloadCondition, decoded_digest
from rescheduler.planning.policy import Surging
from rescheduler.planning.surges import ANNOTATION

#: The annotation of a pod template that ``kubectl rollout restart`` sets as well.
RESTARTED_AT: Final = "kubectl.kubernetes.io/restartedAt"

#: Seconds until the Deployments are read again, and until the rights are reviewed again if one is missing.
REREAD_SECONDS: Final = 60.0
REVIEW_SECONDS: Final = 300.0

#: The API's default of ``progressDeadlineSeconds``, and the longest that is waited for.
_PROGRESS_SECONDS: Final = 600
_LONGEST_SECONDS: Final = 3600

_RESOURCE: Final = next(each for each in TEMPLATES if each.kind == "Deployment")

#: The rights that a roll-out needs. That to read one Deployment is part of the daemon's.
RIGHTS: Final = tuple(AccessRight(verb, "deployments", "apps") for verb in ("list", "patch"))

log = logging.getLogger(__name__)


class _Spec(Wire, frozen=True):
    progress_deadline_seconds: int | None = None
    min_ready_seconds: int = 0


class _Status(Wire, frozen=True):
    conditions: tuple[WorkloadCondition, ...] = ()


class _Rest(Wire, frozen=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()


@dataclass(frozen=True, slots=True)
class LiveDeployment:
    """A Deployment as it is now."""

    deployment: Deployment
    value: str | None  #: of the annotation of its template
    digest: str  #: of the template without this annotation
    fault: str  #: why its roll-out will not complete, or ""
    refusal: str  #: why its pods, or their ReplicaSet, cannot be created, or ""
    progress_seconds: int  #: ``progressDeadlineSeconds``, at most an hour
    min_ready_seconds: int


class Deployments:
    """Reads Deployments, and changes one annotation of their templates. Thread-safe."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def read(self, namespace: str, name: str) -> LiveDeployment:
        """Read a Deployment. Raises NotFound, InputError and the errors of requests."""
        act = f"get deployments {namespace}/{name}"
        return live(act, self._client.request(act, "GET", _path(namespace, name)).body)

    def annotate(self, read: LiveDeployment, value: str | None) -> None:
        """Set the annotation of the template, or remove it. Raises Conflict if the Deployment is not as it was *read*.

        Raises the errors of requests.
        """
        meta = read.deployment.metadata
        body = {
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            "spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: value}}}},
        }
        act = f"patch deployments {meta.namespace}/{meta.name}"
        self._client.request(act, "PATCH", _path(meta.namespace, meta.name), body=body, content_type=MERGE_PATCH)


def live(act: str, body: bytes) -> LiveDeployment:
    """Return the Deployment in *body*, the answer to *act*. Raises InputError."""
    try:
        deployment = Decoder(Interner()).decode("Deployment", body)
        rest, whole = decoding.decode(body, _Rest), msgspec.json.decode(body)
    except (WireError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{act}: {error}") from error
    assert isinstance(deployment, Deployment)
    value, digest = _template(whole)
    seconds = rest.spec.progress_deadline_seconds
    status = deployment.status
    observed = status is not None and status.has_observed(deployment.metadata)
    no_pods = _message(rest, "ReplicaFailure", "True") if observed else ""
    return LiveDeployment(
        deployment,
        value,
        digest,
        _message(rest, "Progressing", "False", "ProgressDeadlineExceeded") if observed else "",
        # without a ReplicaSet, the controller does not say that it has observed the template
        no_pods or _message(rest, "Progressing", "False", "ReplicaSetCreateError"),
        min(_PROGRESS_SECONDS if seconds is None else seconds, _LONGEST_SECONDS),
        rest.spec.min_ready_seconds,
    )


def _template(deployment: Any) -> tuple[str | None, str]:
    """Return our annotation's value in the template, and a digest of everything else in it."""
    template = dict((deployment.get("spec") or {}).get("template") or {})
    meta = dict(template.get("metadata") or {})
    annotations = dict(meta.get("annotations") or {})
    value = annotations.pop(RESTARTED_AT, None)
    meta["annotations"] = annotations
    return value, decoded_digest({**template, "metadata": meta})


def _message(rest: _Rest, kind: str, status: str, reason: str = "") -> str:
    for condition in rest.status.conditions:
        if (condition.type, condition.status) == (kind, status) and reason in ("", condition.reason):
            return one_line(condition.message or condition.reason)
    return ""


def _path(namespace: str, name: str) -> str:
    return f"/apis/apps/v1/namespaces/{quote(namespace, safe='')}/deployments/{quote(name, safe='')}"


class SurgeableDeployments:
    """The Deployments of the cluster, if this installation may change them. Not thread-safe.

    Without the rights, there are none: what asks for a roll-out keeps its node, and that is logged once.
    """

    def __init__(self, client: Client, clock: Clock, surge: Surging, warn: Callable[[str], None] = log.warning) -> None:
        self._client = client
        self._clock = clock
        self._surge = surge
        self._warn = warn
        self._next = 0.0
        self._warned = ""

    def refresh(self, snapshot: Snapshot) -> None:
        """Update the Deployments in *snapshot*, at most once a minute. If a read fails, the last known ones stay."""
        if self._surge is Surging.OFF or (now := self._clock.monotonic()) < self._next:
            return
        self._next = now + REREAD_SECONDS
        try:
            missing = [right for right in RIGHTS if not is_allowed(self._client, right)]
            if not missing:
                found = read_all(self._client, _RESOURCE, JsonCodec("Deployment", Interner()), lambda _: False)
                snapshot.replace_by_key("Deployment", {key_of(obj): obj for obj in found})
                self._warned = ""
                return
        except (NotFound, Forbidden) as error:
            missing, why = list(RIGHTS), str(error)
        except ReschedulerError as error:
            log.debug("the Deployments cannot be read: %s", error)
            return
        else:
            why = f"missing permission: {', '.join(map(str, missing))}"
        self._next = now + REVIEW_SECONDS
        snapshot.replace_by_key("Deployment", {})
        self._complain(why, snapshot)

    def _complain(self, why: str, snapshot: Snapshot) -> None:
        asking = self._surge is Surging.BLOCKED or any(
            pod.annotations.get(ANNOTATION) == "true" for pod in snapshot.pods.values() if pod.annotations
        )
        if asking and why != self._warned:
            self._warned = why
            self._warn(f"{why}: no Deployment rolls out to move its pods (deploy/components/surge)")
