"""The observer detects a daemon without a safeguard, and accepts an intact one."""

from collections.abc import Iterator

import pytest

from devcluster.plane import ControlPlane
from tests.faults.sites import Site, site
from tests.faults.trials import FaultTrial, TrialPace, play

pytestmark = pytest.mark.cluster

#: Disabled safeguard → expected words of the violation.
BROKEN = {
    "decrement": "invariant 8 (machine, Node and desired size agree in the end)",
}

#: Without the decrement the pool replaces the machine, so the run cannot finish.
PACE = TrialPace(patience=20.0)


@pytest.fixture(scope="module")
def at(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(control_plane, "observed", tmp_path_factory.mktemp("observed") / "site") as scene_site:
        yield scene_site


@pytest.mark.parametrize("safeguard", BROKEN)
def test_a_daemon_without_a_safeguard_fails(at: Site, safeguard: str) -> None:
    result = play(at, FaultTrial((), broken=safeguard), PACE)
    assert result.failed
    assert [violation for violation in result.violations if BROKEN[safeguard] in violation]
