"""Write Kubernetes Events about nodes and pods."""

import contextlib
from collections.abc import Iterator

from rescheduler.clock import Clock
from rescheduler.kube.client import Client
from rescheduler.kube.correlation import Subject
from rescheduler.kube.recorder import COMPONENT, Recorder
from rescheduler.observe.events import InvolvedNode
from rescheduler.observe.kube_events import RecordEvent
from rescheduler.planning.outcome import PodRef


@contextlib.contextmanager
def recording(client: Client, clock: Clock, component: str = COMPONENT) -> Iterator[RecordEvent]:
    """Start a thread that writes Events as *component*. Queued Events are written when the block ends."""
    recorder = Recorder(client, clock, component)
    recorder.start()

    def record(subject: InvolvedNode | PodRef, reason: str, message: str, *, warning: bool = False) -> None:
        if isinstance(subject, PodRef):
            about = Subject("Pod", subject.name, subject.uid, subject.namespace)
        else:
            about = Subject("Node", subject.name, subject.uid)
        recorder.record(about, reason, message, "Warning" if warning else "Normal")

    try:
        yield record
    finally:
        recorder.close()
