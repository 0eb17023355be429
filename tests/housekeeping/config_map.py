"""An in-memory ConfigMap for the memory store, with versions, preconditions and scripted errors."""

from collections.abc import Collection

from rescheduler.errors import Conflict, ReschedulerError
from rescheduler.kube.memory import Absent, Reading, Stored, UnreadableMemory


class InMemoryConfigMap:
    """An in-memory :class:`rescheduler.kube.memory.MemoryStore`, including the annotation of the Lease."""

    def __init__(self, name: str = "spot-rescheduler-memory", *, elected: bool = True) -> None:
        self.name = name
        self.stored: Stored | None = None
        self.summary = ""
        self.created = False  # whether the Lease records that the memory was created
        self.elected = elected  # whether the Lease exists
        self.unreadable = ""
        self.refusals: list[ReschedulerError | None] = []  # results of the next writes; None: success
        self.writes = 0
        self.attempts = 0
        self._version = 0
        self._empty = ""  # the version of a ConfigMap without content, as in the shipped manifests

    def __str__(self) -> str:
        return f"ConfigMap kube-system/{self.name}"

    def read(self) -> Reading:
        if self.unreadable:
            return UnreadableMemory(self.unreadable)
        return self.stored or Absent(self._empty)

    def write(self, content: bytes, summary: str, version: str) -> str:
        self.attempts += 1
        if self.refusals and (refusal := self.refusals.pop(0)) is not None:
            raise refusal
        actual = self.stored.version if self.stored else self._empty
        if version and not actual:
            raise Conflict("patch configmap: not found (404)")
        if version != actual:
            raise Conflict("patch configmap: the object has been modified (409)")
        self.writes += 1
        if (self.stored, self.summary) == (Stored(content, actual), summary):
            return actual  # an API server does not give a new version to what does not change
        self.put(content)
        self.summary = summary
        return str(self._version)

    def was_created(self) -> bool:
        return self.elected and self.created

    def note_created(self) -> None:
        self.created = True

    # Changes by others

    def put(self, content: bytes, *waived: str) -> None:
        self._version += 1
        self.stored = Stored(content, str(self._version), waived)

    def waive(self, controllers: Collection[str], version: str = "") -> None:
        assert self.stored is not None
        assert version in ("", self.stored.version)
        self.put(self.stored.content, *sorted(controllers))

    def delete(self) -> None:
        self.stored, self._empty = None, ""

    def empty(self) -> None:
        """Remove the content, or create the ConfigMap without content."""
        self._version += 1
        self.stored, self._empty = None, str(self._version)
