"""The version of the API server, which tells the version of the cluster's scheduler."""

import logging
from typing import Final

import msgspec

from predicates.scheduler import Scheduler
from rescheduler.clock import Clock
from rescheduler.errors import Forbidden, NotFound, ReschedulerError
from rescheduler.kube.client import Client
from rescheduler.settings import Scheduling

#: Seconds until the version is read again: a control plane can be upgraded while the daemon runs.
_REREAD_SECONDS: Final = 300.0
_READ_SECONDS: Final = 5.0

log = logging.getLogger(__name__)


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


def server_version(client: Client) -> str:
    """Return the version of the API server, such as ``v1.36.3``, or "" if it may not be read or has another form.

    Raises the errors of requests.
    """
    try:
        answer = client.request("get version", "GET", "/version", read_seconds=_READ_SECONDS)
    except (Forbidden, NotFound):
        return ""
    try:
        return msgspec.json.decode(answer.body, type=_Version).git_version
    except msgspec.MsgspecError:
        return ""


class SchedulerWatch:
    """The rules of the cluster's scheduler, which can change while the program runs. Not thread-safe."""

    def __init__(self, client: Client, clock: Clock, scheduling: Scheduling) -> None:
        self._client = client
        self._clock = clock
        self._scheduling = scheduling
        self._server = ""
        self._next = 0.0
        self._noted: set[str] = set()
        for note in scheduling.notes:
            self._note(note)

    def current(self) -> Scheduler:
        """Return the rules by the version of the API server, which is read at most every few minutes.

        If it cannot be read, the last known version applies.
        """
        if self._clock.monotonic() >= self._next:
            self._next = self._clock.monotonic() + _REREAD_SECONDS
            try:
                self._server = server_version(self._client) or self._server
            except ReschedulerError as error:
                self._note(f"the version of the API server cannot be read: {error}")
            if (assumption := self._scheduling.assumption(self._server)) is not None:
                self._note(assumption)
        return self._scheduling.scheduler(self._server)

    def _note(self, text: str) -> None:
        """Log *text* unless it was logged before."""
        if text not in self._noted:
            self._noted.add(text)
            log.warning("%s", text)
