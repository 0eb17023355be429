"""Annotations of the Lease: set by the commands, kept by the elector, and read by a daemon without an elector."""

from typing import Any

import pytest

from rescheduler.errors import Conflict, NotFound
from rescheduler.kube.client import Client
from rescheduler.kube.elector import Elector, identity
from rescheduler.kube.lease import ATTEMPTS, LeaseNotes, LeaseReader, LeaseStore
from tests.kube.conftest import HastyClock, eventually
from tests.kube.edge import ReceivedRequest, Reply, ScriptedApiServer, status

LEASES = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
PATH = f"{LEASES}/l"


class StoredLease:
    """A Lease with merge patches and optimistic concurrency; None while it does not exist."""

    def __init__(self, edge: ScriptedApiServer, **annotations: str) -> None:
        self.annotations: dict[str, str] | None = annotations or None
        self.spec: dict[str, Any] = {}
        self.version = 1
        self.conflicts = 0  # writes that another client overtakes
        edge.on("GET", PATH, self.get)
        edge.on("POST", LEASES, self.create)
        edge.on("PATCH", PATH, self.patch)

    def answer(self) -> Reply:
        metadata = {"resourceVersion": str(self.version), "uid": "u", "annotations": self.annotations}
        return Reply({"metadata": metadata, "spec": self.spec})

    def get(self, _: ReceivedRequest) -> Reply:
        return status(404) if self.annotations is None else self.answer()

    def create(self, request: ReceivedRequest) -> Reply:
        if self.annotations is not None:
            return status(409)
        self.annotations = request.body["metadata"].get("annotations", {})
        self.spec = request.body.get("spec", {})
        return self.answer()

    def patch(self, request: ReceivedRequest) -> Reply:
        if self.conflicts:
            self.conflicts -= 1
            self.version += 1
        if request.body["metadata"]["resourceVersion"] != str(self.version):
            return status(409)
        assert self.annotations is not None
        merged = {**self.annotations, **request.body["metadata"].get("annotations", {})}
        self.annotations = {key: text for key, text in merged.items() if text is not None}
        self.spec |= request.body.get("spec", {})
        self.version += 1
        return self.answer()


@pytest.fixture
def store(client: Client) -> LeaseStore:
    return LeaseStore(client, "ns", "l")


def test_a_missing_lease_is_not_created(edge: ScriptedApiServer, store: LeaseStore) -> None:
    lease = StoredLease(edge)
    with pytest.raises(NotFound, match=r"^Lease ns/l does not exist$"):
        store.annotate({"a": "1", "b": None})
    assert lease.annotations is None


def test_annotations_are_set_and_removed_and_others_stay(edge: ScriptedApiServer, store: LeaseStore) -> None:
    lease = StoredLease(edge, other="0", b="2")
    store.annotate({"a": "1", "b": None})
    assert lease.annotations == {"other": "0", "a": "1"}
    assert lease.spec == {}


def test_a_conflict_is_retried_a_few_times(edge: ScriptedApiServer, store: LeaseStore) -> None:
    lease = StoredLease(edge, other="0")
    lease.conflicts = ATTEMPTS - 1
    store.annotate({"a": "1"})
    assert lease.annotations == {"other": "0", "a": "1"}
    lease.conflicts = ATTEMPTS
    with pytest.raises(Conflict):
        store.annotate({"a": "2"})
    assert lease.annotations == {"other": "0", "a": "1"}


def annotated(store: LeaseStore, annotations: dict[str, str | None]) -> bool:
    """Return whether *annotations* were set. An elector with a hasty clock writes the Lease continuously."""
    try:
        store.annotate(annotations)
    except Conflict:
        return False
    return True


def test_the_elector_takes_a_lease_without_a_holder_and_keeps_its_annotations(
    edge: ScriptedApiServer, client: Client, store: LeaseStore, clock: HastyClock
) -> None:
    lease = StoredLease(edge, a="0")
    store.annotate({"a": "1"})
    elector = Elector(client, clock, "ns", "l", identity())
    elector.start()
    eventually(lambda: elector.leading)
    assert elector.notes == LeaseNotes("u", {"a": "1"})
    eventually(lambda: annotated(store, {"a": None, "b": "2"}))
    eventually(lambda: elector.notes == LeaseNotes("u", {"b": "2"}))
    elector.stop(60.0)
    assert lease.annotations == {"b": "2"}


def test_a_reader_follows_the_annotations(edge: ScriptedApiServer, client: Client, clock: HastyClock) -> None:
    lease = StoredLease(edge)
    reader = LeaseReader(client, clock, "ns", "l")
    assert reader.unread == "lease ns/l has not been read yet"
    reader.start()
    assert (reader.notes, reader.unread) == (LeaseNotes(), "")
    lease.annotations = {"a": "1"}
    eventually(lambda: reader.notes == LeaseNotes("u", {"a": "1"}))
    lease.annotations = None
    eventually(lambda: reader.notes == LeaseNotes())
    reader.stop()


def test_a_reader_keeps_the_last_annotations_while_the_lease_cannot_be_read(
    edge: ScriptedApiServer, client: Client, clock: HastyClock
) -> None:
    edge.on("GET", PATH, status(500, "first"), status(500, "second"))
    reader = LeaseReader(client, clock, "ns", "l")
    reader.start()
    assert reader.unread == "get lease ns/l: first (500)"
    eventually(lambda: reader.unread == "get lease ns/l: second (500)")
    edge.on("GET", PATH, StoredLease(edge, a="1").get, status(500))
    eventually(lambda: reader.notes == LeaseNotes("u", {"a": "1"}))
    asked = len(edge.seen(path=PATH))
    eventually(lambda: len(edge.seen(path=PATH)) > asked + 3)
    assert (reader.notes, reader.unread) == (LeaseNotes("u", {"a": "1"}), "")
    reader.stop()


def test_a_reader_without_permission_warns_once_and_has_no_annotations(
    edge: ScriptedApiServer, client: Client, clock: HastyClock, caplog: pytest.LogCaptureFixture
) -> None:
    edge.on("GET", PATH, status(403, "leases is forbidden"))
    reader = LeaseReader(client, clock, "ns", "l")
    reader.start()
    eventually(lambda: len(edge.seen(path=PATH)) > 3)
    reader.stop()
    assert (reader.notes, reader.unread) == (LeaseNotes(), "")
    [record] = caplog.records
    assert record.getMessage() == "cannot read whether drains are paused: get lease ns/l: leases is forbidden (403)"
