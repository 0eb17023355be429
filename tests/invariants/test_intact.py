"""The intact daemon violates no invariant in the scenes in which a daemon without a safeguard does."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from devcluster.plane import ControlPlane
from tests.cluster.observer import Observer
from tests.forking import PROGRAM
from tests.invariants.scenes import SCENES, Stage, daemon_of, played
from tests.invariants.watchdog import Watchdog


@pytest.mark.cluster
@pytest.mark.parametrize("scene", SCENES)
def test_the_intact_daemon_violates_nothing(
    cluster: ControlPlane, observer: Observer, tmp_path: Path, scene: str
) -> None:
    with ExitStack() as opened:
        stage = Stage(cluster, observer, tmp_path, PROGRAM)
        begun = opened.enter_context(played(scene, stage))
        watchdog = opened.enter_context(Watchdog(cluster, begun.rules, begun.pool))
        opened.enter_context(daemon_of(begun, stage))
        begun.disturb()
        observer.eventually(begun.done, "the end of the scene")
        watchdog.stop()
    assert watchdog.violations == []
