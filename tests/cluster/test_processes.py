"""Error messages if a component exits on its own."""

from pathlib import Path

import pytest

from devcluster.errors import PlaneError
from devcluster.processes import Processes
from tests.cluster.waiting import eventually


def test_the_error_contains_the_end_of_the_log(tmp_path: Path) -> None:
    processes = Processes()
    processes.start("etcd", ["sh", "-c", "echo first; echo no space left; exit 7"], tmp_path / "etcd.log")
    with pytest.raises(PlaneError) as raised:
        eventually(processes.check)
    processes.stop_all()
    assert str(raised.value) == "etcd exited with code 7; the end of its log:\nfirst\nno space left"


def test_a_running_component_is_not_started_again(tmp_path: Path) -> None:
    processes = Processes()
    processes.start("etcd", ["sleep", "600"], tmp_path / "etcd.log")
    with pytest.raises(PlaneError, match="etcd is already running"):
        processes.start("etcd", ["sleep", "600"], tmp_path / "etcd.log")
    processes.stop("etcd")
    assert processes.running == {}
    processes.stop("etcd")
