"""Writes on the condition that an object has not changed since it was read."""

from collections.abc import Callable
from typing import Final, TypeAlias, TypeVar

from rescheduler.errors import Conflict, NotFound

T = TypeVar("T")

_Conflicts: TypeAlias = tuple[type[Conflict | NotFound], ...]

#: The object was changed, created or deleted since it was read.
CHANGED: Final[_Conflicts] = (Conflict, NotFound)


def retry_on_conflict(
    write: Callable[[], T],
    attempts: int,
    read: Callable[[], object] = lambda: None,
    conflicts: _Conflicts = (Conflict,),
) -> T:
    """Return the result of *write*. After a conflict, call *read* and write again, up to *attempts* times.

    A *write* that also reads the object needs no *read*. Raises the last conflict, and all other errors. As client-go's
    ``RetryOnConflict``, but without pauses.
    """
    refused: Conflict | NotFound = Conflict("")
    for _ in range(attempts):
        try:
            return write()
        except conflicts as error:
            refused = error
        read()
    raise type(refused)(f"{refused} (tried {attempts} times)") from refused
