"""Kubernetes Events: deduplicated and counted, without blocking the caller."""

import datetime as dt

import pytest

from rescheduler.kube.client import Client
from rescheduler.kube.recorder import (
    BURST,
    DISTINCT,
    IDLE_SECONDS,
    QUEUE_LENGTH,
    Bucket,
    Correlator,
    CreateEvent,
    Occurrence,
    Recorder,
    Subject,
    UpdateEvent,
)
from tests.kube.conftest import HastyClock, eventually
from tests.kube.edge import Reply, ScriptedApiServer, StallReply, Step, status

NODE = Subject("Node", "node-1", "n1")
POD = Subject("Pod", "web-0", "u1", "ns")
AT = dt.datetime(2026, 5, 4, 3, 2, 1, tzinfo=dt.UTC)


def news(subject: Subject = NODE, reason: str = "DrainBlocked", message: str = "no") -> Occurrence:
    return Occurrence(subject, reason, message, "Normal", AT)


def test_equal_occurrences_are_counted_on_one_event_for_15_minutes() -> None:
    correlator = Correlator()
    seen = []
    for now in (0.0, 10.0, 299.0, 300.0, 310.0, 600.0, 899.0, 900.0):
        seen.append(correlator.judge(news(), now))
        if seen[-1] == CreateEvent():
            correlator.created(news(), f"event-{now:.0f}")
    assert seen == [
        CreateEvent(),
        None,
        None,
        UpdateEvent("event-0", 4),
        None,
        UpdateEvent("event-0", 6),
        None,
        CreateEvent(),
    ]


DIFFERENT = {
    "another object": news(POD),
    "another reason": news(reason="NodeDrained"),
    "another node of that name": news(Subject("Node", "node-1", "n2")),
    "more serious": Occurrence(NODE, "DrainBlocked", "no", "Warning", AT),
    "another message": news(message="still no"),
}


@pytest.mark.parametrize("other", DIFFERENT.values(), ids=DIFFERENT)
def test_a_different_occurrence_is_a_new_event(other: Occurrence) -> None:
    correlator = Correlator()
    assert correlator.judge(news(), 0.0) == CreateEvent()
    assert correlator.judge(other, 0.0) == CreateEvent()


def test_many_messages_of_one_reason_are_counted_on_the_last_event() -> None:
    correlator = Correlator()
    messages = [news(message=f"at {number}") for number in range(DISTINCT)]
    assert [correlator.judge(each, 0.0) for each in messages] == [CreateEvent()] * DISTINCT
    correlator.created(messages[-1], "last")
    assert correlator.judge(news(message="one more"), 1.0) is None
    assert correlator.judge(news(message="and another"), 301.0) == UpdateEvent("last", 3)
    assert correlator.judge(news(message="and another"), 900.0) == CreateEvent()


def test_an_event_that_could_not_be_created_is_created_the_next_time() -> None:
    correlator = Correlator()
    correlator.judge(news(), 0.0)
    correlator.lost(news())
    assert correlator.judge(news(), 1.0) == CreateEvent()


def test_the_rate_after_the_burst_is_five_a_second() -> None:
    bucket = Bucket()
    assert [bucket.take(0.0) for _ in range(int(BURST))] == [0.0] * int(BURST)
    assert [bucket.take(0.0), bucket.take(0.0)] == [0.2, 0.4]
    assert bucket.take(10.0) == 0.0


EVENTS = "/api/v1/namespaces/default/events"


def recording(client: Client, clock: HastyClock) -> Recorder:
    recorder = Recorder(client, clock)
    recorder.start()
    return recorder


def test_an_event_is_sent_with_all_fields(edge: ScriptedApiServer, client: Client, clock: HastyClock) -> None:
    edge.on("POST", "/api/v1/namespaces/ns/events", Reply({}, 201))
    recorder = recording(client, clock)
    recorder.record(POD, "Rescheduler", "m" * 2000, "Warning")
    recorder.close(60.0)
    [body] = [request.body for request in edge.requests]
    assert body["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "ns",
        "name": "web-0",
        "uid": "u1",
    }
    assert body["metadata"]["namespace"] == "ns"
    assert body["metadata"]["name"].startswith("web-0.")
    assert (body["type"], body["reason"], body["message"]) == ("Warning", "Rescheduler", "m" * 1024)
    assert (body["source"]["component"], body["count"]) == ("rescheduler", 1)
    assert body["firstTimestamp"] == body["lastTimestamp"]


class MovingClock(HastyClock):
    """A clock that advances by six minutes at each call."""

    seconds = 0.0

    def monotonic(self) -> float:
        self.seconds += 360.0
        return self.seconds


def test_a_repeated_event_is_patched_and_a_deleted_one_is_created_again(
    edge: ScriptedApiServer, client: Client
) -> None:
    clock = MovingClock()
    edge.on("POST", EVENTS, Reply({}, 201))
    recorder = recording(client, clock)
    recorder.record(NODE, "DrainBlocked", "first")
    eventually(lambda: edge.seen("POST"))
    name = edge.seen("POST")[0].body["metadata"]["name"]
    edge.on("PATCH", f"{EVENTS}/{name}", status(404))
    recorder.record(NODE, "DrainBlocked", "first")
    recorder.close(60.0)
    [patched] = edge.seen("PATCH")
    assert (patched.body["count"], patched.body["message"]) == (2, "first")
    assert [request.body["message"] for request in edge.seen("POST")] == ["first", "first"]


def test_a_write_that_fails_temporarily_is_retried(edge: ScriptedApiServer, client: Client, clock: HastyClock) -> None:
    edge.on("POST", EVENTS, status(503), status(429, retryAfterSeconds=4), Reply({}, 201))
    recorder = recording(client, clock)
    recorder.record(NODE, "NodeDrained", "done")
    eventually(lambda: len(edge.requests) == 3)
    recorder.close(60.0)
    assert [seconds for seconds in clock.waits if 0 < seconds < IDLE_SECONDS] == [1.0, 4.0]


HOPELESS: dict[str, Step] = {
    "forbidden": status(403, "events is forbidden"),
    "namespace gone": status(404, "events is forbidden"),
    "invalid": status(422, "events is forbidden"),
}


@pytest.mark.parametrize("step", HOPELESS.values(), ids=HOPELESS)
def test_failures_to_write_events_are_logged_once_and_never_raised(
    edge: ScriptedApiServer, client: Client, clock: HastyClock, caplog: pytest.LogCaptureFixture, step: Step
) -> None:
    edge.on("POST", EVENTS, step)
    recorder = recording(client, clock)
    for reason in ("One", "Two", "Three"):
        recorder.record(NODE, reason, "text")
    recorder.close(60.0)
    assert len(edge.requests) == 3
    [message] = [record.getMessage() for record in caplog.records]
    assert message.startswith("events cannot be written: create event: events is forbidden")


def test_a_hanging_server_delays_neither_the_caller_nor_the_shutdown(
    edge: ScriptedApiServer, client: Client, clock: HastyClock, caplog: pytest.LogCaptureFixture
) -> None:
    edge.on("POST", EVENTS, StallReply())
    recorder = recording(client, clock)
    for number in range(QUEUE_LENGTH + 50):
        recorder.record(NODE, f"Reason{number}", "text")
    recorder.close(seconds=0.05)
    recorder.record(NODE, "TooLate", "text")
    message = f"events: more than {QUEUE_LENGTH} are queued, some are dropped"
    assert [record.getMessage() for record in caplog.records] == [message]
