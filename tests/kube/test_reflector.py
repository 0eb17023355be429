"""Reflectors and the resulting snapshot, with a faulty API server."""

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from predicates.objects import Pod
from predicates.wire import Decoder, Interner
from rescheduler.errors import Expired, Forbidden, ReschedulerError, Unauthorized
from rescheduler.kube.client import Client
from rescheduler.kube.codec import JsonCodec, WatchedChange
from rescheduler.kube.lister import RESOURCES, Listing, Resource
from rescheduler.kube.reflector import Reflector
from rescheduler.kube.state import ClusterState, read_cluster
from tests.kube.conftest import HastyClock, eventually
from tests.kube.edge import ReceivedRequest, Reply, ResetReply, ScriptedApiServer, StallReply, Step, WatchReply, status

NAMESPACES = Resource("Namespace", "/api/v1/namespaces")
PODS = next(resource for resource in RESOURCES if resource.kind == "Pod")
DRIVERS = Resource("CSIDriver", "/apis/storage.k8s.io/v1/csidrivers", optional=True)
PATH = NAMESPACES.path


def namespace(name: str, version: str = "1") -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": version}}


def page(*names: str, version: str = "10", following: str = "") -> Reply:
    meta = {"resourceVersion": version} | ({"continue": following} if following else {})
    return Reply({"kind": "NamespaceList", "metadata": meta, "items": [namespace(name) for name in names]})


def event(kind: str, name: str, version: str) -> dict[str, Any]:
    return {"type": kind, "object": {"kind": "Namespace", **namespace(name, version)}}


def gone(message: str = "too old resource version") -> dict[str, Any]:
    return {"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "code": 410, "message": message}}


@contextmanager
def reading(client: Client, clock: HastyClock, *resources: Resource) -> Iterator[ClusterState]:
    state = ClusterState(client, clock, resources=resources or (NAMESPACES,), page_size=2)
    state.start()
    try:
        yield state
    finally:
        state.stop(60.0)


def names(state: ClusterState) -> set[str]:
    return set(state.snapshot().of("Namespace"))


def backoffs(clock: HastyClock) -> list[float]:
    """Return the waits after failures, without the wait for an absent kind."""
    return [seconds for seconds in clock.waits if 0.0 < seconds < 31]


def becomes(state: ClusterState, expected: set[str]) -> None:
    eventually(lambda: names(state) == expected)


def test_a_list_is_read_page_by_page(edge: ScriptedApiServer, client: Client, clock: HastyClock) -> None:
    edge.on("GET", PATH, page("a", "b", following="n1"), page("c", "d", following="n2"), page("e"))
    with reading(client, clock) as state:
        eventually(lambda: state.synced)
        becomes(state, {"a", "b", "c", "d", "e"})
    assert [request.query for request in edge.seen(path=PATH)] == [
        {"limit": "2"},
        {"limit": "2", "continue": "n1"},
        {"limit": "2", "continue": "n2"},
    ]


def test_an_expired_continue_token_restarts_the_list(
    edge: ScriptedApiServer, client: Client, clock: HastyClock
) -> None:
    edge.on("GET", PATH, page("old", following="n1"), status(410, "expired"), page("a"))
    with reading(client, clock) as state:
        becomes(state, {"a"})
    assert [request.query.get("continue") for request in edge.seen(path=PATH)] == [None, "n1", None]


def test_a_failed_page_is_retried_and_not_the_whole_list(
    edge: ScriptedApiServer, client: Client, clock: HastyClock
) -> None:
    edge.on("GET", PATH, page("a", following="n1"), status(429, retryAfterSeconds=3), status(500), page("b"))
    with reading(client, clock) as state:
        becomes(state, {"a", "b"})
    assert [request.query.get("continue") for request in edge.seen(path=PATH)] == [None, "n1", "n1", "n1"]
    assert backoffs(clock) == [3.0, 2.0]


def test_a_watch_starts_at_the_list_and_continues_where_the_last_one_ended(
    edge: ScriptedApiServer, client: Client, clock: HastyClock
) -> None:
    edge.on("GET", PATH, page("a", "b", version="10"))
    bookmark = {"type": "BOOKMARK", "object": {"kind": "Namespace", "metadata": {"resourceVersion": "40"}}}
    edge.on_watch(
        PATH,
        WatchReply((event("ADDED", "c", "11"), event("DELETED", "a", "12"))),
        WatchReply((bookmark,)),
        WatchReply(end="hang"),
    )
    with reading(client, clock) as state:
        becomes(state, {"b", "c"})
        eventually(lambda: len(edge.seen(watch=True)) == 3)
    assert [request.query["resourceVersion"] for request in edge.seen(watch=True)] == ["10", "12", "40"]
    assert len(edge.seen(path=PATH)) == 1
    assert {request.query["allowWatchBookmarks"] for request in edge.seen(watch=True)} == {"true"}


def test_nodes_that_were_tainted_and_deleted_since_the_last_snapshot_are_told_once(
    edge: ScriptedApiServer, client: Client, clock: HastyClock
) -> None:
    nodes = next(resource for resource in RESOURCES if resource.kind == "Node")
    tainted = namespace("a", "11") | {"spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]}}
    edge.on("GET", nodes.path, Reply(page("a", "b").body | {"kind": "NodeList"}))
    changes = ({"type": kind, "object": {"kind": "Node", **tainted}} for kind in ("MODIFIED", "DELETED"))
    edge.on_watch(nodes.path, WatchReply(tuple(changes), end="hang"))
    with reading(client, clock, nodes) as state:
        eventually(lambda: [node.name for node in state.snapshot().nodes] == ["b"])
        [departed] = state.take_departed()
        assert (departed.name, departed.spec.taints[0].key) == ("a", "x")
        assert state.take_departed() == ()


def test_a_preempted_pod_is_known_although_it_was_gone_before_the_next_snapshot(
    edge: ScriptedApiServer, client: Client, clock: HastyClock
) -> None:
    pods = next(resource for resource in RESOURCES if resource.kind == "Pod")
    reason = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    both = [{"metadata": {"name": name, "namespace": "team", "uid": name}, "spec": {}} for name in ("a", "b")]
    preempted = both[0] | {"spec": {"nodeName": "n"}, "status": {"conditions": [reason]}}
    edge.on("GET", pods.path, Reply(page().body | {"kind": "PodList", "items": both}))
    changes = ({"type": kind, "object": {"kind": "Pod", **preempted}} for kind in ("MODIFIED", "DELETED"))
    edge.on_watch(pods.path, WatchReply(tuple(changes), end="hang"))
    with reading(client, clock, pods) as state:
        eventually(lambda: [pod.name for pod in state.snapshot().pods.values()] == ["b"])
        assert [pod.name for pod in state.snapshot().preempted.values()] == ["a"]


EXPIRED: dict[str, Step] = {
    "as an event": WatchReply((event("ADDED", "b", "11"), gone())),
    "as a response": status(410, "too old resource version"),
}


@pytest.mark.parametrize("step", EXPIRED.values(), ids=EXPIRED)
def test_after_410_a_new_list_replaces_all_objects(
    edge: ScriptedApiServer, client: Client, clock: HastyClock, step: Step
) -> None:
    edge.on("GET", PATH, page("deleted-meanwhile", "a", version="10"), page("a", "new", version="50"))
    edge.on_watch(PATH, step, WatchReply(end="hang"))
    with reading(client, clock) as state:
        becomes(state, {"a", "new"})
        eventually(lambda: len(edge.seen(watch=True)) == 2)
    assert [request.query["resourceVersion"] for request in edge.seen(watch=True)] == ["10", "50"]
    assert state.errors == {}


def test_repeated_410_does_not_cause_a_hot_loop(edge: ScriptedApiServer, client: Client, clock: HastyClock) -> None:
    edge.on("GET", PATH, page("a"))
    edge.on_watch(PATH, status(410))
    with reading(client, clock) as state:
        eventually(lambda: len(edge.seen(watch=True)) >= 8)
        assert names(state) == {"a"}
    assert backoffs(clock)[:7] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0][: len(backoffs(clock))]
    assert len(backoffs(clock)) >= 6


BREAKS: dict[str, Step] = {
    "truncated chunk": WatchReply((event("ADDED", "b", "11"),), end="truncate"),
    "half a line": WatchReply((event("ADDED", "b", "11"), b'{"type": "ADDED", "obj'), end="close"),
    "not JSON": WatchReply((event("ADDED", "b", "11"), b"<html>\n"), end="hang"),
    "an unknown type": WatchReply((event("ADDED", "b", "11"), event("SURPRISE", "c", "12")), end="hang"),
    "an error other than 410": WatchReply(
        (
            event("ADDED", "b", "11"),
            {"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcd is away"}},
        ),
        end="hang",
    ),
}


@pytest.mark.parametrize("step", BREAKS.values(), ids=BREAKS)
def test_a_broken_watch_continues_from_the_last_event(
    edge: ScriptedApiServer, client: Client, clock: HastyClock, step: Step
) -> None:
    edge.on("GET", PATH, page("a", version="10"))
    edge.on_watch(PATH, step, WatchReply((event("ADDED", "c", "13"),), end="hang"))
    with reading(client, clock) as state:
        becomes(state, {"a", "b", "c"})
    assert [request.query["resourceVersion"] for request in edge.seen(watch=True)] == ["10", "11"]
    assert len(edge.seen(path=PATH)) == 1


def test_watches_that_keep_breaking_without_an_event_lead_to_a_new_list(
    edge: ScriptedApiServer, client: Client, clock: HastyClock
) -> None:
    edge.on("GET", PATH, page("a", version="10"), page("b", version="20"))
    edge.on_watch(PATH, *[WatchReply(end="reset")] * 3, WatchReply(end="hang"))
    with reading(client, clock) as state:
        becomes(state, {"b"})
        eventually(lambda: len(edge.seen(watch=True)) == 4)
    assert [request.query["resourceVersion"] for request in edge.seen(watch=True)] == ["10", "10", "10", "20"]


def test_a_temporary_outage_does_not_cause_a_new_list(
    edge: ScriptedApiServer, client: Client, clock: HastyClock
) -> None:
    edge.on("GET", PATH, page("a", version="10"))
    edge.on_watch(PATH, *[ResetReply()] * 6, status(503), WatchReply((event("ADDED", "b", "11"),), end="hang"))
    with reading(client, clock) as state:
        becomes(state, {"a", "b"})
    assert len(edge.seen(path=PATH)) == 1
    assert backoffs(clock)[:7] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


def test_a_silent_watch_is_closed_and_opened_again(edge: ScriptedApiServer, client: Client, clock: HastyClock) -> None:
    edge.on("GET", PATH, page("a", version="10"))
    edge.on_watch(PATH, StallReply(), WatchReply((event("ADDED", "b", "11"),), end="hang"))
    state = ClusterState(client, clock, resources=(NAMESPACES,))
    reader = JsonCodec("Namespace", Interner())
    reflector = Reflector(NAMESPACES, client, reader, state, clock, silence_seconds=0.05)
    reflector.start()
    becomes(state, {"a", "b"})
    reflector.stop()
    reflector.join(60.0)


class StandingClock(HastyClock):
    """A clock that stands still, so that every watch seems to end at once."""

    def monotonic(self) -> float:
        return 0.0


def test_a_server_that_ends_watches_at_once_does_not_cause_a_hot_loop(edge: ScriptedApiServer, client: Client) -> None:
    clock = StandingClock()
    edge.on("GET", PATH, page("a"))
    edge.on_watch(PATH, WatchReply())
    with reading(client, clock):
        eventually(lambda: len(edge.seen(watch=True)) >= 3)
    assert backoffs(clock)[:2] == [1.0, 2.0]


def test_an_optional_kind_that_is_not_served_counts_as_empty_and_is_logged_once(
    edge: ScriptedApiServer, client: Client, clock: HastyClock, caplog: pytest.LogCaptureFixture
) -> None:
    edge.on("GET", PATH, page("a"))
    edge.on("GET", DRIVERS.path, status(404, "the server could not find the requested resource"))
    with reading(client, clock, DRIVERS, NAMESPACES) as state:
        eventually(lambda: state.synced)
        eventually(lambda: len(edge.seen(path=DRIVERS.path)) >= 3)
        assert state.errors == {}
        assert set(state.ages()) == {"Namespace"}
    messages = [record.getMessage() for record in caplog.records if "csidrivers" in record.getMessage()]
    expected = (
        "csidrivers: not served, assuming that there are none: "
        "list csidrivers: the server could not find the requested resource (404)"
    )
    assert messages == [expected]
    assert 300.0 in clock.waits


def test_an_optional_kind_that_is_forbidden_is_missing_until_it_is_permitted(
    edge: ScriptedApiServer, client: Client, clock: HastyClock
) -> None:
    granted = threading.Event()

    def answer(_: ReceivedRequest) -> Reply:
        return page(version="5") if granted.is_set() else status(403, "csidrivers is forbidden")

    edge.on("GET", PATH, page("a"))
    edge.on("GET", DRIVERS.path, answer)
    with reading(client, clock, DRIVERS, NAMESPACES) as state:
        eventually(lambda: state.missing == ("CSIDriver",) and state.errors)
        assert not state.synced
        assert {kind: str(error) for kind, error in state.errors.items()} == {
            "CSIDriver": "list csidrivers: csidrivers is forbidden (403)"
        }
        granted.set()
        eventually(lambda: state.synced and not state.errors)


def test_an_optional_kind_is_missing_until_it_is_known_not_to_be_served(
    edge: ScriptedApiServer, client: Client, clock: HastyClock
) -> None:
    known_absent = threading.Event()

    def answer(_: ReceivedRequest) -> Reply:
        return status(404, "not found") if known_absent.is_set() else status(500, "not yet")

    edge.on("GET", PATH, page("a"))
    edge.on("GET", DRIVERS.path, answer)
    with reading(client, clock, DRIVERS, NAMESPACES) as state:
        eventually(lambda: state.errors)
        assert not state.synced
        known_absent.set()
        eventually(lambda: state.synced and not state.errors)


def test_an_optional_kind_that_was_read_once_is_kept_when_it_is_forbidden_later(
    edge: ScriptedApiServer, client: Client, clock: HastyClock
) -> None:
    driver = {"metadata": {"name": "ebs", "resourceVersion": "1"}}
    edge.on("GET", DRIVERS.path, Reply({"metadata": {"resourceVersion": "5"}, "items": [driver]}))
    edge.on_watch(DRIVERS.path, status(403, "no more"))
    with reading(client, clock, DRIVERS) as state:
        eventually(lambda: state.errors)
        assert str(state.errors["CSIDriver"]) == "watch csidrivers: no more (403)"
        assert set(state.snapshot().of("CSIDriver")) == {"ebs"}


def test_a_required_kind_that_is_forbidden_is_never_synced_and_has_an_error(
    edge: ScriptedApiServer, client: Client, clock: HastyClock
) -> None:
    edge.on("GET", PATH, status(403, "namespaces is forbidden"))
    with reading(client, clock) as state:
        eventually(lambda: state.errors)
        assert not state.synced
        assert state.missing == ("Namespace",)
        assert str(state.errors["Namespace"]) == "list namespaces: namespaces is forbidden (403)"


def test_an_expired_token_is_logged_in_one_line_and_retried(
    edge: ScriptedApiServer, client: Client, clock: HastyClock, caplog: pytest.LogCaptureFixture
) -> None:
    edge.on("GET", PATH, *[status(401)] * 5, page("a"))
    with reading(client, clock) as state:
        becomes(state, {"a"})
        eventually(lambda: not state.errors)
    messages = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    refused = "the credentials were rejected; the token may have expired (401)"
    assert messages == [f"cannot read Namespace, retrying: list namespaces: {refused}"]


def test_each_missing_permission_is_logged_at_once_and_only_once(
    edge: ScriptedApiServer, client: Client, clock: HastyClock, caplog: pytest.LogCaptureFixture
) -> None:
    edge.on("GET", PATH, *[status(403, "namespaces is forbidden")] * 2, page("a"))
    edge.on("GET", DRIVERS.path, *[status(403, "csidrivers is forbidden")] * 2, page())
    with reading(client, clock, NAMESPACES, DRIVERS) as state:
        becomes(state, {"a"})
        eventually(lambda: state.synced and not state.errors)
    messages = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert sorted(messages) == [
        "cannot read CSIDriver, retrying: list csidrivers: csidrivers is forbidden (403)",
        "cannot read Namespace, retrying: list namespaces: namespaces is forbidden (403)",
    ]


BAD_NODE = {"metadata": {"name": "bad", "resourceVersion": "3"}, "spec": {"taints": "none"}}
NODES = Resource("Node", "/api/v1/nodes")


def test_an_object_that_cannot_be_decoded_is_skipped_and_logged(
    edge: ScriptedApiServer, client: Client, clock: HastyClock
) -> None:
    good = {"metadata": {"name": "good", "resourceVersion": "1"}}
    mended = {"metadata": {"name": "bad", "resourceVersion": "6"}}
    seen = {version: threading.Event() for version in ("listed", "mended")}

    def changes() -> Iterator[Any]:
        for before, then in zip(seen.values(), (mended, BAD_NODE), strict=True):
            assert before.wait(60)
            yield {"type": "MODIFIED", "object": then}

    def becomes_readable(*expected: str) -> None:
        eventually(lambda: sorted(state.snapshot().nodes.row) == sorted(expected))
        eventually(lambda: list(state.unreadable) == [("Node", "bad")] * ("bad" not in expected))

    edge.on("GET", NODES.path, Reply({"metadata": {"resourceVersion": "5"}, "items": [BAD_NODE, good]}))
    edge.on_watch(NODES.path, WatchReply(changes(), end="hang"))
    with reading(client, clock, NODES) as state:
        becomes_readable("good")
        seen["listed"].set()
        becomes_readable("good", "bad")
        seen["mended"].set()
        becomes_readable("good")
        assert "taints" in state.unreadable["Node", "bad"].why
        assert [item.key for item in state.snapshot().unreadable] == ["bad"]


class SteppedClock(HastyClock):
    """A clock that the test advances."""

    at = 1000.0

    def monotonic(self) -> float:
        return self.at


def readiness(name: str, since: int | None, uid: str = "") -> dict[str, Any]:
    """Return a pod that is Ready *since* a second; at an unknown time if it is 0, not at all if it is None."""
    ready = {"status": str(since is not None)} | (
        {"lastTransitionTime": f"2026-01-01T12:00:0{since}Z"} if since else {}
    )
    meta = {"name": name, "namespace": "team", "uid": uid or name}
    return {"metadata": meta, "spec": {"nodeName": "n"}, "status": {"conditions": [{"type": "Ready", **ready}]}}


def test_the_moment_at_which_a_pod_was_seen_to_become_ready(edge: ScriptedApiServer, client: Client) -> None:
    """It is known for pods that were not Ready in the first list, and for each new state of the others."""
    clock, lines, of = SteppedClock(), WatchScript(), readiness

    def watched(kind: str, manifest: dict[str, Any]) -> None:
        last = manifest["metadata"] | {"resourceVersion": str(int(clock.at))}
        clock.at += 10
        lines.send({"type": kind, "object": {"kind": "Pod", **manifest, "metadata": last}})
        eventually(lambda: state.snapshot().watched_to["Pod"] == last["resourceVersion"])

    def seen(manifest: dict[str, Any]) -> float | None:
        decoded = Decoder(Interner()).decode("Pod", msgspec.json.encode(manifest))
        assert isinstance(decoded, Pod)
        return state.became_ready(decoded)

    edge.on("GET", PODS.path, Reply(page().body | {"kind": "PodList", "items": [of("a", 1), of("b", None)]}))
    edge.on_watch(PODS.path, WatchReply(lines, end="hang"))
    with reading(client, clock, PODS) as state:
        eventually(lambda: len(state.snapshot().pods) == 2)
        assert seen(of("a", 1)) is None
        watched("MODIFIED", of("b", 2))
        watched("ADDED", of("c", 3))
        assert (seen(of("b", 2)), seen(of("c", 3))) == (1010.0, 1020.0)
        watched("MODIFIED", of("a", 4))  # a container was restarted
        watched("MODIFIED", of("b", None))
        assert seen(of("a", 4)) == 1030.0
        watched("DELETED", of("c", 3))
        watched("ADDED", of("c", 3, uid="another"))
        assert seen(of("c", 3, uid="another")) == 1060.0
        watched("MODIFIED", of("b", 0))  # its condition has no time
        assert seen(of("b", 0)) == 1070.0
        # What another client sees before this one: now.
        assert [seen(each) for each in (of("b", 5), of("c", 3), of("d", 3))] == [1070.0] * 3
        lines.end()


def test_pods_that_became_ready_before_the_first_snapshot_were_not_ready_in_the_first_list(
    edge: ScriptedApiServer, client: Client
) -> None:
    """Nothing asks for the snapshot as long as another kind cannot be read."""
    clock, lines = SteppedClock(), WatchScript()
    edge.on(
        "GET", PODS.path, Reply(page().body | {"kind": "PodList", "items": [readiness("a", 1), readiness("b", None)]})
    )
    edge.on_watch(PODS.path, WatchReply(lines, end="hang"))
    with reading(client, clock, PODS) as state:
        eventually(lambda: state.synced)
        later = readiness("b", 2)
        lines.send({"type": "MODIFIED", "object": {"kind": "Pod", **later}})
        clock.at += 10
        lines.send({"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": "30"}}})
        eventually(lambda: state.ages() == {"Pod": 0.0})
        a, b = (state.snapshot().pods[f"team/{name}"] for name in "ab")
        assert (state.became_ready(a), state.became_ready(b)) == (None, 1010.0)
        lines.end()


def bookmark(version: str) -> dict[str, Any]:
    return {"type": "BOOKMARK", "object": {"kind": "Namespace", "metadata": {"resourceVersion": version}}}


class WatchScript:
    """The lines of a watch; the test decides when each one is sent."""

    def __init__(self) -> None:
        self._lines: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def __iter__(self) -> Iterator[Any]:
        return iter(lambda: self._lines.get(timeout=60), None)

    def send(self, line: Any) -> None:
        self._lines.put(line)

    def end(self) -> None:
        self._lines.put(None)


def test_the_age_of_a_kind_is_that_of_its_last_list_event_or_bookmark(edge: ScriptedApiServer, client: Client) -> None:
    clock, busy = SteppedClock(), WatchScript()
    edge.on("GET", PATH, page("a"))
    edge.on("GET", NODES.path, Reply({"metadata": {"resourceVersion": "5"}, "items": []}))
    edge.on_watch(PATH, WatchReply(busy, end="hang"))
    with reading(client, clock, NODES, NAMESPACES) as state:
        eventually(lambda: len(edge.seen(watch=True)) == 2)
        assert state.ages() == {"Node": 0.0, "Namespace": 0.0}
        clock.at += 60
        assert state.ages() == {"Node": 60.0, "Namespace": 60.0}
        busy.send(event("ADDED", "b", "11"))
        eventually(lambda: state.ages() == {"Node": 60.0, "Namespace": 0.0})
        assert names(state) == {"a", "b"}
        clock.at += 100
        busy.send(bookmark("40"))
        eventually(lambda: state.ages() == {"Node": 160.0, "Namespace": 0.0})
        busy.end()


ENDS_WITHOUT_BOOKMARKS: dict[str, tuple[float, tuple[str, ...], int]] = {
    "nothing for longer than the bookmark interval": (89.0, (), 2),
    "a bookmark": (89.0, ("40",), 1),
    "nothing, and the server ended it early": (30.0, (), 1),
}


@pytest.mark.parametrize(("seconds", "bookmarks", "lists"), ENDS_WITHOUT_BOOKMARKS.values(), ids=ENDS_WITHOUT_BOOKMARKS)
def test_a_watch_without_bookmarks_is_followed_by_a_list(
    edge: ScriptedApiServer, client: Client, seconds: float, bookmarks: tuple[str, ...], lists: int
) -> None:
    clock, script = SteppedClock(), WatchScript()
    edge.on("GET", PATH, page("a", version="10"))
    edge.on_watch(PATH, WatchReply(script), WatchReply(end="hang"))
    with reading(client, clock):
        eventually(lambda: len(edge.seen(watch=True)) == 1)
        clock.at += seconds
        for version in bookmarks:
            script.send(bookmark(version))
        script.end()
        eventually(lambda: len(edge.seen(watch=True)) == 2)
    assert len(edge.seen(path=PATH)) == lists


@pytest.mark.parametrize("proven_by", ["a bookmark", "the end of the watch"])
def test_lists_after_broken_watches_do_not_reset_the_age_of_a_kind(
    edge: ScriptedApiServer, client: Client, proven_by: str
) -> None:
    clock, first, second = SteppedClock(), WatchScript(), WatchScript()
    edge.on("GET", PATH, page("a", version="10"), page("b", version="20"))
    edge.on_watch(PATH, WatchReply(first, end="reset"), WatchReply(second), WatchReply(end="hang"))
    with reading(client, clock) as state:
        eventually(lambda: len(edge.seen(watch=True)) == 1)
        clock.at += 160
        assert state.ages() == {"Namespace": 160.0}
        first.end()
        becomes(state, {"b"})
        eventually(lambda: len(edge.seen(watch=True)) == 2)
        assert state.ages() == {"Namespace": 160.0}
        if proven_by == "a bookmark":
            second.send(bookmark("40"))
        else:
            clock.at += 30
            second.end()
        eventually(lambda: state.ages() == {"Namespace": 0.0})
        second.end()


def test_reading_once_returns_a_complete_snapshot_and_reports_progress(
    edge: ScriptedApiServer, client: Client, clock: HastyClock
) -> None:
    edge.on("GET", PATH, page("a", "b", following="n1"), page("c"))
    edge.on("GET", DRIVERS.path, status(404))
    progress: list[tuple[str, int]] = []
    warned: list[str] = []
    snapshot = read_cluster(
        client,
        clock,
        resources=(DRIVERS, NAMESPACES),
        progress=lambda kind, count: progress.append((kind, count)),
        warn=warned.append,
    )
    assert set(snapshot.of("Namespace")) == {"a", "b", "c"}
    assert snapshot.unreadable == ()
    assert progress == [("namespaces", 2), ("namespaces", 3)]
    assert warned == []


def test_reading_once_warns_about_assumptions_if_a_right_is_missing(
    edge: ScriptedApiServer, client: Client, clock: HastyClock
) -> None:
    edge.on("GET", PATH, page("a"))
    edge.on("GET", DRIVERS.path, status(403, "csidrivers is forbidden"))
    warned: list[str] = []
    snapshot = read_cluster(client, clock, resources=(DRIVERS, NAMESPACES), warn=warned.append)
    assert set(snapshot.of("Namespace")) == {"a"}
    assert warned == [
        "list csidrivers: csidrivers is forbidden (403); planning assumes that there are no csidrivers",
    ]
    with pytest.raises(Forbidden):
        read_cluster(client, clock, resources=(DRIVERS, NAMESPACES))


def test_reading_once_reports_undecodable_objects(edge: ScriptedApiServer, client: Client, clock: HastyClock) -> None:
    broken = {"metadata": {"name": "broken", "labels": 7}}
    edge.on("GET", PATH, Reply({"metadata": {}, "items": [broken, {"metadata": {"name": "a"}}]}))
    snapshot = read_cluster(client, clock, resources=(NAMESPACES,))
    assert list(snapshot.of("Namespace")) == ["a"]
    assert [(item.kind, item.key, item.node) for item in snapshot.unreadable] == [("Namespace", "broken", None)]


class BuggySink:
    """A sink whose methods raise unexpected exceptions."""

    def __init__(self) -> None:
        self.errors: list[ReschedulerError | None] = []

    def listed(self, kind: str, listing: Listing) -> None:
        raise ZeroDivisionError(f"{len(listing.objects)} {kind}")

    def changed(self, kind: str, change: WatchedChange) -> None:
        raise AssertionError(kind, change)

    def failing(self, kind: str, error: ReschedulerError | None) -> None:
        assert kind == "Namespace"
        self.errors.append(error)


def test_an_internal_error_is_reported_and_does_not_end_the_thread(
    edge: ScriptedApiServer, client: Client, clock: HastyClock
) -> None:
    edge.on("GET", PATH, page("a"))
    sink = BuggySink()
    reflector = Reflector(NAMESPACES, client, JsonCodec("Namespace", Interner()), sink, clock)
    reflector.start()
    eventually(lambda: len(sink.errors) >= 3)
    reflector.stop()
    reflector.join(60.0)
    assert str(sink.errors[0]) == "read namespaces: ZeroDivisionError: 1 Namespace"
    assert backoffs(clock)[:2] == [1.0, 2.0]


READ_ONCE: dict[str, tuple[tuple[Step, ...], type[Exception], str]] = {
    "expired token": ((status(401),), Unauthorized, "credentials were rejected"),
    "forbidden": ((status(403, "no"),), Unauthorized, "list namespaces: no"),
    "lists that always expire": ((page("a", following="n"), status(410, "gone")) * 3, Expired, "gone"),
}


@pytest.mark.parametrize(("steps", "kind", "text"), READ_ONCE.values(), ids=READ_ONCE)
def test_reading_once_fails_at_once_and_clearly(
    edge: ScriptedApiServer,
    client: Client,
    clock: HastyClock,
    steps: tuple[Step, ...],
    kind: type[Exception],
    text: str,
) -> None:
    edge.on("GET", PATH, *steps)
    with pytest.raises(kind, match=text):
        read_cluster(client, clock, resources=(NAMESPACES,))
