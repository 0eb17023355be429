"""The moments of a history at which invariants are checked."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from tests.invariants.history import History, ObservedTermination, Revision, SentWrite, seconds
from tests.invariants.objects import SeenPod
from tests.invariants.rules import Rules

#: Tolerance between an eviction and the deletion time of its pod, which has a resolution of one second.
OTHERS_SECONDS: Final = 2.0

#: Writes before the termination of a machine are seen within this time after it.
SEEN_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Wrote:
    """A write of an object; checked after it was applied."""

    revision: Revision

    @property
    def at(self) -> datetime:
        return self.revision.at


@dataclass(frozen=True, slots=True)
class PodEvicted:
    """An eviction by the daemon; checked before the pod's termination or deletion is applied."""

    write: SentWrite
    pod: SeenPod  #: the pod before the eviction
    revision: Revision  #: the revision with the termination

    @property
    def at(self) -> datetime:
        return self.write.handled


@dataclass(frozen=True, slots=True)
class MachineTerminated:
    """A termination of a machine by the daemon; checked after all earlier writes were applied."""

    termination: ObservedTermination

    @property
    def at(self) -> datetime:
        return self.termination.at


HistoryMoment: TypeAlias = Wrote | PodEvicted | MachineTerminated


def moments(history: History, rules: Rules) -> Iterator[HistoryMoment]:
    """Yield all moments of *history* in order.

    A termination of a machine has no revision. It is ordered after all writes that were seen within SEEN_SECONDS.
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
    """Return the evictions that caused a termination, by pod UID and revision."""
    ends = _ends(history.revisions)
    evictions: dict[tuple[str, int], SentWrite] = {}
    for write in ours(history.writes, rules):
        if write.kind != "pods/eviction" or not write.accepted or write.dry_run:
            continue
        for revision in ends[write.namespace, write.name]:
            if write.uid in ("", revision.object.metadata.uid) and _caused(write, revision):
                evictions.setdefault((revision.object.metadata.uid, revision.number), write)
                break
    return evictions


def _ends(revisions: Sequence[Revision]) -> defaultdict[tuple[str, str], list[Revision]]:
    """Return the revisions with which pods start to terminate, by namespace and name."""
    ends: defaultdict[tuple[str, str], list[Revision]] = defaultdict(list)
    known: set[str] = set()
    for revision in revisions:
        item = revision.object
        if isinstance(item, SeenPod) and (item.deleting or revision.gone) and item.metadata.uid not in known:
            known.add(item.metadata.uid)
            ends[item.metadata.namespace, item.metadata.name].append(revision)
    return ends


def _caused(write: SentWrite, revision: Revision) -> bool:
    """Return whether *write* caused the termination; another client may have deleted the pod before."""
    if revision.at < write.received:
        return False
    meta = revision.object.metadata
    if meta.deletion_timestamp is None:
        return True
    checked = meta.deletion_timestamp - seconds(meta.deletion_grace_period_seconds or 0)
    return write.received - seconds(OTHERS_SECONDS) <= checked <= write.handled + seconds(OTHERS_SECONDS)


def ours(writes: Sequence[SentWrite], rules: Rules) -> Iterator[SentWrite]:
    """Return the writes of the daemon, without writes to its Lease."""
    return (write for write in writes if write.holder is None and rules.user in ("", write.user))
