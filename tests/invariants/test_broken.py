"""The watchdog detects a daemon without one of its safeguards, in a scene in which that safeguard has an effect."""

from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from devcluster.plane import ControlPlane
from tests.cluster.observer import Observer
from tests.invariants import broken
from tests.invariants.broken import SAFEGUARDS
from tests.invariants.scenes import BROKEN, Stage, daemon_of, played
from tests.invariants.watchdog import Watchdog

#: One safeguard for each invariant. `test_recorded.py` has the recorded runs of all of them.
ONE_EACH: Final = {invariant: safeguard for safeguard, (invariant, _) in reversed(BROKEN.items())}.values()


@pytest.mark.cluster
@pytest.mark.parametrize("safeguard", ONE_EACH)
def test_a_lost_safeguard_is_detected(
    cluster: ControlPlane, observer: Observer, tmp_path: Path, safeguard: str
) -> None:
    invariant, scene = BROKEN[safeguard]
    program = ("-m", "tests.invariants.broken", safeguard)
    with ExitStack() as opened:
        stage = Stage(cluster, observer, tmp_path, program)
        begun = opened.enter_context(played(scene, stage))
        watchdog = opened.enter_context(Watchdog(cluster, begun.rules, begun.pool))
        opened.enter_context(daemon_of(begun, stage))
        begun.disturb()
        observer.eventually(lambda: {each.invariant for each in watchdog.violations} & {invariant}, "a violation", 60)


def test_each_safeguard_has_a_scene() -> None:
    assert set(BROKEN) == set(SAFEGUARDS)


@pytest.mark.parametrize("safeguard", SAFEGUARDS)
def test_each_safeguard_is_where_it_is_taken_away(safeguard: str, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = list[str]()

    def look(owner: object, name: str, _: object) -> None:
        if not hasattr(owner, name):
            missing.append(name)

    monkeypatch.setattr(broken, "_patch", look)
    SAFEGUARDS[safeguard]()
    assert missing == []
