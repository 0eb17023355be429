"""Jumps of the wall clock do not affect the monotonic clock."""

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from rescheduler.clock import SystemClock
from tests.faults.jumping_clock import follow, jump

HOUR = dt.timedelta(hours=1)
A_WHILE = dt.timedelta(minutes=10)  #: longer than the test takes


@pytest.fixture
def offset(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "offset"
    jump(file, 0)
    follow(file)
    yield file
    patch.stopall()


@pytest.mark.parametrize("hours", [1, -1])
def test_a_jump_changes_only_the_wall_clock(offset: Path, hours: int) -> None:
    clock = SystemClock()
    before, since = clock.now(), clock.monotonic()
    jump(offset, hours * 3600)
    assert abs(clock.now() - before - hours * HOUR) < A_WHILE
    assert clock.monotonic() - since < A_WHILE.total_seconds()
    jump(offset, 0)
    assert abs(clock.now() - before) < A_WHILE
