"""Whether a write may be sent: asked each time one is about to leave, and answered with the time that it has."""

import http
import re
from typing import Final, Protocol

from rescheduler.errors import NotLeading
from rescheduler.kube.answers import Answer

#: With less time than this a write is not sent: the API server counts a request's time in whole seconds.
LEAST_SECONDS: Final = 1.0

#: The denials of deploy/components/fencing and of the chart's policy; prefixes and suffixes of names are up to users.
_FENCED: Final = re.compile(r"ValidatingAdmissionPolicy '[^']*spot-rescheduler-fencing[^']*' .*denied request")

#: 422 is the denial where the policy's parameter, the Lease, is not there (yet).
_DENIALS: Final = frozenset({http.HTTPStatus.FORBIDDEN, http.HTTPStatus.UNPROCESSABLE_ENTITY})


class Guard(Protocol):
    """Permits writes. Asked by many threads."""

    def seconds_left(self) -> float:
        """The seconds within which a write that is sent now must have ended. Raises NotLeading: do not send it."""
        ...

    @property
    def fence_may_lag(self) -> bool:
        """Whether the API server's fencing policy may not have seen yet that we lead."""
        ...


class ReadOnly:
    """Permits no write: for dry runs."""

    fence_may_lag = False

    def seconds_left(self) -> float:
        raise NotLeading("a dry run writes nothing")


def denied_by_fencing(answer: Answer) -> bool:
    """Whether the fencing policy has refused a write: by what the API server knows, another pod leads."""
    return answer.code in _DENIALS and _FENCED.search(answer.status().message) is not None
