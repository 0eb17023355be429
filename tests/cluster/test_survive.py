"""A pool of spot nodes is deleted after the daemon drained what it may: with --survive=pool, all its pods run again."""

import os
from typing import Final

from devcluster.plane import ControlPlane
from tests.cluster.pool_losses import SURVIVE, Scene

#: A scene in which pods have no place without the flag.
SEED: Final = int(os.environ.get("SURVIVE_SEED", "1"))


def test_the_pods_of_a_lost_pool_run_again(cluster: ControlPlane) -> None:
    loss = Scene(cluster, SEED).run(SURVIVE)
    assert loss.drained
    assert loss.lost
    assert not loss.homeless


def test_without_the_flag_pods_of_a_lost_pool_have_no_place(cluster: ControlPlane) -> None:
    loss = Scene(cluster, SEED).run()
    assert loss.lost
    assert loss.homeless
