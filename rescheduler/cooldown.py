"""How long a node is left alone after its drain has failed, as values of the wall clock."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

#: After the first failure in a row; each further one doubles it.
FIRST: Final = timedelta(minutes=5)
LONGEST: Final = timedelta(hours=2)


class CoolDowns:
    """Nodes whose last drain failed. Exponential, so that a node that cannot be drained costs ever less."""

    def __init__(self) -> None:
        self._failures: dict[str, int] = {}
        self._until: dict[str, datetime] = {}

    def failed(self, node: str, now: datetime) -> tuple[datetime, int]:
        """A drain has failed: until when the node is left alone, and how many failed in a row."""
        count = self._failures[node] = self._failures.get(node, 0) + 1
        until = self._until[node] = now + min(FIRST * 2 ** min(count - 1, 10), LONGEST)
        return until, count

    def succeeded(self, node: str) -> None:
        self._failures.pop(node, None)
        self._until.pop(node, None)

    def keep(self, nodes: Collection[str]) -> None:
        """Forget all nodes but *nodes*: one that comes back under its name is another one."""
        for node in self._failures.keys() - set(nodes):
            self.succeeded(node)

    def active(self, now: datetime) -> dict[str, datetime]:
        """The nodes to leave alone at the moment, and until when."""
        return {node: until for node, until in self._until.items() if until > now}
