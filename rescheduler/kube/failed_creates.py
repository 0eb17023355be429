"""Read Events about pods that a controller could not create. Only for messages, because Events may be missing."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote

from predicates.objects import ObjectMeta, Wire
from rescheduler.clock import Clock
from rescheduler.kube.client import Client
from rescheduler.kube.resources import Resource
from rescheduler.kube.structs import read_structs
from rescheduler.planning.timestamps import instant

#: Older Events are ignored.
EVENT_AGE: Final = timedelta(minutes=5)


class EventSeries(Wire, frozen=True):
    last_observed_time: str | None = None


class KubernetesEvent(Wire, frozen=True):
    metadata: ObjectMeta
    message: str | None = None
    event_time: str | None = None
    last_timestamp: str | None = None
    series: EventSeries | None = None

    @property
    def at(self) -> datetime | None:
        """The time of the last occurrence."""
        observed = self.series.last_observed_time if self.series else None
        return instant(observed or self.last_timestamp or self.event_time)


def latest_message(client: Client, clock: Clock, namespace: str, uids: Iterable[str]) -> str:
    """Return the message of the newest ``FailedCreate`` event about the objects *uids*, or "".

    Raises the errors of requests, and Forbidden if Events may not be listed.
    """
    since = clock.now() - EVENT_AGE
    latest, message = since, ""
    for uid in uids:
        fields = f"involvedObject.uid={uid},reason=FailedCreate"
        events = Resource("Event", f"/api/v1/namespaces/{quote(namespace, safe='')}/events", fields=fields)
        for event in read_structs(client, events, KubernetesEvent):
            if (at := event.at) is not None and at >= latest and event.message:
                latest, message = at, event.message
    return message
