"""What is measured of a process from outside."""

import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.kube.conftest import eventually
from tests.scale.measured import MeasuredProcess, UnreadData, percentile
from tests.scale.subjects import Durations

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
def test_percentiles(values: Sequence[float], share: float, expected: float) -> None:
    assert percentile(values, share) == expected


DURATIONS: dict[str, tuple[Durations, Durations, tuple[float, float]]] = {
    "nothing happened": (Durations(3, 6.0, {1.0: 3, 5.0: 3}), Durations(3, 6.0, {1.0: 3, 5.0: 3}), (0.0, 0.0)),
    "from the start": (Durations(), Durations(4, 6.0, {1.0: 3, 5.0: 4}), (1.5, 5.0)),
    "only the rounds since then": (
        Durations(3, 6.0, {1.0: 2, 5.0: 3}),
        Durations(5, 7.0, {1.0: 4, 5.0: 5}),
        (0.5, 1.0),
    ),
}


@pytest.mark.parametrize(("earlier", "later", "expected"), DURATIONS.values(), ids=DURATIONS)
def test_durations_between_two_times(earlier: Durations, later: Durations, expected: tuple[float, float]) -> None:
    assert (later.mean_since(earlier), later.planning_p99_since(earlier)) == expected
