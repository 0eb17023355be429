"""Tests of measurements of a process from outside."""

import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from rescheduler.observe.events import RoundEnded
from rescheduler.observe.metrics import Metrics
from tests.kube.conftest import eventually
from tests.observe.builders import NOW
from tests.scale.bars import limits_of
from tests.scale.figures import ScaleFigures
from tests.scale.measured import MeasuredProcess, UnreadData, percentile
from tests.scale.rounds import Rounds
from tests.scale.subjects import Durations, durations_in

#: Connects to a port, and never reads from the connection.
_CLIENT: Final = """
import socket, sys, time
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
block = bytearray(64 << 20)
while True:
    time.sleep(1)
"""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.mark.parametrize(("size", "unread"), [(24, False), (4096, True)], ids=["a message of TLS", "an event"])
def test_unread_data_is_that_of_the_process(tmp_path: Path, listener: socket.socket, size: int, unread: bool) -> None:
    port = listener.getsockname()[1]
    with MeasuredProcess([sys.executable, "-c", _CLIENT, str(port)], tmp_path / "log") as process:
        connection, _ = listener.accept()
        with connection, UnreadData(process, port) as data:
            connection.sendall(bytes(size))
            eventually(lambda: len(data.seconds) >= 5)
        assert any(data.seconds) is unread
        assert process.cpu > 0
        eventually(lambda: process.resident > 64)
        assert process.peak >= process.resident
        process.check()


def test_a_process_that_has_exited_is_reported_with_its_last_lines(tmp_path: Path) -> None:
    def exited() -> bool:
        try:
            process.check()
        except RuntimeError as error:
            return str(error).endswith("exited with 3:\nwhy\n")
        return False

    with MeasuredProcess([sys.executable, "-c", "print('why'); raise SystemExit(3)"], tmp_path / "log") as process:
        eventually(exited)


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [((), 0.99, 0.0), ((3.0,), 0.99, 3.0), (tuple(map(float, range(100))), 0.99, 99.0), ((1.0, 2.0, 3.0), 0.5, 2.0)],
    ids=["none", "one", "a hundred", "the middle"],
)
def test_percentiles_are_values_of_the_sample(values: Sequence[float], share: float, expected: float) -> None:
    assert percentile(values, share) == expected


DURATIONS: dict[str, tuple[Durations, Durations, tuple[list[float], list[float]]]] = {
    "nothing happened": (Durations(3, 6.0, 3, 2.0), Durations(3, 6.0, 3, 2.0), ([], [])),
    "from the start": (Durations(), Durations(1, 6.0, 1, 2.0), ([6.0], [2.0])),
    "only the rounds since then": (Durations(3, 6.0, 2, 2.0), Durations(5, 7.0, 3, 5.0), ([0.5, 0.5], [3.0])),
}


@pytest.mark.parametrize(("earlier", "later", "expected"), DURATIONS.values(), ids=DURATIONS)
def test_rounds_between_two_readings_are_added(
    earlier: Durations, later: Durations, expected: tuple[list[float], list[float]]
) -> None:
    rounds = Rounds()
    rounds.add(earlier, later)
    assert (rounds.rounds, rounds.plannings) == expected
    assert rounds.longest == max(expected[0], default=None)


def test_durations_are_read_from_metrics() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    metrics(RoundEnded(NOW, 2.0, succeeded=True))
    metrics(RoundEnded(NOW, 3.0, succeeded=True))
    assert durations_in(generate_latest(registry).decode()) == Durations(2, 5.0)


def figures(subject: str, nodes: int, idle: float, round_idle: float | None) -> ScaleFigures:
    return ScaleFigures(subject, "stand-in", nodes, 10, 1.0, 1.0, 100.0, 200.0, idle, 0.5, 1.0, round_idle)


def test_limits_apply_to_the_worst_run_at_two_sizes() -> None:
    runs = [
        figures(subject, nodes, idle, round_idle)
        for nodes in (500, 1000, 5000)
        for subject, idle, round_idle in (("quick", 0.3, 0.1), ("slow", 1.3, 0.1), ("informers", 9.0, None))
    ]
    held = {each.label: each.held for each in limits_of(runs, 1000, 5000)}
    assert held == {
        "1,000 nodes, dry run: CPU when nothing changes": False,
        "1,000 nodes, 100 edits of pods a second: CPU above that of the informers": True,
        "5,000 nodes, dry run: ready after the start": True,
        "5,000 nodes, dry run: resident memory at most": True,
        "5,000 nodes, dry run: CPU when nothing changes": False,
        "5,000 nodes, 100 edits of pods a second: CPU above that of the informers": True,
    }
