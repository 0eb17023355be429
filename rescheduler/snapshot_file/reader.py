"""Read the output of ``kubectl get … -o json`` (or YAML, gzipped or not) as a snapshot."""

import contextlib
from typing import Final

from predicates.objects import Object, Pod, ServerVersion
from predicates.snapshot import Snapshot, key_of
from predicates.unreadable import Unreadable
from predicates.wire import FILE_KINDS, Decoder, Interner, WireError, unreadable
from rescheduler.errors import InputError
from rescheduler.settings import Scheduling
from rescheduler.snapshot_file import items, reduction, text

_UNKNOWN = Scheduling()

_ADVICE: Final = "`rescheduler snapshot > FILE` writes a file that can be read"


def read(path: str, scheduling: Scheduling = _UNKNOWN) -> Snapshot:
    """Read the file *path*, or standard input for ``-``. The snapshot lists the objects that cannot be decoded.

    Unless *scheduling* says otherwise, the scheduler's rules are those of the version in the file.

    Raises :class:`~rescheduler.errors.UsageError` if the file cannot be opened, and
    :class:`~rescheduler.errors.InputError`, with the file name, if the content is no list of Kubernetes objects.
    """
    if reduction.is_worthwhile(path):
        with contextlib.suppress(reduction.ReductionError):
            return _read_reduced(path, scheduling)
    name = text.name_of(path)
    objects = _Objects(name)
    try:
        items.each(text.chunks(path), FILE_KINDS, objects.add, objects.add_error)
    except ValueError as error:
        raise InputError(f"{name}: {error}; {_ADVICE}") from error
    return objects.snapshot(scheduling)


def version_in(snapshot: Snapshot) -> str:
    """Return the version of the API server that the file of *snapshot* contains, or ""."""
    for version in snapshot.of("ServerVersion").values():
        assert isinstance(version, ServerVersion)
        return version.git_version
    return ""


def _read_reduced(path: str, scheduling: Scheduling) -> Snapshot:
    objects = _Objects(text.name_of(path))
    for kind, item in reduction.each(path):
        try:
            objects.add(kind, item)
        except ValueError as error:
            objects.add_error(error)
    return objects.snapshot(scheduling)


class _Objects:
    """Collects the objects of a file."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._decoder = Decoder(Interner())
        self._by_kind: dict[str, dict[str, Object]] = {kind: {} for kind in FILE_KINDS}
        self._unreadable: dict[Unreadable, None] = {}

    def add(self, kind: str, item: bytes) -> None:
        decoded = self._decoder.decode(kind, item)
        if not (decoded.name if isinstance(decoded, Pod) else decoded.metadata.name):
            raise WireError(unreadable(kind, item, "expected metadata.name"))
        existing = self._by_kind[kind].setdefault(key_of(decoded), decoded)
        if existing is not decoded and existing != decoded:
            raise InputError(f"{self._file}: {kind} {key_of(decoded)} occurs twice, with different content")

    def add_error(self, error: ValueError) -> None:
        if not isinstance(error, WireError):
            raise error
        self._unreadable[error.unreadable] = None

    def snapshot(self, scheduling: Scheduling) -> Snapshot:
        snapshot = Snapshot()
        snapshot.replace_by_key("ServerVersion", self._by_kind.pop("ServerVersion"))
        snapshot.scheduler = scheduling.scheduler(version_in(snapshot))
        for kind, objects in self._by_kind.items():
            snapshot.replace_by_key(kind, objects)
        snapshot.unreadable = tuple(self._unreadable)
        return snapshot
