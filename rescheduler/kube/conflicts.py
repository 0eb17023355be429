"""Writes on the condition that an object has not changed since it was read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rescheduler.errors import Conflict, NotFound

T = TypeVar("T")


def retry_on_conflict(write: Callable[[], T], attempts: int, read: Callable[[], object] = lambda: None) -> T:
    """Return the result of *write*. After a Conflict, call *read* and write again, up to *attempts* times.

    A *write* that also reads the object needs no *read*. Raises the last Conflict, and all other errors. This is
    client-go's ``RetryOnConflict`` without pauses.
    """
    last = Conflict("")
    for _ in range(attempts):
        try:
            return write()
        except Conflict as error:
            last = error
        read()
    raise Conflict(f"{last} (tried {attempts} times)") from last


@contextmanager
def deletion_conflicts() -> Iterator[None]:
    """Convert NotFound to Conflict: an object that was read before has since been deleted."""
    try:
        yield
    except NotFound as error:
        raise Conflict(str(error)) from error
