"""How a stand-in's deletions fail, for the worlds of the conformance table."""

import abc
from typing import Any


class FailingDeletions(abc.ABC):
    """Three of `conformance.World`'s verbs."""

    @abc.abstractmethod
    def _inject(self, **fault: Any) -> None:
        """Let the stand-in treat requests to delete a machine of the group as *fault* (see `faults.Fault`) says."""

    def fail_deletions(self, times: int) -> None:
        self._inject(times=times)

    def lose_answers(self, times: int) -> None:
        self._inject(kind="reset", acted=True, times=times)

    def lose_orders(self, times: int) -> None:
        self._inject(kind="reset", times=times)
