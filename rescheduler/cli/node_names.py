"""Short names of nodes, without the suffix that all names share."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

#: The minimum length of a suffix: removing shorter ones is not worth an explanation.
_LEAST: Final = 8


@dataclass(frozen=True, slots=True)
class NodeNames:
    """Shortens the names of nodes."""

    suffix: str = ""  #: the suffix to remove; "" if there is none

    @classmethod
    def of(cls, names: Iterable[str]) -> "NodeNames":
        """Return the object that removes the common suffix of *names*, which starts with a dot and is no full name."""
        parts = [name.split(".")[:0:-1] for name in names]  # the parts of each name from its end, without the first
        common = list(takewhile(lambda equal: len(set(equal)) == 1, zip(*parts, strict=False)))
        suffix = "".join(f".{equal[0]}" for equal in reversed(common))
        return cls(suffix if len(parts) > 1 and len(suffix) > _LEAST else "")

    def short(self, name: str) -> str:
        """Return *name* without the suffix."""
        return name.removesuffix(self.suffix)

    def shorten_in(self, text: str) -> str:
        """Return *text* with the suffix removed from each node name in it."""
        return text.replace(self.suffix, "") if self.suffix else text

    @property
    def note(self) -> str:
        """The sentence that states which suffix is removed; "" if there is none."""
        return f"Node names end with {self.suffix}, which is left out." if self.suffix else ""
