"""Room is made with placeholders: an autoscaler adds spot nodes for them, and then a node is drained."""

from datetime import datetime
from typing import Final

import pytest

from devcluster.api import Json
from devcluster.audit import AuditEvent
from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from devcluster.stages import TERMINATE_AFTER
from predicates.snapshot import ROOM_NAMESPACE
from tests.cluster.autoscaling import PODS, SETUP, SpotAutoscaler
from tests.cluster.daemon import NO_DELAY, Daemon
from tests.cluster.observer import Observer

ROOM: Final = ("--make-room=placeholders", NO_DELAY)
NODE: Final = "on-demand-1"
COUNT: Final = 4  #: pods on the on-demand node

#: Pods that take a while to terminate, so that a drain can be interrupted.
SLOW: Final = {TERMINATE_AFTER: "1500ms"}


@pytest.fixture
def autoscaler(cluster: ControlPlane) -> SpotAutoscaler:
    cluster.apply(SETUP)
    return SpotAutoscaler(cluster)


class RoomScene:
    """An on-demand node with pods of *web*, and a full spot node."""

    def __init__(self, cluster: ControlPlane, observer: Observer, **pods: object) -> None:
        self.cluster, self.observer = cluster, observer
        observer.nodes(1, 1)
        observer.start_on(NODE, deployment("web", COUNT, cpu="700m", **pods), pods=COUNT)
        cluster.apply([deployment("filler", 1, cpu="3500m", nodeName="spot-1")])
        observer.open_all()
        observer.running(COUNT + 1)
        self.before = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in observer.pods("web")}

    @property
    def placeholders(self) -> list[Json]:
        return self.cluster.api.items(PODS)

    def running_placeholders(self) -> int:
        return sum(pod["status"]["phase"] == "Running" for pod in self.placeholders)

    def moved(self) -> bool:
        """Return whether all pods of *web* are on nodes that the autoscaler added, and no placeholder is left."""
        nodes = [pod["spec"].get("nodeName", "") for pod in self.observer.pods("web")]
        return len(nodes) == COUNT and all(node.startswith("grown-") for node in nodes) and not self.placeholders

    def created(self) -> list[str]:
        """Return the names of all placeholders that were created."""
        return [event.name for event in self.writes("create")]

    def writes(self, verb: str) -> list[AuditEvent]:
        events = self.observer.audit.events()
        return [each for each in events if each.accepted and (each.kind, each.verb) == ("pods", verb) and _ours(each)]

    def slowest_binding(self) -> float:
        """Return the longest time in seconds from the creation of a pod of *web* until it was bound."""
        return max(seconds_until_bound(pod) for pod in self.observer.pods("web"))

    def finish(self) -> None:
        """Wait until all pods are moved, and check their moves."""
        self.observer.eventually(self.moved, "the pods on new spot nodes, and no placeholder")
        self.observer.running(COUNT + 1)
        self.observer.wait_unmarked()
        assert self.slowest_binding() < 5
        assert not self.observer.uids("web") & self.before.keys()


def _ours(event: AuditEvent) -> bool:
    return event.namespace == ROOM_NAMESPACE


def seconds_until_bound(pod: Json) -> float:
    """Return the time from the creation of *pod* until it was bound."""
    bound = next(entry for entry in pod["status"]["conditions"] if entry["type"] == "PodScheduled")
    return (_time(bound["lastTransitionTime"]) - _time(pod["metadata"]["creationTimestamp"])).total_seconds()


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_a_node_is_emptied_onto_new_spot_nodes(
    cluster: ControlPlane, observer: Observer, autoscaler: SpotAutoscaler
) -> None:
    scene = RoomScene(cluster, observer)
    with autoscaler.running(), Daemon(cluster, *ROOM):
        scene.finish()
        ends = {"SpotRoomOrdered", "NodeDrained", "SpotRoomEnded"}
        observer.eventually(lambda: observer.events(NODE) >= ends, "the events")
    assert autoscaler.nodes == ["grown-1"]
    assert sorted(scene.created()) == sorted(f"room-{uid}" for uid in scene.before)
    deletions = {event.name: event.received for event in scene.writes("delete")}
    evictions = {event.name: event.received for event in observer.evictions()}
    for uid, name in scene.before.items():
        assert deletions[f"room-{uid}"] < evictions[name]


def test_while_spot_stays_away_nothing_moves_and_no_placeholder_survives_the_timeout(
    cluster: ControlPlane, observer: Observer, autoscaler: SpotAutoscaler
) -> None:
    scene = RoomScene(cluster, observer)
    autoscaler.allowed = False
    with autoscaler.running(), Daemon(cluster, *ROOM, "--room-timeout=3s") as daemon:
        observer.eventually(lambda: len(scene.placeholders) == COUNT, "the placeholders")
        observer.eventually(lambda: not scene.placeholders, "the end of the placeholders", seconds=20)
        observer.eventually(lambda: "NoSpotCapacity" in observer.events(NODE), "the event")
        observer.eventually(lambda: daemon.logged("nothing is drained", reason="no-spot-capacity"), "the reason")
        observer.stays(lambda: (len(scene.created()), scene.placeholders), (COUNT, []), seconds=10)
    assert observer.uids("web") == scene.before.keys()
    assert observer.markings() == []


def test_after_a_kill_the_next_daemon_continues(
    cluster: ControlPlane, observer: Observer, autoscaler: SpotAutoscaler
) -> None:
    """Other moments are in `tests/housekeeping/test_placeholder_room.py`, where each round may be of a new daemon."""
    scene = RoomScene(cluster, observer, annotations=SLOW)
    with autoscaler.running():
        with Daemon(cluster, *ROOM) as killed:
            observer.eventually(
                lambda: len(observer.evictions()) > 1 and len(scene.placeholders) < COUNT - 1, "moved pods"
            )
            killed.kill()
        with Daemon(cluster, *ROOM):
            scene.finish()
    assert sorted(scene.created()) == sorted(f"room-{uid}" for uid in scene.before)


def test_the_reason_names_the_missing_priority_class(cluster: ControlPlane, observer: Observer) -> None:
    scene = RoomScene(cluster, observer)
    cluster.apply(SETUP[:1])
    with Daemon(cluster, *ROOM) as daemon:
        lines = observer.eventually(
            lambda: daemon.logged("nothing is drained", reason="no-spot-capacity"), "the reason", seconds=30
        )
    assert "no PriorityClass with name spot-rescheduler-room was found" in lines[0]["message"]
    assert "deploy/components/make-room contains the namespace, the PriorityClass" in lines[0]["message"]
    assert observer.uids("web") == scene.before.keys()
    assert scene.created() == []
