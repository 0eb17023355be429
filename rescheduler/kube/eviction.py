"""What became of asking for a pod's eviction.

Source: ``kubernetes/pkg/registry/core/pod/storage/eviction.go``.
"""

import http
import re
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from rescheduler.errors import Retryable
from rescheduler.kube.answers import Answer, Status, one_line, refusal, wanted_wait

#: Marks a refusal by a PodDisruptionBudget; any other 429 is the API server asking for patience.
_BUDGET: Final = "DisruptionBudget"
_BUDGET_NAME: Final = re.compile(r"disruption budget (\S+)")
_TWO_BUDGETS: Final = "more than one PodDisruptionBudget"

#: The disruption controller has not seen the latest budget yet, or the pod changed meanwhile: the budget itself
#: may allow the eviction.
_UNDECIDED: Final = "still being processed by the server"


@dataclass(frozen=True, slots=True)
class Evicted:
    """The pod is being deleted (or, in a dry run, would be)."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The pod is not there any more; another one may bear its name."""


@dataclass(frozen=True, slots=True)
class Refused:
    """PodDisruptionBudgets do not allow it now. *retry_after* in seconds, where the server named it."""

    budgets: tuple[str, ...]
    message: str
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """It did not work for another reason; where *retryable*, the same request may work later.

    *code* is the HTTP status, None where there was no answer.
    """

    message: str
    retryable: bool
    retry_after: float | None = None
    code: int | None = None


Outcome: TypeAlias = Evicted | Gone | Refused | Failed


@dataclass(frozen=True, slots=True)
class Replaced:
    """A precondition did not hold: another pod of that name, or a write came in between. Look to tell."""


def query(*, dry_run: bool) -> dict[str, str]:
    """The query of the request. Admission and audit take a request for a dry run by this alone, not by its body."""
    return {"dryRun": "All"} if dry_run else {}


def body(namespace: str, name: str, uid: str, grace_seconds: int | None, *, dry_run: bool) -> dict[str, Any]:
    """A ``policy/v1`` Eviction of the very pod with *uid*; *grace_seconds* None leaves the pod its own."""
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


def outcome(act: str, answer: Answer) -> Outcome | Replaced:
    """Read the answer to an eviction.

    The API server answers 201 with a Status of failure in the body where several budgets cover the pod, so
    the code alone proves nothing.
    """
    status = answer.status()
    code = status.code if answer.ok and status.status == "Failure" else answer.code
    match code:
        case http.HTTPStatus.NOT_FOUND:
            return Gone()
        case http.HTTPStatus.CONFLICT:
            return Replaced()
        case http.HTTPStatus.TOO_MANY_REQUESTS if _budgets(status):
            return _refused(act, answer, status)
        case http.HTTPStatus.UNAUTHORIZED:
            return Failed(str(refusal(act, answer)), retryable=True, code=code)  # credentials are renewed
        case _ if answer.ok and status.status != "Failure":
            return Evicted()
        case _:
            return _failed(act, msgspec.structs.replace(answer, code=code), status)


def _refused(act: str, answer: Answer, status: Status) -> Refused | Failed:
    why, wait = _why(status), wanted_wait(answer, status)
    if _UNDECIDED in why:
        return Failed(f"{act}: {why} (429)", retryable=True, retry_after=wait, code=http.HTTPStatus.TOO_MANY_REQUESTS)
    return Refused(_budgets(status), why, wait)


def _failed(act: str, answer: Answer, status: Status) -> Failed:
    error = refusal(act, answer)
    if isinstance(error, Retryable) and _TWO_BUDGETS not in status.message:
        return Failed(str(error), retryable=True, retry_after=error.retry_after, code=answer.code)
    return Failed(str(error), retryable=False, code=answer.code)


def _budgets(status: Status) -> tuple[str, ...]:
    causes = (one.message for one in status.details.causes if one.reason == _BUDGET)
    named = (_BUDGET_NAME.search(one) for one in causes)
    return tuple(found[1] if found else "unnamed" for found in named)


def _why(status: Status) -> str:
    causes = [one.message for one in status.details.causes if one.reason == _BUDGET]
    return one_line("; ".join(filter(None, causes)) or status.message)
