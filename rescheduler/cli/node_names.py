"""Short names of nodes: without the suffix that all of them have in common."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
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
        reversed_names = [name[::-1] for name in names]
        if len(reversed_names) < 2:  # noqa: PLR2004 - one name has nothing in common
            return cls()
        common = os.path.commonprefix(reversed_names)[::-1]
        if any(len(name) == len(common) for name in reversed_names):
            common = common[1:]
        _, dot, rest = common.partition(".")
        return cls(dot + rest if len(rest) >= _LEAST else "")

    def short(self, name: str) -> str:
        """Return *name* without the suffix."""
        return name.removesuffix(self.suffix)

    @property
    def note(self) -> str:
        """Return the sentence that tells what is left out, or ""."""
        return f"Node names end with {self.suffix}, which is left out." if self.suffix else ""
