"""Waiting for conditions with a deadline, and queries on processes."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

DEADLINE_SECONDS = 120

Value = TypeVar("Value")


def eventually(condition: Callable[[], Value]) -> Value:
    """Return the first true result of *condition*. Raises tenacity.RetryError after the deadline."""
    retry = retry_if_result(lambda result: not result)
    return Retrying(retry=retry, stop=stop_after_delay(DEADLINE_SECONDS), wait=wait_fixed(0.02))(condition)


def children(pid: int) -> list[int]:
    """Return the process ids of the children of the process *pid*."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    """Return whether the process *pid* runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
