"""What stands between the decision to end a machine of a cloudpool and the request: looks, and other orders."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rescheduler.cloudpool.pool import CloudPool, Ending, TerminationOrder
from rescheduler.cloudpool.removal import PoolOrders
from rescheduler.errors import Withheld
from rescheduler.providers.base import NodeRef
from rescheduler.providers.order_life import OrderResult
from tests.providers.clocks import StepClock
from tests.providers.cloudpools import node_of, section, serving, settings


class Requests:
    """A pool, and the requests about its machines, in their order."""

    def __init__(self, pool: CloudPool, node: NodeRef, patch: pytest.MonkeyPatch) -> None:
        self.pool, self.node, self.sent, self.allowed = pool, node, list[str](), 1000
        for name in ("set_membership", "terminate"):
            patch.setattr(pool.client, name, lambda *_, name=name, **__: self.sent.append(name))

    def may_end(self, _: NodeRef) -> None:
        self.allowed -= 1
        if self.allowed < 0:
            raise Withheld("a pod that must move is on the node")

    def order(self, ending: Ending, judged: TerminationOrder | None = None) -> Any:
        deadline = self.pool.clock.monotonic() + 30
        view = self.pool.read(deadline=deadline)
        return PoolOrders(self.pool, ending).order(self.node, view.machines[0], judged, view, deadline, self.may_end)


@contextlib.contextmanager
def requests(patch: pytest.MonkeyPatch) -> Iterator[Requests]:
    clock = StepClock()
    with serving(settings(), clock) as server:
        pool = CloudPool(section(server.url, minSize=0, maxSize=10), Path(), clock)
        with contextlib.closing(pool):
            yield Requests(pool, node_of(server.pool.machines()[0]), patch)


def test_the_cluster_is_read_again_before_a_disposed_machine_is_terminated(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []
    for allowed in (0, 1, 2):
        with requests(monkeypatch) as here:
            here.allowed = allowed
            here.order(Ending.DISPOSE)
            sent.append(here.sent)
    assert sent == [[], ["set_membership"], ["set_membership", "terminate"]]


@pytest.mark.parametrize("result", [OrderResult.PENDING, OrderResult.DONE, OrderResult.UNSENT])
def test_no_order_follows_one_that_another_thread_gave_meanwhile(
    result: OrderResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    with requests(monkeypatch) as here:
        machine = here.pool.read(deadline=here.pool.clock.monotonic() + 30).machines[0].id
        other = TerminationOrder(here.pool.clock.now(), result)
        here.pool.ledger.record(machine, other, here.node)
        assert (here.order(Ending.SHRINK, judged=None), here.sent) == (None, [])
        assert here.pool.ledger.order(machine) == other
        here.order(Ending.SHRINK, judged=other)
        assert here.sent == ["terminate"]
