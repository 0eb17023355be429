"""Waivers: the daemon stops waiting for replacement pods of earlier drains that a user has waived."""

from collections.abc import Sequence
from functools import partial

from rescheduler.errors import InputError
from rescheduler.housekeeping.synced_memory import ATTEMPTS, loaded
from rescheduler.kube.conflicts import retry_on_conflict
from rescheduler.kube.memory import Absent, MemoryStore, Stored, UnreadableMemory
from rescheduler.planning.memory import Memory
from rescheduler.planning.timestamps import utc
from rescheduler.planning.units import count


def waive(store: MemoryStore, names: Sequence[str]) -> list[str]:
    """Waive all debts to *names*, and do not set them aside any more. The daemon applies this in its next round.

    *names* are owners (``namespace/Kind/name``), or namespaces with all their owners. Return what is released, one line
    each. Raises InputError, and waives nothing, if there is nothing to release for one of them, or if the memory is
    missing or unreadable. Also raises the errors of :meth:`~rescheduler.kube.memory.MemoryStore.waive`.
    """
    return retry_on_conflict(partial(_waive_once, store, names), ATTEMPTS)


def _waive_once(store: MemoryStore, names: Sequence[str]) -> list[str]:
    stored = _stored(store)
    memory = loaded(store, stored.content)
    if unknown := [name for name in names if memory.waived([name]) == memory]:
        known = {str(owed.debt.controller) for owed in memory.debts} | set(memory.not_recovered.by_name)
        raise InputError(f"{', '.join(unknown)}: nothing to release; known: {', '.join(sorted(known)) or 'none'}")
    store.waive({*stored.waived, *names}, stored.version)
    return _released(memory, memory.waived(names))


def _released(before: Memory, after: Memory) -> list[str]:
    debts = [
        f"{owed.debt.controller}: {count(max(owed.debt.bound, owed.debt.ready), 'pod')} owed since the drain of "
        f"{owed.node} at {utc(owed.since)}"
        for owed in before.debts
        if owed not in after.debts
    ]
    waits = [
        f"{name}: its pods were not to be moved before {utc(wait.until)}"
        for name, wait in sorted(before.not_recovered.by_name.items())
        if name not in after.not_recovered.by_name
    ]
    return debts + waits


def _stored(store: MemoryStore) -> Stored:
    match store.read():
        case Stored() as stored:
            return stored
        case Absent(version):
            raise InputError(
                f"{store}: {'empty' if version else 'not found'}, so nothing is owed; see --namespace and --memory-name"
            )
        case UnreadableMemory(why):
            raise InputError(why)
