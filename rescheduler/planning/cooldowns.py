"""How long a node is left alone after its drain has failed."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from rescheduler.planning.waits import Count, Doubling, Moment

#: Characters of a failure's detail that are kept.
_LONGEST_DETAIL: Final = 300


class Cooldown(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last drains of a node failed."""

    uid: str  #: of the node: another node of the same name is not left alone
    failures: Count  #: in a row
    until: Moment
    reason: str = ""  #: the code of a :class:`~rescheduler.planning.outcome.Reason`; "": ``cooling-down``
    detail: str = ""  #: of the failure, in words, where there is a reason


class Cooldowns(msgspec.Struct, frozen=True, omit_defaults=True):
    """Nodes whose last drain failed. Exponential, so that a node that cannot be drained costs less and less."""

    by_node: dict[str, Cooldown] = {}

    def failed(
        self, node: str, uid: str, now: datetime, wait: Doubling, reason: str = "", detail: str = ""
    ) -> "Cooldowns":
        """After a failed drain of *node*."""
        last = self.by_node.get(node)
        failures = last.failures + 1 if last is not None and last.uid == uid else 1
        cooldown = Cooldown(uid, failures, now + wait.after(failures), reason, detail[:_LONGEST_DETAIL])
        return Cooldowns(self.by_node | {node: cooldown})

    def succeeded(self, node: str) -> "Cooldowns":
        """After a drain of *node* that succeeded."""
        if node not in self.by_node:
            return self
        return Cooldowns({name: cooldown for name, cooldown in self.by_node.items() if name != node})

    def kept(self, uids: Mapping[str, str]) -> "Cooldowns":
        """Those of the nodes *uids* (UID by name): a node that comes back under its name is another one."""
        left = {node: cooldown for node, cooldown in self.by_node.items() if uids.get(node) == cooldown.uid}
        return self if len(left) == len(self.by_node) else Cooldowns(left)

    def active(self, now: datetime) -> dict[str, Cooldown]:
        """The nodes that are left alone at *now*."""
        return {node: cooldown for node, cooldown in self.by_node.items() if cooldown.until > now}

    def bounded(self, now: datetime, wait: Doubling) -> "Cooldowns":
        """The same, but none for longer than a cooldown may last."""
        latest = now + wait.longest
        late = {
            node: msgspec.structs.replace(cooldown, until=latest)
            for node, cooldown in self.by_node.items()
            if cooldown.until > latest
        }
        return Cooldowns(self.by_node | late) if late else self
