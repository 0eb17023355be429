"""A part of ``make faults``: one call of each verb and resource with every fault, and kills around each of them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pytest

from devcluster.faults.catalog import UNBOUND_FAULTS
from devcluster.plane import ControlPlane
from tests.faults.beside import BESIDE, BesideName
from tests.faults.choice import covering, every_kill, first_of_each_verb, kills_beside
from tests.faults.recording import CallOfDrain
from tests.faults.runner import play_all, recorded, sites
from tests.faults.sites import Site
from tests.faults.trials import JUMPS, Disturbance, FaultTrial, TrialPace, TrialResult

pytestmark = pytest.mark.cluster

SLOTS: Final = 5
PACE: Final = TrialPace(patience=150.0)
#: Faults of the only call that a drain which is rolled back does not make; test_writes.py has each of them.
OF_TERMINATIONS: Final = {"204-after", "502-after", "504-after"}

#: The writes of a removal.
OF_REMOVALS: Final = {
    "patch nodes (draining)",
    "patch nodes (owing)",
    "patch nodes (removing)",
    "create pods/eviction (dry run)",
    "create pods/eviction",
    "delete nodes",
    "POST /pool/terminate",
}


@pytest.fixture(scope="module")
def places(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Site]]:
    with sites(control_plane, tmp_path_factory.mktemp("sites"), SLOTS) as all_sites:
        yield all_sites


@pytest.fixture(scope="module")
def calls(places: list[Site]) -> list[CallOfDrain]:
    return first_of_each_verb(recorded(places[0]))


def played(places: list[Site], trials: Sequence[FaultTrial]) -> list[TrialResult]:
    """Play *trials* and return the results; fail if one of them failed."""
    results = play_all(places, trials, lambda _: None, PACE)
    failed = [result for result in results if result.failed]
    assert not failed, "\n".join(line for result in failed for line in [str(result), *result.log])
    return results


def test_a_drain_makes_these_calls(calls: list[CallOfDrain]) -> None:
    assert {call.name for call in calls} >= {
        "list pods",
        "watch pods",
        "get nodes",
        "get replicasets",
        "get leases",
        "patch leases",
        "get configmaps",
        "patch configmaps",
        "create events",
        *OF_REMOVALS,
        "GET /pool",
        "GET /pool/size",
    }


def test_every_fault_of_each_call(places: list[Site], calls: list[CallOfDrain]) -> None:
    results = played(places, covering(calls))
    reached = {trouble.kind for result in results for trouble in result.reached}
    assert reached >= {*UNBOUND_FAULTS, *JUMPS} - OF_TERMINATIONS


def test_a_clock_that_jumps_shortens_no_wait(places: list[Site], calls: list[CallOfDrain]) -> None:
    """Replacement pods must have been Ready for a while, whatever the clock says before or after the jump."""
    at = [call for call in calls if call.name in ("patch leases", "patch nodes (draining)", "create pods/eviction")]
    results = played(places, [FaultTrial((Disturbance(call, jump),)) for call in at for jump in JUMPS])
    assert len(results) == 6
    assert all(result.reached for result in results)


def test_kill_before_or_after_each_call(places: list[Site], calls: list[CallOfDrain]) -> None:
    """The writes of a removal are killed in `tests/acceptance/test_interrupted_daemon.py`; here are the other calls."""
    kills = every_kill([call for call in calls if (call.writes or call.of_pool) and call.name not in OF_REMOVALS])
    results = played(places, [kill for number, kill in enumerate(kills) if number % 4 in (0, 3)])
    assert [result for result in results if not result.reached] == []


def test_kill_before_or_after_each_change_of_a_rolling_update(places: list[Site]) -> None:
    """Its pods are never fewer, and its template is as before or complete in the end."""
    calls = [call for call in recorded(places[0], "surge") if call.name.endswith(" deployments")]
    kills = every_kill([call for call in calls if call.writes or call.occurrence == 1])
    results = played(
        places, [replace(kill, program="surge") for number, kill in enumerate(kills) if number % 4 in (0, 3)]
    )
    assert {trouble.call.name for result in results for trouble in result.reached} == {
        "get deployments",
        "list deployments",
        "patch deployments",
    }


def test_kills_while_others_disturb_a_rolling_update(places: list[Site]) -> None:
    """Its pods are never fewer, and its template is as before in the end if the disturbance lasts."""
    at: dict[BesideName, int] = {"quota": 3, "webhook": 8, "target": 2, "autoscaler": 5, "manifest": 4}
    results = played(places, [kills_beside(name)[number] for name, number in at.items()])
    assert [result for result in results if not result.reached] == []
    ends = {result.trial.beside: result.ended.end for result in results}
    assert {ends[name] for name in at if BESIDE[name].lasts} == {"rolled back"}
