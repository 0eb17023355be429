"""The observer of the invariants judges each run: a daemon that lacks a safeguard fails, an intact one does not."""

from collections.abc import Iterator

import pytest

from deploy.local.plane import ControlPlane
from tests.faults.programs import ProgramName
from tests.faults.sites import Site, site
from tests.faults.trials import Pace, Trial, play

pytestmark = pytest.mark.cluster

#: Safeguard → words of the violation.
BROKEN = {
    "decrement": "invariant 8 (machine, Node and desired size agree in the end)",
}

#: Without the decrement the pool replaces the machine, and the run does not finish.
PACE = Pace(patience=20.0)


@pytest.fixture(scope="module")
def at(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(control_plane, "observed", tmp_path_factory.mktemp("observed") / "site") as made:
        yield made


@pytest.mark.parametrize("safeguard", BROKEN)
def test_a_daemon_without_a_safeguard_fails(at: Site, safeguard: str) -> None:
    result = play(at, Trial((), broken=safeguard), PACE)
    assert result.failed
    assert [violation for violation in result.violations if BROKEN[safeguard] in violation]


@pytest.mark.parametrize("program", ["daemon", "proxy"])
def test_an_intact_program_finishes_without_a_violation(at: Site, program: ProgramName) -> None:
    result = play(at, Trial((), program=program), Pace())
    assert (result.ended.end, result.violations) == ("finished", [])
