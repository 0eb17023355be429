"""Cache the credentials of requests, and read them again when they expire or are rejected."""

import dataclasses
import datetime as dt
import logging
import threading
from typing import Final

from rescheduler.clock import Clock
from rescheduler.errors import ReschedulerError
from rescheduler.kube.connection import Login, Source

#: Minimum interval between reads after rejections: an exec plugin may be slow or prompt a user.
RELOGIN_SECONDS: Final = 10.0

#: Credentials with an expiry are renewed this long before they expire.
_EARLY: Final = dt.timedelta(seconds=60)

log = logging.getLogger(__name__)


class Logins:
    """The current credentials of one source. Thread-safe."""

    def __init__(self, source: Source, clock: Clock) -> None:
        """Read the credentials; raises UsageError or Unauthorized."""
        self._source = source
        self._clock = clock
        self._lock = threading.Lock()
        self._login = source.login()
        self._read_at = clock.monotonic()

    @property
    def host(self) -> str:
        return self._login.host

    def current(self) -> Login:
        """Return the credentials. They are read again if they expire soon or their file may have been rotated."""
        with self._lock:
            login = self._login
            age = self._clock.monotonic() - self._read_at
            due = login.reread_after is not None and age >= login.reread_after
            ending = login.expires is not None and login.expires - _EARLY <= self._clock.now()
            return self._reread() if due or (ending and age >= RELOGIN_SECONDS) else login

    def after_refusal(self, refused: Login) -> Login:
        """Return credentials to use in place of *refused*, or *refused* itself if there are no newer ones."""
        with self._lock:
            if self._login is not refused:
                return self._login  # another thread has renewed them
            if self._clock.monotonic() - self._read_at < RELOGIN_SECONDS:
                return refused
            return self._reread()

    def _reread(self) -> Login:
        self._read_at = self._clock.monotonic()
        try:
            fresh = self._source.login()
        except ReschedulerError as error:
            log.warning("credentials cannot be renewed; keeping the old ones: %s", error)
            return self._login
        if fresh.endpoint == self._login.endpoint:
            fresh = dataclasses.replace(fresh, pool=self._login.pool)
        self._login = fresh
        return fresh
