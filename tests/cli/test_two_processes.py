"""With --independent, a copy of the process judges half of the nodes of a large cluster; the plan is the same."""

import datetime as dt
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from typing import Final

import pytest

from predicates.snapshot import Snapshot
from rescheduler.cli.plan_data import in_two_processes
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.single_plans import JudgedNode, JudgeNodes
from rescheduler.snapshot_file import reader
from tests.bench.big import big

NOW: Final = Circumstances(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
NODES: Final = 205  #: an odd number: the copy gets one node less

#: What happens to the copy of the process.
FATES: Final[dict[str, Callable[[], None]]] = {
    "it judges": lambda: None,
    "it is killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "it lacks memory": lambda: (_ for _ in ()).throw(MemoryError),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    path = tmp_path_factory.mktemp("big") / "cluster.json"
    big(path, on_demand=NODES, spot=100)
    return reader.read(str(path))


@pytest.mark.skipif(os.cpu_count() == 1, reason="one processor does the same in one process")
@pytest.mark.parametrize("fate", FATES.values(), ids=FATES)
def test_the_plan_is_that_of_one_process(cluster: Snapshot, fate: Callable[[], None]) -> None:
    judged: list[int] = []
    this = os.getpid()

    def divide(judge: JudgeNodes, nodes: Sequence[str]) -> list[JudgedNode]:
        def recorded(some: Sequence[str]) -> list[JudgedNode]:
            if os.getpid() != this:
                fate()
            judged.append(len(some))
            return judge(some)

        return in_two_processes(recorded, nodes)

    expected = Planner(cluster, Policy()).plan_each(NOW)
    assert expected.plans
    assert Planner(cluster, Policy()).plan_each(NOW, divide=divide) == expected
    assert judged == ([103] if fate is FATES["it judges"] else [103, NODES])
    assert not multiprocessing.active_children()


def test_a_small_cluster_needs_no_copy() -> None:
    judged: list[Sequence[str]] = []

    def judge(nodes: Sequence[str]) -> list[JudgedNode]:
        judged.append(nodes)
        return []

    in_two_processes(judge, ["a", "b"])
    assert judged == [["a", "b"]]
