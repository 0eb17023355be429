"""Selection of trials: every call of a drain with every fault that applies to it, and kills at every call."""

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Final

from devcluster.faults.calls import ApiCall
from devcluster.faults.catalog import UNBOUND_FAULTS
from tests.faults.beside import BESIDE, CHANGE, BesideName
from tests.faults.recording import CallOfDrain
from tests.faults.trials import JUMPS, KILLS, Disturbance, FaultTrial, Meanwhile

#: Faults that are also injected for several seconds: outages, missing permissions, server overload.
LASTING: Final = ("403", "500", "503", "429-retry-after", "reset-before", "reset-after", "stall")
LASTING_SECONDS: Final = 8.0

#: What changes while the killed daemon is not running, in turn: in `make faults`, and in the part of it in `make test`.
MEANWHILE: Final[tuple[Meanwhile, ...]] = ("late pod", "", "edit", "", "relabel")
_FEWER: Final[tuple[Meanwhile, ...]] = ("late pod", "", "")

#: The calls of a rolling update: the intent on the node, the change, a look at its progress, and the change of the mark
#: after it. And what undoes it.
_STEPS: Final = (
    CallOfDrain("patch nodes (surging)", writes=True),
    CallOfDrain(CHANGE, writes=True),
    CallOfDrain("get deployments", 6),
    CallOfDrain("patch nodes (owing)", 2, writes=True),
)
_UNDONE: Final = (CallOfDrain(CHANGE, 2, writes=True),)

#: Number of occurrences to test of calls that repeat all the time or that follow the end of a drain.
_REPEATED: Final = {
    "create events": 1,
    "create selfsubjectaccessreviews": 1,
    "get configmaps": 2,
    "get deployments": 4,
    "get leases": 2,
    "patch leases": 2,
}


def faults_by_call(calls: Sequence[CallOfDrain]) -> dict[CallOfDrain, list[str]]:
    """Return the faults that apply to each call."""
    return {call: [*applicable(call), *JUMPS] for call in calls}


def applicable(call: CallOfDrain) -> list[str]:
    """Return the faults of the catalog that apply to *call*."""
    verb, _, resource = call.name.partition(" ")
    return [name for name, fault in UNBOUND_FAULTS.items() if fault.applies(ApiCall(verb, resource))]


def every_fault(calls: Sequence[CallOfDrain], *, every_occurrence: bool = False) -> list[FaultTrial]:
    """Return trials in which a single call fails, once or for several seconds.

    Every occurrence of a write is tested. Of reads only the first, unless *every_occurrence* is set. One-time
    failures come first, and among them those of writes.
    """
    chosen = [call for call in _worthwhile(calls) if every_occurrence or call.writes or call.occurrence == 1]
    troubles = [trouble for call, kinds in faults_by_call(chosen).items() for trouble in _troubles(call, kinds)]
    return [
        FaultTrial((trouble,)) for trouble in sorted(troubles, key=lambda each: (each.seconds, not each.call.writes))
    ]


def every_kill(calls: Sequence[CallOfDrain], meanwhile: Sequence[Meanwhile] = _FEWER) -> list[FaultTrial]:
    """Return trials in which the daemon is killed before or after a call, with the changes of *meanwhile* in turn."""
    pairs = itertools.product(_worthwhile(calls), KILLS)
    return [
        FaultTrial((Disturbance(call, kind),), meanwhile=change)
        for (call, kind), change in zip(pairs, itertools.cycle(meanwhile), strict=False)
    ]


def kills_beside(name: BesideName) -> list[FaultTrial]:
    """Return trials in which the daemon is killed at each step of a rolling update that *name* disturbs."""
    steps = [*_STEPS, *(_UNDONE if BESIDE[name].lasts else ())]
    pairs = itertools.product(steps, KILLS)
    return [FaultTrial((Disturbance(call, kind),), program="surge", beside=name) for call, kind in pairs]


def covering(calls: Sequence[CallOfDrain], *, seed: int = 1) -> list[FaultTrial]:
    """Return few trials with many faults each; together they cover every fault of every call.

    A fault that ends a call early can prevent later calls; `Result.reached` lists the faults that took effect.
    """
    kinds = faults_by_call(calls)
    chance = random.Random(seed)
    for names in kinds.values():
        chance.shuffle(names)
    rows = max(map(len, kinds.values()))
    return [
        FaultTrial(tuple(Disturbance(call, names[row]) for call, names in kinds.items() if row < len(names)))
        for row in range(rows)
    ]


def first_of_each_verb(calls: Sequence[CallOfDrain]) -> list[CallOfDrain]:
    """Return the first call of each verb and resource that every drain needs, and one list and one watch."""
    wanted = ("list pods", "watch pods", "get nodes", "get replicasets", "get leases", "get configmaps")
    first = [call for call in calls if call.occurrence == 1]
    return [call for call in first if call.writes or call.of_pool or "dry run" in call.name or call.name in wanted]


def _troubles(call: CallOfDrain, kinds: Sequence[str]) -> Iterator[Disturbance]:
    for kind in kinds:
        yield Disturbance(call, kind)
        if kind in LASTING:
            yield Disturbance(call, kind, LASTING_SECONDS)


def _worthwhile(calls: Sequence[CallOfDrain]) -> list[CallOfDrain]:
    return [call for call in calls if call.occurrence <= _REPEATED.get(call.name, call.occurrence)]
