"""How much optional work fits into the time of a round.

Planning reads no clock. A caller with a time limit passes a function that returns the seconds that are left. It is
called between units of work, never within one, so the result of each unit is the same on any machine.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from rescheduler.planning.packing import Effort

#: Returns the seconds that are left for a round; negative if it is late.
SecondsLeft: TypeAlias = Callable[[], float]

#: The weight of the latest measurement in the rate.
_LATEST: Final = 0.5


def unlimited() -> float:
    """Return the seconds that are left without a time limit."""
    return math.inf


class Pace:
    """The rate at which this machine simulates pods, measured while plans are simulated; unknown at first."""

    def __init__(self) -> None:
        self._per_second: float | None = None

    def measure(self, pods: int, seconds: float) -> None:
        """Record that the simulation of *pods* took *seconds*. Without a time limit it is not known (nan)."""
        if pods and seconds > 0:
            rate = pods / seconds
            self._per_second = (
                rate if self._per_second is None else self._per_second + _LATEST * (rate - self._per_second)
            )

    def seconds(self, pods: int) -> float:
        """Return the expected seconds for the simulation of *pods*; 0 if the rate is unknown."""
        return pods / self._per_second if self._per_second is not None else 0.0

    def effort(self, seconds: float, assumed: Effort) -> Effort:
        """Return how many pods can be simulated in *seconds*; *assumed* if the rate is unknown."""
        return assumed if self._per_second is None else Effort(max(1, int(seconds * self._per_second)))


@dataclass(slots=True)
class Allowance:
    """What the forecasts of one round may still use. The first is always made, so that each round makes progress."""

    effort: Effort
    pace: Pace
    seconds_left: SecondsLeft = unlimited
    started: bool = False
    used_up: bool = False  #: whether a forecast was refused

    def takes(self, pods: int) -> bool:
        """Return whether a simulation of up to this many *pods* may start."""
        late = self.started and self.pace.seconds(pods) > self.seconds_left()
        self.used_up = self.used_up or late or self.effort.exhausted
        return not (late or self.effort.exhausted)

    def spend(self, pods: int, before: float) -> None:
        """Record that *pods* were simulated since ``seconds_left()`` was *before*."""
        self.started = True
        self.effort.spend(pods)
        self.pace.measure(pods, before - self.seconds_left())
