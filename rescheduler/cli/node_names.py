"""Short names of nodes: without the suffix that all of them have in common."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

#: Shorter suffixes are not worth an explanation.
_LEAST: Final = 8


@dataclass(frozen=True, slots=True)
class NodeNames:
    """Shortens the names of nodes."""

    suffix: str = ""  #: what is left out; "" if nothing is

    @classmethod
    def of(cls, names: Iterable[str]) -> "NodeNames":
        """Return the shortening for *names*: their common suffix, from a dot on, if it leaves something of each."""
        parts = [name.split(".")[:0:-1] for name in names]  # of each name, from the end, without the first part
        common = list(takewhile(lambda equal: len(set(equal)) == 1, zip(*parts, strict=False)))
        suffix = "".join(f".{equal[0]}" for equal in reversed(common))
        return cls(suffix if len(parts) > 1 and len(suffix) > _LEAST else "")

    def short(self, name: str) -> str:
        """Return *name* without the suffix."""
        return name.removesuffix(self.suffix)

    def shorten_in(self, text: str) -> str:
        """Return *text* with the suffix left out of each node name that it contains."""
        return text.replace(self.suffix, "") if self.suffix else text

    @property
    def note(self) -> str:
        """Return the sentence that states what is left out, or ""."""
        return f"Node names end with {self.suffix}, which is left out." if self.suffix else ""
