"""What the invariants are asked about, one moment after the other."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from tests.invariants.history import History, Revision, SentWrite, Termination, seconds
from tests.invariants.objects import SeenPod
from tests.invariants.rules import Rules

#: A pod's deletion, by times that are cut to whole seconds, was not of an eviction that came so much later.
OTHERS_SECONDS: Final = 2.0

#: What was written before a machine was ordered away has been seen so long after that.
SEEN_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Wrote:
    """An object was written. Asked after it was applied."""

    revision: Revision

    @property
    def at(self) -> datetime:
        return self.revision.at


@dataclass(frozen=True, slots=True)
class PodEvicted:
    """A pod that the daemon evicted is about to be shown as terminating or deleted; asked before that is applied."""

    write: SentWrite
    pod: SeenPod  #: as it was before
    revision: Revision  #: with which it terminates

    @property
    def at(self) -> datetime:
        return self.write.handled


@dataclass(frozen=True, slots=True)
class MachineTerminated:
    """The daemon ordered a machine away; all that was written before has been applied."""

    termination: Termination

    @property
    def at(self) -> datetime:
        return self.termination.at


HistoryMoment: TypeAlias = Wrote | PodEvicted | MachineTerminated


def moments(history: History, rules: Rules) -> Iterator[HistoryMoment]:
    """All moments of *history* in order.

    A machine's end has no revision. It stands behind everything that was seen until a moment later.
    """
    evictions = _evictions(history, rules)
    waiting = sorted(history.terminations, key=lambda termination: termination.at)
    before: dict[str, SeenPod] = {}
    for revision in history.revisions:
        while waiting and waiting[0].at + seconds(SEEN_SECONDS) < revision.at:
            yield MachineTerminated(waiting.pop(0))
        item = revision.object
        if isinstance(item, SeenPod):
            write = evictions.get((item.metadata.uid, revision.number))
            if write is not None:
                yield PodEvicted(write, before.get(item.metadata.uid, item), revision)
            before[item.metadata.uid] = item
        yield Wrote(revision)
    yield from map(MachineTerminated, waiting)


def _evictions(history: History, rules: Rules) -> dict[tuple[str, int], SentWrite]:
    """Evictions that made a pod terminate, by its UID and the revision of that."""
    ends = _ends(history.revisions)
    made: dict[tuple[str, int], SentWrite] = {}
    for write in ours(history.writes, rules):
        if write.kind != "pods/eviction" or not write.accepted or write.dry_run:
            continue
        for revision in ends[write.namespace, write.name]:
            if write.uid in ("", revision.object.metadata.uid) and _caused(write, revision):
                made.setdefault((revision.object.metadata.uid, revision.number), write)
                break
    return made


def _ends(revisions: Sequence[Revision]) -> defaultdict[tuple[str, str], list[Revision]]:
    """With which revision each pod terminates, by namespace and name."""
    ends: defaultdict[tuple[str, str], list[Revision]] = defaultdict(list)
    known: set[str] = set()
    for revision in revisions:
        item = revision.object
        if isinstance(item, SeenPod) and (item.deleting or revision.gone) and item.metadata.uid not in known:
            known.add(item.metadata.uid)
            ends[item.metadata.namespace, item.metadata.name].append(revision)
    return ends


def _caused(write: SentWrite, revision: Revision) -> bool:
    """Whether the pod terminates because of *write*; somebody else may have deleted it before."""
    if revision.at < write.received:
        return False
    meta = revision.object.metadata
    if meta.deletion_timestamp is None:
        return True
    asked = meta.deletion_timestamp - seconds(meta.deletion_grace_period_seconds or 0)
    return write.received - seconds(OTHERS_SECONDS) <= asked <= write.handled + seconds(OTHERS_SECONDS)


def ours(writes: Sequence[SentWrite], rules: Rules) -> Iterator[SentWrite]:
    """Writes of the daemon; those that change a Lease only show who holds it."""
    return (write for write in writes if write.holder is None and rules.user in ("", write.user))
