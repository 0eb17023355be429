"""Eviction requests and their outcomes.

Source: ``kubernetes/pkg/registry/core/pod/storage/eviction.go``.
"""

import http
import re
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from rescheduler.draining.eviction_outcomes import (
    EvictionAccepted,
    EvictionFailed,
    EvictionOutcome,
    EvictionRefused,
    PodGone,
)
from rescheduler.errors import Retryable
from rescheduler.kube.responses import ApiResponse, ApiStatus, one_line, refusal, retry_after_seconds

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


def outcome(act: str, uid: str, response: ApiResponse) -> EvictionOutcome | Replaced:
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
