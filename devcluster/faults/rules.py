"""Selection of faults for requests, by rules or at random with a seed."""

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from devcluster.faults.calls import ApiCall
from devcluster.faults.injected import InjectedFault


@dataclass(frozen=True, slots=True)
class FaultRule:
    """A fault for requests of *call* (`str` of an ApiCall; "" for all calls).

    It applies to *times* requests from the *occurrence*-th since `FaultRules.forget` (1 is the first), or to all if
    *occurrence* is None. With *seconds* it also applies to all requests within that time after the first match.
    """

    call: str
    fault: InjectedFault
    occurrence: int | None = 1
    seconds: float = 0.0
    times: int = 1


@dataclass(frozen=True, slots=True)
class RandomFaults:
    """Random faults: each request gets one of *faults* with the probability *rate*; *seed* makes it reproducible."""

    faults: Sequence[InjectedFault]
    rate: float
    seed: int


class FaultRules:
    """The rules of a proxy; thread-safe."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Remove all rules and reset the request counters."""
        with self._lock:
            self._rules: list[FaultRule] = []
            self._since: dict[FaultRule, float] = {}
            self._random: RandomFaults | None = None
            self._chance = random.Random(0)  # noqa: S311 - not for secrets
            self._seen: Counter[str] = Counter()

    def add(self, *rules: FaultRule) -> None:
        with self._lock:
            self._rules += rules

    def randomly(self, faults: RandomFaults | None) -> None:
        """Set the random faults for requests without a matching rule; None disables them."""
        with self._lock:
            self._random = faults
            self._chance = random.Random(faults.seed if faults else 0)  # noqa: S311 - not for secrets

    def fault_for(self, call: ApiCall) -> InjectedFault | None:
        """Count the request and return its fault, or None."""
        with self._lock:
            name = str(call)
            self._seen[name] += 1
            for rule in self._rules:
                if rule.call in ("", name) and rule.fault.applies(call) and self._concerns(rule, name):
                    return rule.fault
            return self._draw(call)

    def _concerns(self, rule: FaultRule, name: str) -> bool:
        started = self._since.get(rule)
        if started is not None:
            return self._monotonic() - started < rule.seconds
        count = self._seen[name] if rule.call else self._seen.total()
        if rule.occurrence is not None and not 0 <= count - rule.occurrence < rule.times:
            return False
        if rule.seconds:
            self._since[rule] = self._monotonic()
        return True

    def _draw(self, call: ApiCall) -> InjectedFault | None:
        if self._random is None or self._chance.random() >= self._random.rate:
            return None
        fitting = [fault for fault in self._random.faults if fault.applies(call)]
        return self._chance.choice(fitting) if fitting else None
