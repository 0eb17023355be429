"""The version of the API server, and the rules of the scheduler that follow from it."""

import logging

import pytest

from predicates.versions import NEWEST, RELEASED, VERSIONS
from rescheduler.kube import api_server
from rescheduler.kube.api_server import SchedulerWatch
from rescheduler.kube.client import Client
from rescheduler.settings import Scheduling
from tests.kube.conftest import HastyClock
from tests.kube.edge import Reply, ScriptedApiServer, status

UNKNOWN = "the version of kube-scheduler is not known; the rules of 1.37 apply (--scheduler-version)"


def _version(text: str) -> Reply:
    return Reply({"major": "1", "gitVersion": text})


ANSWERS: dict[str, tuple[Reply, str]] = {
    "a version": (_version("v1.36.3"), "v1.36.3"),
    "no version": (Reply({}), ""),
    "another form": (Reply({"gitVersion": 1}), ""),
    "forbidden": (status(403), ""),
    "not served": (status(404), ""),
}


@pytest.mark.parametrize(("reply", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_version_is_read(reply: Reply, expected: str, edge: ScriptedApiServer, client: Client) -> None:
    edge.on("GET", "/version", reply)
    assert api_server.server_version(client) == expected


def test_upgrade_of_the_control_plane_is_noticed_and_errors_change_nothing(
    edge: ScriptedApiServer, client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_server, "_REREAD_SECONDS", 0.0)
    replies = [_version("v1.36.3"), status(500), _version("v1.37.0"), _version("v1.99.0"), _version("v1.99.0")]
    edge.on("GET", "/version", *replies)
    watch = SchedulerWatch(client, HastyClock(), Scheduling())
    with caplog.at_level(logging.WARNING):
        used = [watch.current().version for _ in replies]
    assert used == [VERSIONS[36], VERSIONS[36], VERSIONS[37], NEWEST, NEWEST]
    unreadable, newer = [record.getMessage() for record in caplog.records]
    assert unreadable.startswith("the version of the API server cannot be read: ")
    assert newer == "kube-scheduler 1.99 is not known; the rules of 1.38 apply, the newest known version"


def test_version_is_read_once_in_a_while(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("GET", "/version", _version("v1.35.0"))
    watch = SchedulerWatch(client, HastyClock(), Scheduling())
    assert {watch.current().version for _ in range(5)} == {VERSIONS[35]}
    assert len(edge.seen("GET")) == 1


def test_flag_counts_more_than_the_api_server(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("GET", "/version", _version("v1.35.0"))
    assert SchedulerWatch(client, HastyClock(), Scheduling(minor=37)).current().version == VERSIONS[37]


def test_unknown_version_is_logged(edge: ScriptedApiServer, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    edge.on("GET", "/version", status(403))
    with caplog.at_level(logging.WARNING):
        assert SchedulerWatch(client, HastyClock(), Scheduling()).current().version == RELEASED
    assert [record.getMessage() for record in caplog.records] == [UNKNOWN]


def test_the_version_is_read_again_soon_while_it_is_not_known(
    edge: ScriptedApiServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_server, "_RETRY_SECONDS", 0.0)
    edge.on("GET", "/version", status(500), _version("v1.34.4"), _version("v1.36.3"))
    watch = SchedulerWatch(client, HastyClock(), Scheduling())
    assert [watch.current().version for _ in range(3)] == [RELEASED, VERSIONS[34], VERSIONS[34]]
