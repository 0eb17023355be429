"""A daemon without one of its safeguards is noticed by the observer; the intact one, in the same scene, is not."""

from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from deploy.local.plane import ControlPlane
from tests.cluster.daemon import PROGRAM
from tests.cluster.observer import Observer
from tests.invariants.scenes import SCENES, Stage, daemon_of, played
from tests.invariants.watchdog import Watchdog

#: Safeguard → the invariant that its loss violates, and the scene in which it does.
BROKEN: Final = {
    "waves": (2, "slow pods"),
    "dry runs": (2, "slow pods"),
    "taint": (3, "slow pods"),
    "evictions": (3, "slow pods"),
    "release": (5, "slow pods"),
    "debts": (1, "never ready"),
    "landing": (6, "empty machines"),
    "decrement": (8, "empty machines"),
    "last look": (6, "late pod"),
    "minimum": (7, "two nodes"),
    "opt-outs": (3, "protected"),
    "move limit": (9, "few moves"),
    "targets": (3, "lost target"),
    "leadership": (4, "two replicas"),
}


@pytest.fixture
def observer(cluster: ControlPlane) -> Observer:
    return Observer(cluster)


@pytest.mark.cluster
@pytest.mark.parametrize("safeguard", BROKEN)
def test_a_lost_safeguard_is_noticed(cluster: ControlPlane, observer: Observer, tmp_path: Path, safeguard: str) -> None:
    invariant, scene = BROKEN[safeguard]
    program = ("-m", "tests.invariants.broken", safeguard)
    with ExitStack() as opened:
        stage = Stage(cluster, observer, tmp_path, program)
        begun = opened.enter_context(played(scene, stage))
        watchdog = opened.enter_context(Watchdog(cluster, begun.rules, begun.pool))
        opened.enter_context(daemon_of(begun, stage))
        begun.meddle()
        observer.eventually(lambda: {each.invariant for each in watchdog.violations} & {invariant}, "a violation", 60)


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
        begun.meddle()
        observer.eventually(begun.done, "the end of the scene")
        watchdog.stop()
    assert watchdog.violations == []
