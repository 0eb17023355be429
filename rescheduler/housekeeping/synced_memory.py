"""The memory of a process and its copy in the ConfigMap, which is read each round and written after changes.

A ConfigMap that cannot be read is never overwritten: its content may forbid a drain.
"""

import contextlib
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from rescheduler.clock import Clock
from rescheduler.errors import InputError, NotFound, ReschedulerError, Unauthorized
from rescheduler.kube.client import Client, retry_on_conflict
from rescheduler.kube.memory import Absent, MemoryStore, Reading, Stored, UnreadableMemory
from rescheduler.observe.events import ErrorKind, MemoryDropped, Report, Trouble
from rescheduler.planning.forms import count, utc
from rescheduler.planning.memory import Memory, StoredSettings, fitted, load
from rescheduler.planning.waits import Waits

#: Maximum number of attempts when a write fails with a conflict.
ATTEMPTS: Final = 3

#: Maximum number of writes without a response that are recognized. Usually there is one in a round.
_UNANSWERED: Final = 8

log = logging.getLogger(__name__)

_T = TypeVar("_T")


class MemoryStorage(Protocol):
    """The methods of :class:`rescheduler.kube.memory.MemoryStore` that are used here.

    They are documented there.
    """

    def read(self) -> Reading: ...

    def write(self, content: bytes, summary: str, version: str) -> str: ...

    def waive(self, controllers: Collection[str], version: str) -> None: ...

    def was_created(self) -> bool: ...

    def note_created(self) -> None: ...


@dataclass(frozen=True, slots=True)
class StoredForm(Generic[_T]):
    """A kind of value that is stored in a ConfigMap."""

    name: str  #: for people: ``memory``
    empty: _T
    decode: Callable[[bytes], _T]  #: raises InputError
    merge: Callable[[_T, _T, _T], _T]  #: of the value, the stored one, and the one from which both have come

    def loaded(self, store: object, content: bytes) -> _T:
        """Decode *content*, which was read from *store*. Raises InputError with the name of the store."""
        try:
            return self.decode(content)
        except InputError as error:
            advice = f"to start with an empty {self.name}, delete it and create it again"
            raise InputError(f"{store}: {error}; {advice}") from error


MEMORY: Final = StoredForm(
    "memory", Memory(), load, lambda mine, stored, base: stored if mine == base else mine.merged(stored, base)
)


class StoredValue(Generic[_T]):
    """A value of this process and its copy in a ConfigMap. What others change there is merged, and not overwritten."""

    def __init__(self, store: MemoryStorage, form: StoredForm[_T]) -> None:
        self.value = self.base = form.empty  #: the base: as last read or written
        self.version = ""  #: resourceVersion of the ConfigMap; "" if it does not exist
        self._store, self._form = store, form
        self._unanswered: dict[bytes, _T] = {}  # what was sent since the last response; one of it may be stored

    @property
    def is_stored(self) -> bool:
        """Whether the copy is certain to be equal to the value. It is not after a write without a response."""
        return self.value == self.base and not self._unanswered

    def read(self) -> Stored | Absent:
        """Read the copy, and merge changes that are not stored. Without a copy, the value stays, and is all new.

        Raises InputError if it is not readable, and Retryable.
        """
        match self._store.read():
            case Stored(content, version) as found:
                if version != self.version:
                    stored = self._form.loaded(self._store, content)
                    self.value = self._form.merge(self.value, stored, self._unanswered.get(content, self.base))
                    self._take_over(stored, version)
                return found
            case Absent(version) as found:
                self._take_over(self._form.empty, version)
                return found
            case UnreadableMemory(why):
                raise InputError(why)

    def write(self, value: _T, content: bytes, summary: str) -> None:
        """Store *content*, which stands for *value*. Raises Conflict if the copy has changed since :meth:`read`."""
        self._unanswered[content] = value
        if len(self._unanswered) > _UNANSWERED:
            del self._unanswered[next(iter(self._unanswered))]
        self.version = self._store.write(content, summary, self.version)
        self.value = self.base = value
        self._unanswered = {}

    def forget(self) -> None:
        """Discard the value, with what is not stored."""
        self.value = self.base = self._form.empty
        self.version, self._unanswered = "", {}

    def _take_over(self, stored: _T, version: str) -> None:
        """Note what the copy has. A write that was sent before cannot arrive any more if there is a newer version."""
        if version != self.version:
            self._unanswered = {}
        self.base, self.version = stored, version


class SyncedMemory:
    """The memory and its stored copy. Used by the loop's thread only. :meth:`save` stores changes of :attr:`memory`."""

    def __init__(
        self,
        store: MemoryStorage,
        waits: Waits,
        clock: Clock,
        report: Report,
        leading: Callable[[], bool],
        *,
        dry_run: bool = False,
        settings: StoredSettings | None = None,
    ) -> None:
        """Create the memory. *leading* returns whether this replica may write at present. A dry run writes nothing.

        *settings* are stored with the memory, for commands that read it.
        """
        self._settings = settings
        self._copy = StoredValue(store, MEMORY)
        self.trouble = ""  #: why the memory cannot be read or stored, or ""
        self._store = store
        self._waits = waits
        self._clock = clock
        self._report = report
        self._leading = leading
        self._dry_run = dry_run
        self._due = False  # the ConfigMap must be written even if nothing has changed
        self._readable = False
        self._known = False  # this process has read the ConfigMap
        self._noted = False  # the Lease records that the ConfigMap was created

    @property
    def memory(self) -> Memory:
        """The memory. It is set to what is to be stored."""
        return self._copy.value

    @memory.setter
    def memory(self, memory: Memory) -> None:
        self._copy.value = memory

    def refresh(self) -> None:
        """Read the ConfigMap at the start of a round, apply waivers, and write the ConfigMap if necessary.

        Only for the leader. Raises ReschedulerError if the API server does not respond.
        """
        before, self.trouble, self._readable = self.trouble, "", False
        try:
            self._read_stored()
        except (InputError, Unauthorized) as error:
            self.trouble = str(error)
            if self._dry_run and self.trouble != before:
                self._report(Trouble(ErrorKind.READ, f"this dry run could not read the memory: {error}"))
            return
        self.memory = self.memory.bounded(self._clock.now(), self._waits)
        if self._settings is not None:
            self.memory = msgspec.structs.replace(self.memory, settings=self._settings)
        self.save()

    def save(self) -> bool:
        """Store the changes. Return whether all are stored; otherwise no drain starts until they are.

        Errors are reported and not raised.
        """
        if self._dry_run or (self._copy.is_stored and not self._due):
            return True
        if not self._readable or not self._leading():
            return False
        try:
            self._write()
        except ReschedulerError as error:
            if not self._leading():
                return False  # not an error: another replica writes the memory now
            self.trouble = str(error)
            self._report(Trouble(ErrorKind.WRITE, f"the memory could not be stored: {error}"))
            return False
        self.trouble = ""
        return True

    def peek(self) -> None:
        """Read the stored memory without writing, for a replica that is not the leader. Call :meth:`forget` afterwards.

        If the stored memory cannot be read, :attr:`memory` stays empty.
        """
        with contextlib.suppress(ReschedulerError):
            if isinstance(stored := self._store.read(), Stored):
                self.memory = MEMORY.loaded(self._store, stored.content).bounded(self._clock.now(), self._waits)

    def forget(self) -> None:
        """Discard the memory, including unsaved changes, because another replica is the leader."""
        self._copy.forget()
        self.trouble = ""

    def _read_stored(self) -> None:
        before, base = self._copy.version, self._copy.base
        match self._copy.read():
            case Stored(version=version, waived=waived):
                self._due = self._due and version == before
                self._waive(waived)
                self._note_created()
            case Absent(version):
                self._start_again(version, base)
        self._readable = True

    def _waive(self, names: Sequence[str]) -> None:
        if not names:
            return
        before, self.memory = self.memory, self.memory.waived(names)
        for owed in set(before.debts) - set(self.memory.debts):
            log.warning("waived the debt to %s from the drain of %s", owed.debt.controller, owed.node)
        self._due = True

    def _start_again(self, version: str, stored: Memory) -> None:
        """Start with an empty memory, because the ConfigMap does not exist, or is empty and has this *version*.

        If the memory was stored before, its content may have forbidden a drain, so the drain delay starts. What this
        process still has to do is kept: debts, also settled ones, open orders, and an open reactivation. So is what it
        has noted since it read or wrote what was *stored*: nobody has deleted that.
        """
        if self._known or self._store.was_created():
            log.warning("%s was %s: the drain delay starts again", self._store, "emptied" if version else "deleted")
            empty = Memory(drained_at=self._clock.now(), reactivation=self.memory.reactivation)
            self.memory = self.memory.merged(empty, stored)
        self._due = True

    def _write(self) -> None:
        retry_on_conflict(self._write_once, ATTEMPTS, self._read_stored)
        self._due = False
        self._note_created()

    def _write_once(self) -> None:
        now = self._clock.now()
        stored = fitted(self.memory.current(now, self._waits))
        self._copy.write(stored.memory, stored.content, stored.memory.summary(now))
        if stored.dropped:
            self._report(MemoryDropped(stored.dropped, stored.detail))

    def _note_created(self) -> None:
        self._known = True
        if self._noted or self._dry_run:
            return
        with contextlib.suppress(NotFound):  # there may be no Lease
            if not self._store.was_created():
                self._store.note_created()
            self._noted = True


def stored_ledger(namespace: str, name: str, client: Client, clock: Clock, report: Report) -> tuple[SyncedMemory, str]:
    """Return the memory of a proxy, which the ConfigMap *name* stores, and advice on waiving a debt in it."""
    memory = SyncedMemory(MemoryStore(client, namespace, name), Waits(), clock, report, lambda: True)
    command = f"rescheduler resume -n {namespace} --memory-name={name} --waive NAMESPACE/KIND/NAME"
    return memory, f"{command} waives a debt"


# Waivers: the daemon stops waiting for replacement pods of earlier drains that a user has waived.


def waive(store: MemoryStorage, names: Sequence[str]) -> list[str]:
    """Waive all debts to *names*, and do not set them aside any more. The daemon applies this in its next round.

    *names* are owners (``namespace/Kind/name``), or namespaces with all their owners. Return what is released, one line
    each. Raises InputError, and waives nothing, if there is nothing to release for one of them, or if the memory is
    missing or unreadable. Also raises the errors of :meth:`~rescheduler.kube.memory.MemoryStore.waive`.
    """
    return retry_on_conflict(partial(_waive_once, store, names), ATTEMPTS)


def _waive_once(store: MemoryStorage, names: Sequence[str]) -> list[str]:
    stored = _stored(store)
    memory = MEMORY.loaded(store, stored.content)
    if unknown := [name for name in names if memory.waived([name]) == memory]:
        known = {str(owed.debt.controller) for owed in memory.debts} | set(memory.not_recovered.by_name)
        known |= {str(refusal.owner) for refusal in memory.refusals.by_key.values()}
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
    refusals = [
        f"{refusal.owner}: the kubelet of {refusal.node} refused a pod at {utc(refusal.at)}"
        for key, refusal in sorted(before.refusals.by_key.items())
        if key not in after.refusals.by_key
    ]
    return debts + waits + refusals


def _stored(store: MemoryStorage) -> Stored:
    match store.read():
        case Stored() as stored:
            return stored
        case Absent(version):
            raise InputError(
                f"{store}: {'empty' if version else 'not found'}, so nothing is owed; see --namespace and --memory-name"
            )
        case UnreadableMemory(why):
            raise InputError(why)
