"""The simulated cluster does in each recorded scene what the real control plane did, and the documentation says so."""

import datetime as dt

import msgspec
import pytest

from devcluster.audit import AuditEvent
from devcluster.manifests import Json
from rescheduler.draining.actions import ANNOTATION
from tests.agreement.__main__ import BEGIN, DOCS, END, MOST
from tests.agreement.judging import Agreement, SceneCourse, course_of, table
from tests.agreement.recorded import agreements
from tests.agreement.scenes import SCENES
from tests.cluster.observer import AGENT
from tests.simulation.worlds import START


@pytest.fixture(scope="module")
def compared() -> list[Agreement]:
    return agreements()


def test_eleven_of_twelve_scenes_agree(compared: list[Agreement]) -> None:
    assert len(compared) == 12
    assert sum(bool(each.differences) for each in compared) <= MOST, table(compared)


def test_the_table_of_the_documentation_is_that_of_the_recordings(compared: list[Agreement]) -> None:
    """``make agreement ARGS=--recorded`` writes it again after a change of the simulated cluster."""
    assert DOCS.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0] == "\n".join(table(compared)) + "\n"


def test_every_scene_evicts_or_updates_something(compared: list[Agreement]) -> None:
    assert [each.scene for each in compared if not each.real.nodes] == []
    assert [scene.name for scene in SCENES] == [each.scene for each in compared]


ONE = SceneCourse(("on-demand-1", "on-demand-2"), (20.0, 30.0), 20)


@pytest.mark.parametrize(
    ("other", "differences"),
    [
        (ONE, []),
        (SceneCourse(ONE.nodes, (23.9, 24.1), 21), []),
        (SceneCourse(ONE.nodes, (24.1, 30.0), 20), ["the time of on-demand-1"]),
        (SceneCourse(ONE.nodes, ONE.seconds, 22), ["evictions"]),
        (SceneCourse(ONE.nodes[::-1], ONE.seconds, 20), ["the nodes"]),
        (SceneCourse(ONE.nodes[:1], ONE.seconds[:1], 20), ["the nodes"]),
    ],
)
def test_what_differs(other: SceneCourse, differences: list[str]) -> None:
    assert Agreement("scene", ONE, other).differences == differences


def event(
    kind: str, seconds: float, *, marked: bool = False, agent: str = AGENT, code: int = 201, query: str = ""
) -> Json:
    resource, _, subresource = kind.partition("/")
    at = START + dt.timedelta(seconds=seconds)
    return {
        "verb": "create" if subresource else "patch",
        "user": {"username": "daemon"},
        "requestReceivedTimestamp": at,
        "stageTimestamp": at,
        "requestURI": f"/api/v1/{kind}{query}",
        "userAgent": agent,
        "objectRef": {"resource": resource, "subresource": subresource, "name": "on-demand-1"},
        "responseStatus": {"code": code},
        "responseObject": {"metadata": {"annotations": {ANNOTATION: "{}"} if marked else {}}},
    }


def test_the_reader_of_audit_logs() -> None:
    events = [
        event("nodes", 1.0, marked=True),
        event("pods/eviction", 2.0),
        event("pods/eviction", 3.0, code=429),
        event("pods/eviction", 3.5, query="?dryRun=All"),
        event("pods/eviction", 4.0, agent="kubectl/v1.36"),
        event("nodes", 5.0, marked=False, code=409),
        event("pods/eviction", 6.0),
        event("nodes", 11.0),
        event("nodes", 20.0, marked=True),
        event("pods/eviction", 27.5),
    ]
    course = course_of(msgspec.convert(events, list[AuditEvent]))
    assert course == SceneCourse(("on-demand-1", "on-demand-1"), (10.0, 7.5), 3)
