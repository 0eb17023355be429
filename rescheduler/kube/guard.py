"""Guards decide right before each write whether it may be sent, and within which time it must complete."""

import http
import re
from typing import Final, Protocol

from rescheduler.errors import NotLeading
from rescheduler.kube.responses import ApiResponse

#: A write with less time than this is not sent: the API server's request timeout is in whole seconds.
LEAST_SECONDS: Final = 1.0

#: Denials of the policies in deploy/components/fencing and in the chart. Users may add prefixes and suffixes to names.
_FENCED: Final = re.compile(
    r"ValidatingAdmissionPolicy '[^']{0,253}spot-rescheduler-fencing[^']{0,253}' .{0,300}denied request"
)

#: The code is 422 if the policy's parameter, the Lease, does not exist.
_DENIALS: Final = frozenset({http.HTTPStatus.FORBIDDEN, http.HTTPStatus.UNPROCESSABLE_ENTITY})


class Guard(Protocol):
    """Permits or rejects writes. Thread-safe."""

    def seconds_left(self) -> float:
        """Return the seconds within which a write must complete. Raises NotLeading if it must not be sent."""
        ...

    @property
    def fence_may_lag(self) -> bool:
        """Whether the API server's fencing policy may still consider another replica the leader."""
        ...


class ReadOnly:
    """Rejects all writes, for dry runs."""

    fence_may_lag = False

    def seconds_left(self) -> float:
        raise NotLeading("a dry run writes nothing")


def denied_by_fencing(response: ApiResponse) -> bool:
    """Return whether the fencing policy denied a write because it considers another pod the leader."""
    return response.code in _DENIALS and _FENCED.search(response.status().message) is not None
