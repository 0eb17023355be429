"""A pool that works in the background and answers from before: no machine ends with pods, whatever is asked meanwhile.

The scenes' own end tells: each checks which pods were on a Node at the moment its machine was terminated.
"""

from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from deploy.local.plane import ControlPlane
from tests.acceptance.scenes import scene
from tests.proxy.world import World

pytestmark = pytest.mark.cluster

#: The replacement is launched, and its Node joins, long after the answer to the request that asked for it.
SLOW: Final[dict[str, Any]] = {"startBlocks": "3s", "launchDelay": "1s"}
BACKEND: Final = {"backend": {"settleTime": "60s"}}


def filled(made: World, machines: int) -> None:
    made.deploy("web", 2 * machines)
    assert len(made.pods()) == 2 * machines


def test_a_size_that_is_set_while_a_machine_is_replaced(cluster: ControlPlane, tmp_path: Path) -> None:
    """3, and one of them is replaced; then 2: the replacement goes, or a node that was emptied, and no other."""
    with scene(cluster, tmp_path, 3, pool=SLOW, refresh_interval=2, config=BACKEND) as made:
        filled(made, 3)
        terminate = {"machineId": made.id("od-1"), "decrementDesiredSize": False}
        assert made.post("/pool/terminate", terminate).status_code == httpx.codes.OK
        answer = made.post("/pool/size", {"desiredSize": 2})
        assert (answer.status_code, answer.text) == (httpx.codes.OK, "")
        cluster.wait_for(lambda: len(made.running()) == made.desired == 2, "two machines")
        assert not any(ended.by_resize for ended in made.server.pool.terminations)


def test_a_termination_that_fails_after_the_deed_costs_no_other_machine(cluster: ControlPlane, tmp_path: Path) -> None:
    """The pool's desired size is not lowered, and it launches a machine, which is taken away again."""
    with scene(cluster, tmp_path, 3, pool=SLOW, refresh_interval=2, config=BACKEND) as made:
        filled(made, 3)
        made.server.pool.failing_terminations = 1
        answer = made.post("/pool/size", {"desiredSize": 2})
        told = answer.json()["detail"] if answer.content else ""
        assert answer.status_code == httpx.codes.OK
        assert (made.desired == 2) is (told == ""), told
        cluster.wait_for(lambda: len(made.running()) == made.desired, "as many machines as are desired")
        assert not any(ended.by_resize for ended in made.server.pool.terminations)
