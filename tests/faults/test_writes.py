"""Each write of a removal fails in all known ways: the removal is finished, or it fails and a retry finishes it."""

from collections.abc import Iterator
from typing import Final

import pytest

from devcluster.plane import ControlPlane
from tests.faults.programs import ProgramName
from tests.faults.recording import CallOfDrain
from tests.faults.runner import play_all, sites
from tests.faults.sites import Site
from tests.faults.trials import Disturbance, FaultTrial, TrialPace

pytestmark = pytest.mark.cluster

SLOTS: Final = 5
PACE: Final = TrialPace(patience=150.0)

MARK: Final = "patch nodes (draining)"
DEBTS: Final = "patch nodes (owing)"
DRY_RUN: Final = "create pods/eviction (dry run)"
EVICT: Final = "create pods/eviction"
INTENT: Final = "patch nodes (removing)"
RELEASE: Final = "patch nodes (release)"
TERMINATE: Final = "POST /pool/terminate"
DELETE: Final = "delete nodes"


def hit(call: str, kind: str, times: int = 1, occurrence: int = 1) -> Disturbance:
    return Disturbance(CallOfDrain(call, occurrence, of_pool=call == TERMINATE), kind, times=times)


#: Faults → the reason why the drain of the daemon fails, and the status of the proxy. "" and "200": the removal
#: succeeds despite the faults.
FAULTS: Final[dict[tuple[Disturbance, ...], tuple[str, str]]] = {
    (hit(MARK, "409"),): ("", "200"),
    (hit(MARK, "409", times=5),): ("api-error", "503"),
    (hit(MARK, "500-after"),): ("", "200"),
    (hit(MARK, "stall"),): ("", "200"),
    (hit(DEBTS, "500-after"),): ("", "200"),
    (hit(DRY_RUN, "403"),): ("eviction-refused", "500"),
    (hit(DRY_RUN, "429-budget"),): ("eviction-refused", "500"),
    (hit(DRY_RUN, "500"),): ("", "200"),
    (hit(EVICT, "403"),): ("eviction-failed", "500"),
    (hit(EVICT, "404"),): ("", "200"),  # the pod exists
    (hit(EVICT, "409"),): ("", "200"),
    (hit(EVICT, "429-budget", times=2),): ("", "200"),
    (hit(EVICT, "429-retry-after"),): ("", "200"),
    (hit(EVICT, "500"),): ("", "200"),
    (hit(EVICT, "reset-after"),): ("", "200"),
    (hit(EVICT, "403"), hit(RELEASE, "500"), hit(RELEASE, "reset-before", occurrence=2)): ("eviction-failed", "500"),
    (hit(INTENT, "409"),): ("", "200"),
    (hit(INTENT, "500-after"),): ("", "200"),
    (hit(TERMINATE, "204-after"),): ("", "200"),
    (hit(TERMINATE, "400"),): ("provider", "502"),
    (hit(TERMINATE, "404"),): ("provider", "502"),  # the machine is listed
    (hit(TERMINATE, "502"),): ("", "200"),
    (hit(TERMINATE, "502-after"),): ("", "200"),
    (hit(TERMINATE, "504"),): ("", "200"),
    (hit(TERMINATE, "504-after"),): ("", "200"),
    (hit(TERMINATE, "stall"),): ("", "200"),
    (hit(TERMINATE, "stall-after"),): ("", "200"),
    (hit(TERMINATE, "reset-after"),): ("", "200"),
    (hit(DELETE, "404"),): ("", "200"),  # the Node exists
    (hit(DELETE, "500"),): ("", "200"),
    (hit(DELETE, "reset-after"),): ("", "200"),
}


PROGRAMS: Final[tuple[ProgramName, ...]] = ("daemon", "termination")


@pytest.fixture(scope="module")
def places(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Site]]:
    with sites(control_plane, tmp_path_factory.mktemp("sites"), SLOTS) as all_sites:
        yield all_sites


def played_by(program: ProgramName) -> list[FaultTrial]:
    """Return the trials of *program*.

    Daemon and proxy drain with the same code, so each fault that a drain survives is played by one of them in turn.
    What ends a drain is played by both, because they report it in different ways.
    """
    survived = [faults for faults, ends in FAULTS.items() if ends == ("", "200")]
    ended = [faults for faults in FAULTS if faults not in survived]
    return [FaultTrial(faults, program=program) for faults in [*survived[PROGRAMS.index(program) :: 2], *ended]]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_failed_write_does_not_lose_pods(places: list[Site], program: ProgramName) -> None:
    def expected(why: str, status: str) -> list[str]:
        if program == "daemon":
            return [why] if why else []
        return [status] if status == "200" else [status, "200"]

    trials = played_by(program)
    results = play_all(places, trials, lambda _: None, PACE)
    failed = [result for result in results if result.ended.end != "finished" or result.violations]
    assert not failed, "\n".join(line for result in failed for line in [str(result), *result.log])
    assert [result for result in results if result.reached != result.trial.troubles] == []
    answers = {str(result.trial): result.answers for result in results}
    assert answers == {str(trial): expected(*FAULTS[trial.troubles]) for trial in trials}
