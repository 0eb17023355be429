"""Write Kubernetes Events about nodes and pods."""

import contextlib
from collections.abc import Iterator

from rescheduler.clock import Clock
from rescheduler.kube.client import Client
from rescheduler.kube.correlation import Subject
from rescheduler.kube.recorder import COMPONENT, Recorder
from rescheduler.observe.events import InvolvedLease, InvolvedNode
from rescheduler.observe.kube_events import RecordEvent
from rescheduler.planning.outcome import PodRef


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
