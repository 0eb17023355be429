"""Threads for requests and for Kubernetes Events, so that the loop does not block."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from rescheduler.clock import Clock
from rescheduler.kube.client import Client
from rescheduler.kube.recorder import COMPONENT, Recorder, Subject
from rescheduler.observe.events import InvolvedLease, InvolvedNode
from rescheduler.observe.kube_events import RecordEvent
from rescheduler.planning.outcome import PodRef

# Threads for requests, so that the loop does not block.

#: Maximum number of concurrent eviction requests.
EVICTIONS: Final = 16


@dataclass(frozen=True, slots=True)
class Threads:
    """The executors for requests."""

    evictions: Executor
    others: Executor  #: one thread, for all other requests


@contextlib.contextmanager
def running() -> Iterator[Threads]:
    """Run the threads within the block. At its end, queued requests are dropped.

    Requests in progress are completed: the Lease must not be released while a write may still be in flight.
    """
    evictions, others = ThreadPoolExecutor(EVICTIONS, "evict"), ThreadPoolExecutor(1, "write")
    try:
        yield Threads(evictions, others)
    finally:
        for wait in (False, True):  # first drop all queued requests, then wait for the requests in progress
            for pool in (others, evictions):
                pool.shutdown(wait=wait, cancel_futures=True)


@contextlib.contextmanager
def querying() -> Iterator[Executor]:
    """Run a thread for queries whose results are not awaited, not even at the end of the block."""
    pool = ThreadPoolExecutor(1, "query")
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


# Write Kubernetes Events about nodes and pods.


@contextlib.contextmanager
def recording(client: Client, clock: Clock, component: str = COMPONENT) -> Iterator[RecordEvent]:
    """Start a thread that writes Events as *component*. Queued Events are written when the block ends."""
    recorder = Recorder(client, clock, component)
    recorder.start()

    def record(
        subject: InvolvedNode | InvolvedLease | PodRef, reason: str, message: str, *, warning: bool = False
    ) -> None:
        recorder.record(_subject_of(subject), reason, message, "Warning" if warning else "Normal")

    try:
        yield record
    finally:
        recorder.close()


def _subject_of(subject: InvolvedNode | InvolvedLease | PodRef) -> Subject:
    match subject:
        case PodRef(namespace=namespace, name=name, uid=uid):
            return Subject("Pod", name, uid, namespace)
        case InvolvedLease(namespace, name, uid):
            return Subject("Lease", name, uid, namespace, "coordination.k8s.io/v1")
        case InvolvedNode(name, uid):
            return Subject("Node", name, uid)
