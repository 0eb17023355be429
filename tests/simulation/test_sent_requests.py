"""The promises about single requests are judged by what the daemon read and sent."""

import msgspec
import pytest

from predicates.snapshot import DRAIN_TAINT
from rescheduler.draining.actions import ANNOTATION, Intent, Step
from rescheduler.kube.client import MERGE_PATCH, Client
from rescheduler.simulation.engine import Process
from rescheduler.simulation.machines import Termination
from rescheduler.simulation.store import Json
from rescheduler.simulation.transport import PoolTransport, SimulatedSource
from tests.invariants.history import ObservedTermination
from tests.invariants.rules import Rules
from tests.simulation.observing import SimulatedWatchdog
from tests.simulation.sent_requests import SentRequests
from tests.simulation.worlds import START, Scene, node

RULES = Rules(look=2.0)
TAINT: Json = {"key": DRAIN_TAINT.key, "effect": "NoSchedule"}
OTHERS: Json = {"key": "example.com/other", "effect": "NoSchedule"}


def mark(step: Step = Step.DRAINING, identity: str = RULES.identity) -> Json:
    return {ANNOTATION: Intent("a_1", step, START, identity=identity).dump()}


class Requests:
    """A client that is judged as the daemon."""

    def __init__(self) -> None:
        self.here = Scene([node("od-1"), node("spot-1", spot=True)])
        self.store = self.here.world.store
        self.judge = SentRequests(self.here.world, RULES)
        process = Process(self.here.world.engine, "judged")
        pool = PoolTransport(self.here.world.engine, self.here.world.server, self.here.world.network, process)
        self._client = Client(SimulatedSource(pool), process.clock)

    def read(self, path: str, **query: str) -> None:
        self._client.request("read", "GET", path, query=query)

    def look(self) -> None:
        self.read("/api/v1/nodes/od-1")
        self.read("/api/v1/pods", fieldSelector="spec.nodeName=od-1,status.phase!=Failed")

    def patch(self, annotations: Json, taints: list[Json] | None = None) -> None:
        change: Json = {"metadata": {"annotations": annotations}}
        if taints is not None:
            change["spec"] = {"taints": taints}
        self._client.request("patch", "PATCH", "/api/v1/nodes/od-1", body=change, content_type=MERGE_PATCH)

    def evict(self, name: str) -> None:
        body: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": "default", "name": name}}
        self._client.request("evict", "POST", f"/api/v1/namespaces/default/pods/{name}/eviction", body=body)

    def order(self) -> None:
        self.judge.ordered(Termination(self.here.world.engine.now, "od-1", "machine", "daemon"))

    @property
    def broken(self) -> list[str]:
        return [text.partition("promise ")[2] for text in self.judge.broken([], [])]


def test_an_eviction_is_judged_by_the_pod_that_it_reaches() -> None:
    seen = Requests()
    watchdog = SimulatedWatchdog(seen.here.world, RULES)
    meta = {"namespace": "default", "name": "web-0"}
    for spec in ({"nodeName": "od-1"}, {}):
        pod = seen.store.create("pods", {"metadata": dict(meta), "spec": spec, "status": {"phase": "Pending"}})
        if spec:
            seen.store.delete("pods", "default/web-0")
    seen.evict("web-0")
    [evicted] = [write.uid for write in watchdog.history().writes if write.kind == "pods/eviction"]
    assert evicted == pod["metadata"]["uid"]


def test_a_drain_as_it_should_be() -> None:
    seen = Requests()
    seen.patch(mark(), [TAINT])
    seen.patch(mark(Step.REMOVING))
    seen.look()
    seen.order()
    assert seen.broken == []


def test_an_order_without_a_look_at_the_pods() -> None:
    seen = Requests()
    seen.patch(mark(), [TAINT])
    seen.look()
    seen.patch(mark(Step.REMOVING))
    seen.read("/api/v1/nodes/od-1")
    seen.order()
    assert [text for text in seen.broken if "pods were not read after the intent" in text]


def test_an_order_long_after_the_look() -> None:
    seen = Requests()
    seen.patch(mark(Step.REMOVING), [TAINT])
    seen.look()
    seen.here.run(20)
    seen.order()
    assert [text for text in seen.broken if "was not read right before" in text]


@pytest.mark.parametrize("restored", [True, False])
def test_an_order_for_another_node_of_the_same_name(*, restored: bool) -> None:
    seen = Requests()
    seen.patch(mark(Step.REMOVING), [TAINT])
    old = seen.store.get("nodes", "od-1")
    assert old is not None
    seen.store.delete("nodes", "od-1")
    seen.store.create("nodes", {**old, "metadata": {"name": "od-1", "annotations": mark() if restored else {}}})
    seen.look()
    seen.order()
    assert [text for text in seen.broken if "another Node of the same name" in text]


@pytest.mark.parametrize(
    ("before", "sent", "taints", "found"),
    [
        ({}, mark(), [TAINT], "changed taints of others"),
        ({}, mark(), [OTHERS, TAINT], ""),
        ({"example.com/a": "1"}, {"example.com/a": None}, None, "changed annotations of others"),
        ({"spot-rescheduler/do-not-drain": "true"}, {"spot-rescheduler/do-not-drain": None}, None, "people have set"),
        ({"spot-rescheduler/do-not-drain": "true"}, mark(), None, "although it is to be kept"),
        (mark(identity="other/other"), mark(), None, "the mark of another installation"),
        (mark(), {ANNOTATION: None}, None, ""),
    ],
)
def test_a_patch_changes_only_what_is_ours(before: Json, sent: Json, taints: list[Json] | None, found: str) -> None:
    seen = Requests()
    seen.store.patch("nodes", "od-1", {"metadata": {"annotations": before}, "spec": {"taints": [OTHERS]}})
    seen.patch(sent, taints)
    assert bool(seen.broken) == bool(found)
    assert all(found in text for text in seen.broken)


def test_the_last_look_bounds_what_the_daemon_did_not_know() -> None:
    """A termination is judged by the cluster as it was when the daemon looked."""
    at = START
    assert ObservedTermination(at, "m", "od-1", decrement=True).look(2.0) == 2.0
    order = msgspec.structs.replace(ObservedTermination(at, "m", "od-1", decrement=True), looked=at)
    assert order.look(2.0) == 0.0
