"""Kubernetes Events: the same news once, then counted; never in anybody's way."""

import datetime as dt

import pytest

from rescheduler.kube.client import Client
from rescheduler.kube.correlation import BURST, DISTINCT, Bucket, Correlator, Create, News, Subject, Update
from rescheduler.kube.recorder import QUEUE_LENGTH, Recorder
from tests.kube.conftest import HastyClock, eventually
from tests.kube.edge import Edge, Reply, Stall, Step, status

NODE = Subject("Node", "node-1", "n1")
POD = Subject("Pod", "web-0", "u1", "ns")
AT = dt.datetime(2026, 5, 4, 3, 2, 1, tzinfo=dt.UTC)


def news(subject: Subject = NODE, reason: str = "DrainBlocked", message: str = "no") -> News:
    return News(subject, reason, message, "Normal", AT)


def test_the_same_news_is_one_event_that_is_counted_until_15_minutes_have_passed() -> None:
    correlator = Correlator()
    seen = []
    for now in (0.0, 10.0, 299.0, 300.0, 310.0, 600.0, 899.0, 900.0):
        seen.append(correlator.judge(news(), now))
        if seen[-1] == Create():
            correlator.made(news(), f"event-{now:.0f}")
    assert seen == [Create(), None, None, Update("event-0", 4), None, Update("event-0", 6), None, Create()]


DIFFERENT = {
    "another object": news(POD),
    "another reason": news(reason="NodeDrained"),
    "another node of that name": news(Subject("Node", "node-1", "n2")),
    "more serious": News(NODE, "DrainBlocked", "no", "Warning", AT),
    "another message": news(message="still no"),
}


@pytest.mark.parametrize("other", DIFFERENT.values(), ids=DIFFERENT)
def test_other_news_is_an_event_of_its_own(other: News) -> None:
    correlator = Correlator()
    assert correlator.judge(news(), 0.0) == Create()
    assert correlator.judge(other, 0.0) == Create()


def test_many_messages_of_one_reason_are_counted_on_the_last_event() -> None:
    correlator = Correlator()
    messages = [news(message=f"at {number}") for number in range(DISTINCT)]
    assert [correlator.judge(each, 0.0) for each in messages] == [Create()] * DISTINCT
    correlator.made(messages[-1], "last")
    assert correlator.judge(news(message="one more"), 1.0) is None
    assert correlator.judge(news(message="and another"), 301.0) == Update("last", 3)
    assert correlator.judge(news(message="and another"), 900.0) == Create()


def test_what_could_not_be_made_is_new_the_next_time() -> None:
    correlator = Correlator()
    correlator.judge(news(), 0.0)
    correlator.lost(news())
    assert correlator.judge(news(), 1.0) == Create()


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


def test_an_event_as_the_api_server_gets_it(edge: Edge, client: Client, clock: HastyClock) -> None:
    edge.on("POST", "/api/v1/namespaces/ns/events", Reply({}, 201))
    recorder = recording(client, clock)
    recorder.record(POD, "Rescheduler", "m" * 2000, "Warning")
    recorder.close(60.0)
    [body] = [one.body for one in edge.requests]
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
    """Six minutes pass between two looks."""

    seconds = 0.0

    def monotonic(self) -> float:
        self.seconds += 360.0
        return self.seconds


def test_a_repeated_event_is_patched_and_one_that_was_deleted_is_made_anew(edge: Edge, client: Client) -> None:
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
    assert [one.body["message"] for one in edge.seen("POST")] == ["first", "first"]


def test_a_write_that_fails_for_a_moment_is_repeated(edge: Edge, client: Client, clock: HastyClock) -> None:
    edge.on("POST", EVENTS, status(503), status(429, retryAfterSeconds=4), Reply({}, 201))
    recorder = recording(client, clock)
    recorder.record(NODE, "NodeDrained", "done")
    eventually(lambda: len(edge.requests) == 3)
    recorder.close(60.0)
    assert [seconds for seconds in clock.waits if seconds] == [1.0, 4.0]


HOPELESS: dict[str, Step] = {
    "forbidden": status(403, "events is forbidden"),
    "namespace gone": status(404, "events is forbidden"),
    "invalid": status(422, "events is forbidden"),
}


@pytest.mark.parametrize("step", HOPELESS.values(), ids=HOPELESS)
def test_events_that_cannot_be_written_are_told_once_in_the_log_and_never_to_the_caller(
    edge: Edge, client: Client, clock: HastyClock, caplog: pytest.LogCaptureFixture, step: Step
) -> None:
    edge.on("POST", EVENTS, step)
    recorder = recording(client, clock)
    for reason in ("One", "Two", "Three"):
        recorder.record(NODE, reason, "text")
    recorder.close(60.0)
    assert len(edge.requests) == 3
    [told] = [one.getMessage() for one in caplog.records]
    assert told.startswith("events cannot be written: create event: events is forbidden")


def test_a_hanging_server_holds_up_neither_the_caller_nor_the_end(
    edge: Edge, client: Client, clock: HastyClock, caplog: pytest.LogCaptureFixture
) -> None:
    edge.on("POST", EVENTS, Stall())
    recorder = recording(client, clock)
    for number in range(QUEUE_LENGTH + 50):
        recorder.record(NODE, f"Reason{number}", "text")
    recorder.close(seconds=0.05)
    recorder.record(NODE, "TooLate", "text")
    said = f"events: more than {QUEUE_LENGTH} wait to be written, some are dropped"
    assert [one.getMessage() for one in caplog.records] == [said]
