"""The backend `none`, which has no system, for tables that include all backends."""

import contextlib
from collections.abc import Iterator

from rescheduler.providers.base import CloudProvider, NodeRef
from rescheduler.providers.none import NoProvider
from tests.providers.clocks import StepClock


class NoWorld:
    """The world of the backend `none`, which has no groups and no machines."""

    group = ""

    def __init__(self) -> None:
        self.clock = StepClock()
        self.provider: CloudProvider = NoProvider()

    def restart(self) -> None:
        self.provider = NoProvider()

    def nodes(self) -> list[NodeRef]:
        return []

    def foreign(self) -> NodeRef:
        return NodeRef("elsewhere-1", "aws:///eu-north-1a/i-00000000000000000", internal_ips=("10.1.2.3",))

    def placeholder(self) -> NodeRef | None:
        return None

    def runs(self, node: NodeRef) -> bool:
        raise NotImplementedError

    def target(self) -> int:
        raise NotImplementedError

    def fail_deletions(self, times: int) -> None:
        raise NotImplementedError

    def lose_answers(self, times: int) -> None:
        raise NotImplementedError

    def lose_orders(self, times: int) -> None:
        raise NotImplementedError

    def go_down(self) -> None:
        raise NotImplementedError


@contextlib.contextmanager
def no_world(machines: int, minimum: int) -> Iterator[NoWorld]:
    yield NoWorld()
