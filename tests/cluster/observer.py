"""Checks of a daemon by the API server's objects and audit log, independent of the daemon's own reports."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import pytest
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from devcluster.api import Json
from devcluster.audit import AuditEvent, AuditLog
from devcluster.plane import ControlPlane
from predicates.snapshot import DRAIN_TAINT
from rescheduler.draining.actions import ANNOTATION
from tests.cluster.daemon import ClusterQueries
from tests.cluster.waiting import repeating

#: Prefix of the daemon's user agent.
AGENT: Final = "spot-rescheduler/"

#: Longer than the time limit for binding a replacement pod.
TIMEOUT_SECONDS: Final = 100.0


@dataclass(frozen=True, slots=True)
class Marking:
    """A period in which a node had our taint or our annotation."""

    node: str
    since: datetime
    until: datetime | None  #: None if the node still has a mark

    @property
    def seconds(self) -> float:
        assert self.until is not None
        return (self.until - self.since).total_seconds()


class Observer(ClusterQueries):
    """Queries on the cluster and on the requests since this observer was created."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane)
        self.plane = plane
        self.audit = AuditLog(plane.layout.audit_log)

    # -- setup

    def start_on(self, node: str, *workloads: Json, pods: int) -> None:
        """Apply *workloads* while all nodes except *node* are cordoned, and wait until its *pods* are bound."""
        for name in self.node_names():
            self.cordon(name, off=name == node)
        before = len(self.bound_to(node))
        self.plane.apply(workloads)
        self.eventually(lambda: len(self.bound_to(node)) == before + pods, f"{pods} more pods on {node}")

    def open_all(self) -> None:
        """Uncordon all nodes."""
        for name in self.node_names():
            self.cordon(name, off=True)
        self.open_spot()

    def cordon(self, node: str, *, off: bool = False) -> None:
        self.plane.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None if off else True}})

    def node_names(self) -> list[str]:
        return [node["metadata"]["name"] for node in self.plane.api.items("/api/v1/nodes")]

    def bound_to(self, node: str) -> list[Json]:
        """Return the unfinished pods on *node*."""
        return [pod for pod in self.pods() if pod["spec"].get("nodeName") == node]

    def uids(self, app: str = "") -> set[str]:
        return {pod["metadata"]["uid"] for pod in self.pods(app)}

    # -- actions of the daemon

    def evictions(self, user: str = "") -> list[AuditEvent]:
        """Return the evictions by all daemons, or by the daemon that runs as *user*."""
        return self.audit.evictions(user=user, agent=AGENT)

    def evicted(self) -> Counter[str]:
        """Return the number of evicted pods of each owner `namespace/app`; app names must not contain dashes."""
        return Counter(f"{event.namespace}/{event.name.partition('-')[0]}" for event in self.evictions())

    def first_burst(self) -> int:
        """Return the number of evictions within one second after the first."""
        times = [event.received for event in self.evictions()]
        return sum(moment - min(times) < timedelta(seconds=1) for moment in times)

    def markings(self) -> list[Marking]:
        """Return the periods in which nodes had our marks, by start time."""
        return markings(self.audit.writes("nodes"))

    def messages(self, node: str, reason: str) -> list[str]:
        """Return the messages of our Kubernetes Events with *reason* about *node*."""
        return [
            event["message"]
            for event in self.plane.api.items("/api/v1/events")
            if (event["involvedObject"]["name"], event["reason"]) == (node, reason)
            and event["source"].get("component") == "rescheduler"
        ]

    # -- assertions

    def wait_told(self, node: str, reason: str, text: str) -> None:
        """Wait until one of our Kubernetes Events with *reason* about *node* contains *text*."""
        self.eventually(lambda: any(text in message for message in self.messages(node, reason)), f"{reason}: {text}")

    def eventually(
        self,
        predicate: Any,
        description: str,
        seconds: float = TIMEOUT_SECONDS,
        *,
        never: Callable[[], object] = lambda: None,
    ) -> Any:
        """Wait until *predicate* is true; fail the test as soon as *never* returns a true value."""

        def seen() -> Any:
            if harm := never():
                pytest.fail(f"while waiting for {description}: {harm!r}")
            return predicate()

        return super().eventually(seen, description, seconds)

    def stays(self, value: Callable[[], object], expected: object, seconds: float = 5) -> None:
        """Assert that *value* returns *expected* now and for *seconds*."""
        polling = Retrying(
            retry=retry_if_result(lambda seen: seen == expected), stop=stop_after_delay(seconds), wait=wait_fixed(0.1)
        )
        try:
            seen = polling(value)
        except RetryError:
            return
        pytest.fail(f"expected {expected!r} for {seconds:g} s, got {seen!r}")

    def wait_unmarked(self, seconds: float = TIMEOUT_SECONDS) -> None:
        """Wait until no node has our marks."""
        self.eventually(lambda: not self.marks(), "no node with our marks", seconds=seconds)

    @contextmanager
    def least_ready(self, app: str) -> Iterator[Callable[[], int]]:
        """Yield a function that returns the lowest number of Ready pods of *app* observed in the block so far."""
        least = len(ready(self.pods(app)))

        def look() -> None:
            nonlocal least
            least = min(least, len(ready(self.pods(app))))

        with repeating(look, every=0.05):
            yield lambda: least


def markings(writes: Iterable[AuditEvent]) -> list[Marking]:
    """Return the periods in which nodes had our marks by the successful *writes* to nodes, by start time."""
    open_since: dict[str, datetime] = {}
    done = []
    for event in writes:
        marked = event.verb != "delete" and is_marked(event.response_object or {})
        if marked:
            open_since.setdefault(event.name, event.at)
        elif event.name in open_since:
            done.append(Marking(event.name, open_since.pop(event.name), event.at))
    still = [Marking(name, since, None) for name, since in open_since.items()]
    return sorted([*done, *still], key=lambda marking: marking.since)


def ready(pods: list[Json]) -> list[Json]:
    return [
        pod
        for pod in pods
        if any(
            (condition["type"], condition["status"]) == ("Ready", "True")
            for condition in pod["status"].get("conditions", ())
        )
        and "deletionTimestamp" not in pod["metadata"]
    ]


def is_marked(node: Json) -> bool:
    """Return whether a Node has our taint or our annotation."""
    taints: list[Any] = node.get("spec", {}).get("taints") or []
    annotations: Json = node.get("metadata", {}).get("annotations") or {}
    return ANNOTATION in annotations or any(taint["key"] == DRAIN_TAINT.key for taint in taints)
