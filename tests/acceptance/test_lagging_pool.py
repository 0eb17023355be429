"""A pool with background updates and a stale view: no request causes the termination of a machine with pods.

At its end, each scene checks which pods were on a Node when its machine was terminated.
"""

from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from devcluster.plane import ControlPlane
from tests.acceptance.scenes import scene
from tests.proxy.world import ProxyWorld

pytestmark = pytest.mark.cluster

#: The replacement is launched and joins long after the response to the termination request.
SLOW: Final[dict[str, Any]] = {"startBlocks": "3s", "launchDelay": "1s"}
BACKEND: Final = {"backend": {"settleTime": "60s"}}


def filled(env: ProxyWorld, machines: int) -> None:
    env.deploy("web", 2 * machines)
    assert len(env.pods()) == 2 * machines


def test_a_size_that_is_set_during_a_replacement_terminates_only_drained_machines(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    """One of three machines is being replaced when the size is set to 2: only drained machines are terminated."""
    with scene(cluster, tmp_path, 3, pool=SLOW, refresh_interval=2, config=BACKEND) as env:
        filled(env, 3)
        terminate = {"machineId": env.id("od-1"), "decrementDesiredSize": False}
        assert env.post("/pool/terminate", terminate).status_code == httpx2.codes.OK
        response = env.post("/pool/size", {"desiredSize": 2})
        assert (response.status_code, response.text) == (httpx2.codes.OK, "")
        cluster.wait_for(lambda: len(env.running()) == env.desired == 2, "two machines")
        assert not any(ended.by_resize for ended in env.server.pool.terminations)


def test_a_termination_that_fails_after_taking_effect_costs_no_other_machine(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    """The pool's desired size is not decremented, so it launches a machine, which is removed again."""
    with scene(cluster, tmp_path, 3, pool=SLOW, refresh_interval=2, config=BACKEND) as env:
        filled(env, 3)
        env.server.pool.failing_terminations = 1
        response = env.post("/pool/size", {"desiredSize": 2})
        detail = response.json()["detail"] if response.content else ""
        assert response.status_code == httpx2.codes.OK
        assert (env.desired == 2) is (detail == ""), detail
        cluster.wait_for(lambda: len(env.running()) == env.desired, "as many machines as are desired")
        assert not any(ended.by_resize for ended in env.server.pool.terminations)
