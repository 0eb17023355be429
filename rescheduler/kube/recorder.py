"""Kubernetes Events, written by a thread of their own: never in the way of what they tell about.

They are core/v1 Events, as the original's: the API server keeps both forms as one, but only core/v1 lets a
repeated Event be counted by a PATCH that every ``kubectl get events`` and ``describe`` shows, and carries the
component name ``rescheduler`` that people's filters know.
"""

import logging
import queue
import socket
import threading
import uuid
from typing import Any, Final
from urllib.parse import quote

from rescheduler.clock import Clock
from rescheduler.errors import NotFound, ReschedulerError, Retryable
from rescheduler.kube.backoff import delay
from rescheduler.kube.client import MERGE_PATCH, Client
from rescheduler.kube.correlation import Bucket, Correlator, Create, News, Severity, Subject, Update

#: Who tells: the original's name.
COMPONENT: Final = "rescheduler"

#: News that wait; more are dropped, and the log says so.
QUEUE_LENGTH: Final = 1000

_ATTEMPTS: Final = 3
_LONGEST_MESSAGE: Final = 1024  #: characters; the API server's limit
_LONGEST_NAME: Final = 253

log = logging.getLogger(__name__)


class Recorder:
    """:meth:`record` may be called by any thread; it returns at once and raises nothing."""

    def __init__(self, client: Client, clock: Clock, component: str = COMPONENT) -> None:
        self._component = component
        self._client = client
        self._clock = clock
        self._queue: queue.Queue[News | None] = queue.Queue(QUEUE_LENGTH)
        self._correlator = Correlator()
        self._bucket = Bucket()
        self._host = socket.gethostname()
        self._closing = threading.Event()
        self._failing = False
        self._dropping = False
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def record(self, subject: Subject, reason: str, message: str, severity: Severity = "Normal") -> None:
        """Tell about *subject*; dropped when too much waits already."""
        if self._closing.is_set():
            return
        try:
            self._queue.put_nowait(News(subject, reason, message, severity, self._clock.now()))
        except queue.Full:
            if not self._dropping:
                log.warning("events: more than %d wait to be written, some are dropped", QUEUE_LENGTH)
            self._dropping = True

    def close(self, seconds: float = 5.0) -> None:
        """Write what waits, for at most *seconds*; what is left then is dropped."""
        self._closing.set()
        try:
            self._queue.put(None, timeout=seconds)
        except queue.Full:
            return
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        while (news := self._queue.get()) is not None:
            self._dropping = self._dropping and not self._queue.empty()
            match self._correlator.judge(news, self._clock.monotonic()):
                case Create():
                    self._write(news, None)
                case Update() as update:
                    self._write(news, update)
                case None:
                    pass

    def _write(self, news: News, update: Update | None) -> None:
        """Write one Event, and again a few times where that may help."""
        self._clock.wait(self._bucket.take(self._clock.monotonic()), self._closing)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._send(news, update)
            except Retryable as error:
                if attempt < _ATTEMPTS and not self._closing.is_set():
                    self._clock.wait(delay(attempt, error.retry_after), self._closing)
                    continue
                self._lost(news, error)
            except NotFound as error:  # Events live for an hour; begin a new one
                if update is None:
                    self._lost(news, error)
                    return
                update = None
                continue
            except ReschedulerError as error:
                self._lost(news, error)
            else:
                self._failing = False
            return

    def _send(self, news: News, update: Update | None) -> None:
        namespace = news.subject.namespace or "default"  # where Events of cluster-wide objects live
        collection = f"/api/v1/namespaces/{quote(namespace, safe='')}/events"
        if update is not None:
            path = f"{collection}/{quote(update.name, safe='')}"
            self._client.request("patch event", "PATCH", path, body=_again(news, update), content_type=MERGE_PATCH)
            return
        event = _event(news, namespace, self._component, self._host)
        self._client.request("create event", "POST", collection, body=event)
        self._correlator.made(news, event["metadata"]["name"])

    def _lost(self, news: News, error: ReschedulerError) -> None:
        self._correlator.lost(news)
        if not self._failing:
            log.warning("events cannot be written: %s", error)
        self._failing = True


def _event(news: News, namespace: str, component: str, host: str) -> dict[str, Any]:
    subject = news.subject
    told = news.at.strftime("%Y-%m-%dT%H:%M:%SZ")
    suffix = uuid.uuid4().hex[:16]
    about = {
        "apiVersion": subject.api_version,
        "kind": subject.kind,
        "namespace": subject.namespace,
        "name": subject.name,
        "uid": subject.uid,
    }
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "namespace": namespace,
            "name": f"{subject.name[: _LONGEST_NAME - len(suffix) - 1]}.{suffix}",
        },
        "involvedObject": {name: text for name, text in about.items() if text},
        "reason": news.reason,
        "message": news.message[:_LONGEST_MESSAGE],
        "type": news.severity,
        "source": {"component": component, "host": host},
        "reportingComponent": component,
        "reportingInstance": host,
        "firstTimestamp": told,
        "lastTimestamp": told,
        "count": 1,
    }


def _again(news: News, update: Update) -> dict[str, Any]:
    return {
        "count": update.count,
        "lastTimestamp": news.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "message": news.message[:_LONGEST_MESSAGE],
    }
