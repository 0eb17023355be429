"""The memory's ConfigMap at the API's edge, in memory: versions, preconditions, and answers that a test asks for."""

from rescheduler.errors import Conflict, NotFound, ReschedulerError
from rescheduler.kube.memory import Absent, Reading, Stored, Unreadable


class ConfigMap:
    """What :class:`rescheduler.kube.memory.MemoryStore` reads and writes, with the Lease's annotation."""

    def __init__(self, *, elected: bool = True) -> None:
        self.stored: Stored | None = None
        self.summary = ""
        self.created = False  # by the Lease's word
        self.elected = elected  # there is a Lease
        self.unreadable = ""
        self.refusals: list[ReschedulerError | None] = []  # of the next writes; None: it is taken
        self.writes = 0
        self.attempts = 0
        self._version = 0

    def __str__(self) -> str:
        return "ConfigMap kube-system/spot-rescheduler-memory"

    def read(self) -> Reading:
        if self.unreadable:
            return Unreadable(self.unreadable)
        return self.stored or Absent()

    def write(self, content: bytes, summary: str, version: str) -> str:
        self.attempts += 1
        if self.refusals and (refusal := self.refusals.pop(0)) is not None:
            raise refusal
        if version and self.stored is None:
            raise NotFound("patch configmap: not found (404)")
        if version != (self.stored.version if self.stored else ""):
            raise Conflict("patch configmap: the object has been modified (409)")
        self.put(content)
        self.summary = summary
        self.writes += 1
        return str(self._version)

    def was_created(self) -> bool:
        return self.elected and self.created

    def note_created(self) -> None:
        self.created = True

    # What others do

    def put(self, content: bytes, *waived: str) -> None:
        self._version += 1
        self.stored = Stored(content, str(self._version), waived)

    def waive(self, *controllers: str) -> None:
        assert self.stored is not None
        self.put(self.stored.content, *controllers)

    def delete(self) -> None:
        self.stored = None
