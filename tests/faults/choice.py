"""Which trials there are: every call of a drain with every fault that means anything for it, and kills."""

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Final

from deploy.local.faults.calls import ApiCall
from deploy.local.faults.catalog import UNBOUND_FAULTS
from tests.faults.recording import CallOfDrain
from tests.faults.trials import JUMPS, KILLS, Trial, Trouble

#: These also last for a while: an outage, rights that are missing, an overloaded server.
LASTING: Final = ("403", "500", "503", "429-retry-after", "reset-before", "reset-after", "stall")
LASTING_SECONDS: Final = 8.0

#: A pod arrives in every so many-th run with a kill.
_LATE_POD: Final = 3

#: Calls that are made all the time, or after a drain's end: so many of them are enough.
_REPEATED: Final = {
    "create events": 1,
    "create selfsubjectaccessreviews": 1,
    "get configmaps": 2,
    "get leases": 2,
    "patch leases": 2,
}


def faults_by_call(calls: Sequence[CallOfDrain]) -> dict[CallOfDrain, list[str]]:
    """The faults that mean anything for each of *calls*."""
    return {
        call: [*(name for name, fault in UNBOUND_FAULTS.items() if fault.applies(_api_call(call))), *JUMPS]
        for call in calls
    }


def every_fault(calls: Sequence[CallOfDrain], *, every_occurrence: bool = False) -> list[Trial]:
    """One call fails once, or for a while, in each trial.

    Of reads the first occurrence is tried, unless *every_occurrence* is; of writes each one. Failures that last come
    last, and of the others those of writes first.
    """
    chosen = [call for call in _worthwhile(calls) if every_occurrence or call.writes or call.occurrence == 1]
    troubles = [trouble for call, kinds in faults_by_call(chosen).items() for trouble in _troubles(call, kinds)]
    return [Trial((trouble,)) for trouble in sorted(troubles, key=lambda each: (each.seconds, not each.call.writes))]


def every_kill(calls: Sequence[CallOfDrain]) -> list[Trial]:
    """The daemon is killed before and after each call."""
    pairs = itertools.product(_worthwhile(calls), KILLS)
    return [
        Trial((Trouble(call, kind),), late_pod=number % _LATE_POD == 0) for number, (call, kind) in enumerate(pairs)
    ]


def covering(calls: Sequence[CallOfDrain], *, seed: int = 1) -> list[Trial]:
    """Few trials with many troubles each, in which each call has each of its faults once.

    In a trial each call has another fault, and a fault that ends a call early may keep a later one from being made;
    `Result.reached` tells.
    """
    kinds = faults_by_call(calls)
    chance = random.Random(seed)
    for names in kinds.values():
        chance.shuffle(names)
    rows = max(map(len, kinds.values()))
    return [
        Trial(tuple(Trouble(call, names[row]) for call, names in kinds.items() if row < len(names)))
        for row in range(rows)
    ]


def one_of_each_verb(calls: Sequence[CallOfDrain]) -> list[CallOfDrain]:
    """The first call of each verb and resource that a drain cannot do without, and one list and watch."""
    wanted = ("list pods", "watch pods", "get nodes", "get replicasets")
    first = [call for call in calls if call.occurrence == 1]
    return [call for call in first if call.writes or call.of_pool or "dry run" in call.name or call.name in wanted]


def _troubles(call: CallOfDrain, kinds: Sequence[str]) -> Iterator[Trouble]:
    for kind in kinds:
        yield Trouble(call, kind)
        if kind in LASTING:
            yield Trouble(call, kind, LASTING_SECONDS)


def _worthwhile(calls: Sequence[CallOfDrain]) -> list[CallOfDrain]:
    return [call for call in calls if call.occurrence <= _REPEATED.get(call.name, call.occurrence)]


def _api_call(call: CallOfDrain) -> ApiCall:
    verb, _, resource = call.name.partition(" ")
    return ApiCall(verb, resource)
