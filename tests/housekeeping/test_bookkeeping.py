"""The daemon's ledger of savings: its entries about drains, and how it is stored."""

import dataclasses
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from predicates.snapshot import DRAIN_TAINT
from rescheduler.draining.actions import Intent, Step
from rescheduler.draining.events import EvictionFailed
from rescheduler.errors import Conflict, Forbidden, ReschedulerError, Retryable
from rescheduler.housekeeping.loop import RoundOutcome
from rescheduler.observe.events import ErrorKind, SavingsCounted, Trouble
from rescheduler.planning.money.commitments import Commitment
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.money.savings import Receipt, SavingsLedger
from rescheduler.planning.money.savings_form import dump_ledger, load_ledger
from rescheduler.providers.base import Accepted, Deleted, NodeRef, NotSupported
from rescheduler.providers.none import NoProvider
from tests.housekeeping.world import IDENTITY, START, LoopWorld, ScriptedProvider, world
from tests.planning.builders import ON_DEMAND, node, pod

TYPE = "node.kubernetes.io/instance-type"
CLUSTER = (
    node("od-1", ON_DEMAND, labels={TYPE: "m5"}),
    node("od-2", ON_DEMAND, labels={TYPE: "m5"}),
    node("spot-1", cpu="16", labels={TYPE: "c5"}),
    pod("web-1", "od-1"),
    pod("db-1", "od-2"),
    pod("db-2", "od-2"),
)
PRICES = PriceList(by_type={("m5", "", False): Decimal("0.20"), ("c5", "", True): Decimal("0.16")}, currency="USD")
FORBIDDEN = EvictionFailed("", "evict pod default/web-1: not allowed (403)", retryable=False)


def ledger(here: LoopWorld) -> SavingsLedger:
    """Return the stored ledger."""
    assert here.savings_map.stored is not None
    return load_ledger(here.savings_map.stored.content)


def receipts(here: LoopWorld) -> tuple[Receipt, ...]:
    return ledger(here).receipts


def gone(here: LoopWorld, name: str) -> None:
    """Remove a Node, as an autoscaler does."""
    here.cluster.delete("Node", name)


def counted(here: LoopWorld) -> tuple[float, Mapping[str, Decimal]]:
    """Return the node-hours and the money of the last report."""
    total = here.of(SavingsCounted)[-1].total
    return total.node_hours, total.money


def troubles(here: LoopWorld) -> list[tuple[ErrorKind, str]]:
    return [(event.kind, event.detail) for event in here.of(Trouble)]


class TestDrains:
    def test_a_drained_node_that_an_autoscaler_removes_saves_money(self) -> None:
        """web-1 requests 1 of 16 cores of a spot node, which costs 0.01 USD per hour."""
        with world(*CLUSTER) as here:
            loop = here.loop(prices=PRICES)
            assert loop.round() is RoundOutcome.DRAINED
            drained_at = here.clock.now().replace(microsecond=0)
            expected = Receipt(
                node="od-1", uid="uid-od-1", instance_type="m5", zone="a", cpu=4000, memory=16 << 30,
                drained_at=drained_at, nodes_before=2, price=Decimal("0.20"), spot_cost=Decimal("0.01"), currency="USD",
                move_cost=2.0,
            )  # fmt: skip
            assert receipts(here) == (expected,)  # web-1 is a single replica
            here.pass_time(60)
            gone(here, "od-1")
            loop.round()
            gone_at = here.clock.now().replace(microsecond=0)
            assert [(receipt.gone_at, receipt.ended_at) for receipt in receipts(here)] == [(gone_at, None)]
            here.pass_time(300)
            loop.round()
            assert counted(here) == (300 / 3600, {"USD": Decimal("0.015833")})

    def test_a_machine_that_the_provider_removes_counts_from_its_termination(self) -> None:
        with world(*CLUSTER) as here:
            loop = here.loop(prices=PRICES, provider=ScriptedProvider([Deleted()]))
            assert loop.round() is RoundOutcome.DRAINED
            here.pass_time(10)
            loop.round()
            here.pass_time(3600 - 10)
            assert [receipt.gone_at is not None for receipt in receipts(here)] == [True]

    @pytest.mark.parametrize(("nodes", "committed", "saved"), [(1, "0", "0.19"), (2, "0.20", "0")])
    def test_a_node_that_is_paid_anyway_saves_nothing(self, nodes: int, committed: str, saved: str) -> None:
        """A commitment pays for the node that stays first, so that one commitment for two nodes costs nothing."""
        known = dataclasses.replace(PRICES, commitments=(Commitment("m5", nodes=nodes),))
        with world(*CLUSTER) as here:
            assert here.loop(prices=known).round() is RoundOutcome.DRAINED
            [receipt] = receipts(here)
            assert (receipt.committed, receipt.money_per_hour) == (Decimal(committed), Decimal(saved))

    def test_a_failed_drain_saves_nothing(self) -> None:
        with world(*CLUSTER[:1], *CLUSTER[2:4]) as here:
            here.answers["default/web-1"] = [FORBIDDEN]
            loop = here.loop(prices=PRICES)
            assert loop.round() is RoundOutcome.FAILED
            gone(here, "od-1")
            loop.round()
            assert here.savings_map.stored is None
            assert counted(here) == (0, {})

    def test_a_node_that_was_not_drained_saves_nothing(self) -> None:
        with world(*CLUSTER) as here:
            gone(here, "od-1")
            loop = here.loop(prices=PRICES)
            loop.round()
            assert [receipt.node for receipt in receipts(here)] == ["od-2"]

    def test_pods_that_return_to_the_node_end_the_wait_for_its_removal(self) -> None:
        with world(*CLUSTER) as here:
            loop = here.loop(prices=PRICES)
            loop.round()
            here.add(pod("web-9", "od-1"))
            here.pass_time(60)
            loop.round()
            assert receipts(here) == ()

    def test_a_new_node_ends_the_saving(self) -> None:
        with world(*CLUSTER) as here:
            loop = here.loop(prices=PRICES)
            loop.round()
            gone(here, "od-1")
            loop.round()
            here.pass_time(500)
            new = node("od-9", ON_DEMAND, labels={TYPE: "m5"})
            new["metadata"]["creationTimestamp"] = here.time()
            here.add(new)
            here.pass_time(5)
            loop.round()
            assert [receipt.ending for receipt in receipts(here)] == ["replaced"]
            assert round(counted(here)[0] * 3600) == 500

    @pytest.mark.parametrize(
        ("prices", "expected"),
        {
            "none": (PriceList(), (None, None)),
            "no price of spot nodes": (PriceList(per_vcpu=Decimal(1)), (Decimal(4), None)),
            "no price of the node": (PriceList(spot_per_gib=Decimal(1)), (None, Decimal(1))),
        }.values(),
    )
    def test_unknown_prices_are_recorded_as_unknown(
        self, prices: PriceList, expected: tuple[Decimal | None, Decimal | None]
    ) -> None:
        with world(*CLUSTER) as here:
            here.loop(prices=prices).round()
            assert [(receipt.price, receipt.spot_cost) for receipt in receipts(here)] == [expected]


class PricedWithoutMachines(NoProvider):
    """A provider with prices and without machines."""

    def __init__(self, prices: Mapping[str, float | ReschedulerError]) -> None:
        self.prices = prices
        self.asked: list[str] = []

    def node_price(self, node: NodeRef, start: datetime, end: datetime, *, deadline: float) -> float:  # noqa: ARG002
        self.asked.append(node.name)
        assert end - start == timedelta(hours=1)
        price = self.prices[node.name]
        if isinstance(price, ReschedulerError):
            raise price
        return price


ANSWERS: dict[str, tuple[Mapping[str, Any], tuple[str | None, str | None]]] = {
    "both": ({"od-1": 0.5, "spot-1": 0.32}, ("0.5", "0.02")),
    "an error": ({"od-1": Retryable("x"), "spot-1": 0.32}, (None, "0.02")),
    "not numbers": ({"od-1": float("nan"), "spot-1": -1.0}, (None, None)),
    "not supported": ({"od-1": NotSupported("x"), "spot-1": 0.32}, (None, None)),
}


@pytest.mark.parametrize(("answers", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_prices_of_the_provider_are_recorded(
    answers: Mapping[str, Any], expected: tuple[str | None, str | None]
) -> None:
    with world(*CLUSTER) as here:
        here.loop(prices=PriceList(), provider=PricedWithoutMachines(answers)).round()
        actual = [(receipt.price, receipt.spot_cost) for receipt in receipts(here)]
        assert actual == [tuple(None if text is None else Decimal(text) for text in expected)]


def test_only_prices_that_the_user_did_not_give_are_requested() -> None:
    with world(*CLUSTER) as here:
        provider = PricedWithoutMachines({"spot-1": 0.16})
        here.loop(prices=PriceList(by_type={("m5", "", False): Decimal(1)}), provider=provider).round()
        assert provider.asked == ["spot-1"]
        assert [(receipt.price, receipt.spot_cost) for receipt in receipts(here)] == [(Decimal(1), Decimal("0.01"))]


class SlowlyPriced(PricedWithoutMachines):
    """A provider that does not respond for a while."""

    def __init__(self, here: LoopWorld) -> None:
        super().__init__({})
        self.here = here

    def node_price(self, node: NodeRef, start: datetime, end: datetime, *, deadline: float) -> float:  # noqa: ARG002
        self.asked.append(node.name)
        self.here.pass_time(deadline - self.here.clock.monotonic())
        raise Retryable("no response")


def test_a_provider_that_does_not_respond_is_queried_once_per_drain() -> None:
    with world(*CLUSTER) as here:
        provider = SlowlyPriced(here)
        assert here.loop(prices=PriceList(), provider=provider).round() is RoundOutcome.DRAINED
        assert provider.asked == ["od-1"]
        assert here.now < 60


class TestResumed:
    def test_the_money_saved_by_another_process_is_unknown(self) -> None:
        """The pods that the other process moved are not known."""
        with world(CLUSTER[0], CLUSTER[2]) as here:
            ordered = Intent("another", Step.REMOVING, START, group="workers", identity=IDENTITY)
            here.mark("od-1", ordered.dump(), DRAIN_TAINT)
            loop = here.loop(prices=PRICES, provider=ScriptedProvider([Accepted(), Accepted(), Deleted()]))
            for _ in range(12):
                loop.round()
                here.pass_time(60)
            [receipt] = receipts(here)
            assert (receipt.node, receipt.price, receipt.spot_cost) == ("od-1", Decimal("0.20"), None)
            assert receipt.gone_at is not None


class TestStored:
    def test_the_ledger_survives_a_restart(self) -> None:
        with world(*CLUSTER) as here:
            here.loop(prices=PRICES).round()
            gone(here, "od-1")
            here.loop(prices=PRICES).round()
            before = receipts(here)
            here.pass_time(120)
            here.loop(prices=PRICES).round()
            assert receipts(here) == before
            assert round(counted(here)[0] * 3600) == 120

    def test_the_ledger_is_written_once_per_round_and_only_after_changes(self) -> None:
        with world(*CLUSTER) as here:
            loop = here.loop(prices=PRICES)
            writes = []
            for _ in range(5):
                loop.round()
                writes.append(here.savings_map.attempts)
                here.pass_time(10)
            assert writes == [1, 1, 1, 1, 1]
            gone(here, "od-1")
            loop.round()
            assert here.savings_map.attempts == 2
            assert "nodes that are gone and still count: 1" in here.savings_map.summary

    def test_a_conflict_keeps_the_entries_of_both_writers(self) -> None:
        with world(*CLUSTER) as here:
            loop = here.loop(prices=PRICES)
            other = Receipt(node="od-9", uid="uid-od-9", drained_at=START, nodes_before=3, gone_at=START)
            here.stop_at(3600)
            here.at(1, lambda: here.savings_map.put(dump_ledger(SavingsLedger(receipts=(other,), level=3))))
            loop.round()
            assert [receipt.node for receipt in receipts(here)] == ["od-9", "od-1"]
            assert troubles(here) == []

    def test_the_empty_ledger_of_the_manifests_is_written(self) -> None:
        with world(*CLUSTER) as here:
            here.savings_map.empty()
            here.loop(prices=PRICES).round()
            assert [receipt.node for receipt in receipts(here)] == ["od-1"]

    def test_a_deleted_ledger_is_created_again(self) -> None:
        with world(*CLUSTER) as here:
            loop = here.loop(prices=PRICES)
            loop.round()
            here.savings_map.delete()
            gone(here, "od-1")
            loop.round()
            assert [receipt.gone_at is not None for receipt in receipts(here)] == [True]

    def test_the_ledger_of_another_leader_is_not_overwritten(self) -> None:
        with world(*CLUSTER) as here:
            first, second = here.loop(prices=PRICES), here.loop(prices=PRICES, holder="you")
            first.round()
            here.leading = False
            first.round()
            here.leading = True
            gone(here, "od-1")
            second.round()
            here.pass_time(60)
            stored = receipts(here)
            first.round()
            assert receipts(here) == stored
            assert round(counted(here)[0] * 3600) == 60


class TestTrouble:
    """Drains continue without the ledger."""

    def test_a_missing_right_is_reported_once(self) -> None:
        why = "get configmap kube-system/spot-rescheduler-savings: not allowed (403)"
        with world(*CLUSTER) as here:
            here.savings_map.unreadable = why
            loop = here.loop(prices=PRICES)
            assert loop.round() is RoundOutcome.DRAINED
            for _ in range(5):
                here.pass_time(61)
                loop.round()
            assert troubles(here) == [
                (ErrorKind.READ, f"the ledger of savings could not be read: {why}; drains continue")
            ]
            here.savings_map.unreadable = ""
            here.pass_time(61)
            loop.round()
            assert [receipt.node for receipt in receipts(here)] == ["od-1"]

    def test_a_broken_ledger_is_not_overwritten(self) -> None:
        with world(*CLUSTER) as here:
            here.savings_map.put(b"broken")
            assert here.loop(prices=PRICES).round() is RoundOutcome.DRAINED
            [(kind, text)] = troubles(here)
            assert kind is ErrorKind.READ
            assert "ConfigMap kube-system/spot-rescheduler-savings: expected gzip: " in text
            assert "to start with an empty ledger, delete it" in text
            assert here.savings_map.attempts == 0

    def test_a_write_that_is_not_permitted_is_tried_again_each_minute(self) -> None:
        refused = Forbidden("patch configmap: not allowed (403)")
        with world(*CLUSTER) as here:
            here.savings_map.refusals = [refused, refused]
            loop = here.loop(prices=PRICES)
            assert loop.round() is RoundOutcome.DRAINED
            for _ in range(13):
                here.pass_time(10)
                loop.round()
            assert here.savings_map.attempts == 3
            text = "the ledger of savings could not be stored: patch configmap: not allowed (403); drains continue"
            assert troubles(here) == [(ErrorKind.WRITE, text)]
            assert [receipt.node for receipt in receipts(here)] == ["od-1"]

    def test_repeated_conflicts_are_reported(self) -> None:
        with world(*CLUSTER) as here:
            here.savings_map.refusals = [Conflict("patch configmap: modified (409)")] * 3
            assert here.loop(prices=PRICES).round() is RoundOutcome.DRAINED
            text = "patch configmap: modified (409) (tried 3 times); drains continue"
            assert troubles(here) == [(ErrorKind.WRITE, f"the ledger of savings could not be stored: {text}")]

    def test_a_replica_that_lost_the_lease_writes_nothing(self) -> None:
        with world(*CLUSTER) as here:
            loop = here.loop(prices=PRICES)
            here.at(1, lambda: setattr(here, "leading", False))
            loop.round()
            assert (here.savings_map.attempts, troubles(here)) == (0, [])
