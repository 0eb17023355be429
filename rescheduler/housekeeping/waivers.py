"""Waivers: the daemon stops waiting for replacement pods of earlier drains that a user has waived."""

from collections.abc import Sequence
from functools import partial

from rescheduler.errors import InputError
from rescheduler.housekeeping.synced_memory import ATTEMPTS, loaded
from rescheduler.kube.conflicts import retry_on_conflict
from rescheduler.kube.memory import Absent, MemoryStore, Stored, UnreadableMemory


def waive(store: MemoryStore, controllers: Sequence[str]) -> None:
    """Waive all debts to *controllers* (``namespace/Kind/name``). The daemon applies the waivers in its next round.

    Raises InputError, and waives nothing, if nothing is owed to one of them, or if the memory is missing or unreadable.
    Also raises the errors of :meth:`~rescheduler.kube.memory.MemoryStore.waive`.
    """
    retry_on_conflict(partial(_waive_once, store, controllers), ATTEMPTS)


def _waive_once(store: MemoryStore, controllers: Sequence[str]) -> None:
    stored = _stored(store)
    owed = sorted({str(debt.debt.controller) for debt in loaded(store, stored.content).debts})
    if unknown := [name for name in controllers if name not in owed]:
        raise InputError(f"{', '.join(unknown)}: no open debt; open debts: {', '.join(owed) or 'none'}")
    store.waive({*stored.waived, *controllers}, stored.version)


def _stored(store: MemoryStore) -> Stored:
    match store.read():
        case Stored() as stored:
            return stored
        case Absent():
            raise InputError(f"{store}: not found, so nothing is owed; see --namespace and --memory-name")
        case UnreadableMemory(why):
            raise InputError(why)
