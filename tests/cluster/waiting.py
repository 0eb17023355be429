"""Waiting for conditions with a deadline, repeated steps on a thread, and queries on processes."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

DEADLINE_SECONDS = 120

Value = TypeVar("Value")


def eventually(condition: Callable[[], Value]) -> Value:
    """Return the first true result of *condition*. Raises tenacity.RetryError after the deadline."""
    retry = retry_if_result(lambda result: not result)
    return Retrying(retry=retry, stop=stop_after_delay(DEADLINE_SECONDS), wait=wait_fixed(0.02))(condition)


@contextlib.contextmanager
def repeating(step: Callable[[], object], every: float = 0.5) -> Iterator[None]:
    """Call *step* on a thread during the block, with a pause of *every* seconds before each call."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(every):
            step()

    thread = threading.Thread(target=run, name="repeating")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def children(pid: int) -> list[int]:
    """Return the process ids of the children of the process *pid*."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    """Return whether the process *pid* runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
