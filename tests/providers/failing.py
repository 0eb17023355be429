"""Deletion failures of a stand-in, for the worlds of the conformance table."""

import abc
from typing import Any


class FailingDeletions(abc.ABC):
    """Three methods of `conformance.World`."""

    @abc.abstractmethod
    def _inject(self, **fault: Any) -> None:
        """Inject a fault (see `faults.Fault`) into requests to delete a machine of the group."""

    def fail_deletions(self, times: int) -> None:
        self._inject(times=times)

    def lose_answers(self, times: int) -> None:
        self._inject(kind="reset", acted=True, times=times)

    def lose_orders(self, times: int) -> None:
        self._inject(kind="reset", times=times)
