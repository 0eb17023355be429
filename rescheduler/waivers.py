"""Waivers: a person tells the daemon not to wait for replacement pods that an earlier drain still owes."""

from collections.abc import Sequence

from rescheduler.errors import Conflict, InputError
from rescheduler.kube.memory import Absent, MemoryStore, Stored, Unreadable
from rescheduler.synced_memory import ATTEMPTS, loaded


def waive(store: MemoryStore, controllers: Sequence[str]) -> None:
    """Waive all debts to *controllers*, ``namespace/Kind/name``; the daemon applies that in its next round.

    Raises InputError where one of them is owed nothing, or the memory is missing or unreadable: then nothing is
    waived. Otherwise as :meth:`~rescheduler.kube.memory.MemoryStore.waive`.
    """
    refused = Conflict("")
    for _ in range(ATTEMPTS):
        stored = _stored(store)
        owed = sorted({str(debt.debt.controller) for debt in loaded(store, stored.content).debts})
        if unknown := [name for name in controllers if name not in owed]:
            raise InputError(f"{', '.join(unknown)}: nothing is owed; owed is: {', '.join(owed) or 'nothing at all'}")
        try:
            store.waive({*stored.waived, *controllers}, stored.version)
        except Conflict as error:
            refused = error
        else:
            return
    raise refused


def _stored(store: MemoryStore) -> Stored:
    match store.read():
        case Stored() as stored:
            return stored
        case Absent():
            raise InputError(f"{store}: not found, so nothing is owed; see --namespace and --memory-name")
        case Unreadable(why):
            raise InputError(why)
