"""The ledger of savings: when a saving begins and ends, its amount, and its daily sums."""

import itertools
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import msgspec
import pytest

from rescheduler.planning.money.savings import LiveNodes, Receipt, Savings, SavingsLedger, merged, observed, saved

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def receipt(node: str, *, hours: float = 0, before: int = 3, **options: object) -> Receipt:
    """Return the receipt of a drain *hours* after START."""
    fields = {"instance_type": "m5", "cpu": 4000, "memory": 16 << 30, "currency": "USD", **options}
    fields = {"price": Decimal("0.20"), "spot_cost": Decimal("0.05"), **fields}
    drained_at = START + hours * HOUR
    return Receipt(node=node, uid=f"uid-{node}", drained_at=drained_at, nodes_before=before, **fields)  # type: ignore[arg-type]


@dataclass
class Story:
    """A cluster of on-demand nodes (instance type and creation time by name), and its ledger."""

    nodes: dict[str, tuple[str, datetime | None]] = field(
        default_factory=lambda: dict.fromkeys(("a", "b", "c"), ("m5", START - DAY))
    )
    ledger: SavingsLedger = field(default_factory=SavingsLedger)
    hours: float = 0.0
    busy: set[str] = field(default_factory=set)

    @property
    def now(self) -> datetime:
        return START + self.hours * HOUR

    def at(self, hours: float) -> "Story":
        """Observe the cluster *hours* after START."""
        self.hours = hours
        uids = frozenset(f"uid-{name}" for name in self.nodes)
        live = LiveNodes(uids, frozenset(f"uid-{name}" for name in self.busy), tuple(self.nodes.values()))
        self.ledger = observed(self.ledger, live, self.now)
        return self

    def drained(self, node: str, **fields: object) -> "Story":
        self.ledger = self.ledger.recorded(receipt(node, hours=self.hours, before=len(self.nodes), **fields))
        return self

    def gone(self, *names: str) -> "Story":
        for name in names:
            del self.nodes[name]
        return self

    def added(self, name: str, kind: str = "m5", created: float | None = None) -> "Story":
        self.nodes[name] = (kind, START + (self.hours if created is None else created) * HOUR)
        return self

    @property
    def node_hours(self) -> float:
        return self.ledger.total(self.now).node_hours

    @property
    def state(self) -> dict[str, str]:
        """Return by node whether it still exists (``emptied``), counts (``open``), or how its saving ended."""
        names = {receipt.node: receipt.ending or "open" for receipt in self.ledger.receipts if receipt.gone_at}
        return names | {receipt.node: "emptied" for receipt in self.ledger.receipts if receipt.gone_at is None}


class TestBeginning:
    def test_nothing_counts_while_the_node_exists(self) -> None:
        story = Story().drained("a").at(5)
        assert (story.state, story.node_hours) == ({"a": "emptied"}, 0)

    def test_a_saving_counts_from_when_the_node_is_gone(self) -> None:
        story = Story().drained("a").at(1).gone("a").at(2).at(5)
        assert (story.state, story.node_hours) == ({"a": "open"}, 3)
        assert story.ledger.total(story.now) == Savings(
            3 * 3600, 3 * 3600 * 4000, 3 * 3600 * 16384, {"USD": Decimal("0.45")}
        )

    def test_a_node_that_runs_pods_again_does_not_count(self) -> None:
        story = Story(busy={"a"}).drained("a").at(1).gone("a").at(2).at(5)
        assert (story.state, story.node_hours) == ({}, 0)

    def test_a_node_that_stays_for_a_day_does_not_count(self) -> None:
        assert Story().drained("a").at(23.9).gone("a").at(24).state == {"a": "open"}
        assert Story().drained("a").at(24).gone("a").at(25).state == {}

    def test_another_node_of_the_same_name_is_another_node(self) -> None:
        """The removed node is gone, but the cluster has as many nodes as before."""
        story = Story().drained("a").at(1)
        live = LiveNodes(frozenset({"uid-new", "uid-b", "uid-c"}), frozenset(), tuple(story.nodes.values()))
        ended = observed(story.ledger, live, story.now).receipts[0]
        assert (ended.gone_at, ended.ended_at, ended.ending) == (story.now, story.now, "replaced")

    def test_the_same_drain_is_recorded_once(self) -> None:
        story = Story().drained("a").drained("a").at(1).gone("a").at(2).drained("a").at(3)
        assert (story.state, story.node_hours) == ({"a": "open"}, 1)


class TestEnd:
    def test_a_new_node_ends_a_saving(self) -> None:
        story = Story().drained("a").gone("a").at(1).at(4).added("d").at(4).at(9)
        assert (story.state, story.node_hours) == ({"a": "replaced"}, 3)

    def test_a_new_node_before_the_drained_one_is_gone_leaves_nothing(self) -> None:
        story = Story().drained("a").at(0.5).added("d").at(0.6).gone("a").at(1).at(9)
        assert (story.state, story.node_hours) == ({"a": "replaced"}, 0)

    def test_a_saving_ends_when_the_new_node_was_created(self) -> None:
        """The daemon may not run at that time."""
        story = Story().drained("a").gone("a").at(1).added("d", created=3).at(9)
        assert (story.state, story.node_hours) == ({"a": "replaced"}, 2)

    def test_an_existing_node_that_gets_the_label_ends_a_saving_immediately(self) -> None:
        story = Story().drained("a").gone("a").at(1).added("d", created=-5).at(9)
        assert (story.state, story.node_hours) == ({"a": "replaced"}, 8)

    def test_the_oldest_saving_of_the_same_type_ends_first(self) -> None:
        story = Story().drained("a", instance_type="c5").gone("a").at(1).drained("b").gone("b").at(2).added("d").at(3)
        assert story.state == {"a": "open", "b": "replaced"}

    def test_the_oldest_saving_ends_if_no_type_is_the_same(self) -> None:
        story = Story().drained("a").gone("a").at(1).drained("b").gone("b").at(2).added("d", "c5").at(3)
        assert story.state == {"a": "replaced", "b": "open"}

    def test_several_new_nodes_end_several_savings(self) -> None:
        story = Story().drained("a").gone("a").at(1).drained("b").gone("b").at(2).added("d").added("e").at(3)
        assert story.state == {"a": "replaced", "b": "replaced"}

    def test_a_node_that_replaces_one_that_was_not_drained_ends_nothing(self) -> None:
        story = Story().drained("a").gone("a").at(1).gone("b").at(2).added("d").at(3).at(5)
        assert (story.state, story.node_hours) == ({"a": "open"}, 4)

    def test_replacing_nodes_one_by_one_ends_only_one_saving(self) -> None:
        story = Story().drained("a").gone("a").at(1).drained("b").gone("b").at(2)
        story.added("d").at(3).gone("c").at(4).added("e").at(5).gone("d").at(6)
        assert story.state == {"a": "replaced", "b": "open"}

    def test_a_new_node_counts_once(self) -> None:
        story = Story().drained("a").gone("a").at(1).drained("b").added("d").at(2).gone("b").at(3)
        assert story.state == {"a": "replaced", "b": "open"}

    def test_a_saving_ends_after_30_days(self) -> None:
        story = Story().drained("a").gone("a").at(1).at(1 + 30 * 24 - 1)
        assert story.state == {"a": "open"}
        story.at(1 + 40 * 24)
        assert (story.state, story.node_hours) == ({"a": "expired"}, 30 * 24)

    def test_after_an_expired_saving_a_new_node_ends_another(self) -> None:
        story = Story().drained("a").gone("a").at(1).at(20 * 24).drained("b").gone("b").at(20 * 24 + 1).at(32 * 24)
        assert story.state == {"a": "expired", "b": "open"}
        assert story.added("d").at(33 * 24).state == {"a": "expired", "b": "replaced"}


#: Price of the node and cost of its pods per hour → money for three hours.
MONEY = {
    "both known": ("0.20", "0.05", {"USD": Decimal("0.45")}),
    "no pods": ("0.20", "0", {"USD": Decimal("0.6")}),
    "spot costs more": ("0.20", "0.30", {"USD": Decimal(0)}),
    "no price of the node": (None, "0.05", {}),
    "no price of spot nodes": ("0.20", None, {}),
}


@pytest.mark.parametrize(("price", "cost", "money"), MONEY.values(), ids=MONEY)
def test_the_money_is_the_price_minus_the_cost_on_spot(
    price: str | None, cost: str | None, money: dict[str, Decimal]
) -> None:
    amounts = [None if text is None else Decimal(text) for text in (price, cost)]
    known = receipt("a", price=amounts[0], spot_cost=amounts[1])
    assert saved(known, 3 * HOUR) == Savings(10800, 10800 * 4000, 10800 * 16384, money)


class TestDays:
    def test_hours_belong_to_their_day(self) -> None:
        story = Story().drained("a").gone("a").at(6).at(40)
        hours = {day.isoformat(): sums.node_hours for day, sums in story.ledger.by_day(story.now).items()}
        assert hours == {"2026-01-01": 6, "2026-01-02": 24, "2026-01-03": 4}
        assert {day: sums.node_hours for day, sums in story.ledger.days.items()} == {
            date(2026, 1, 1): 6,
            date(2026, 1, 2): 24,
        }

    def test_the_stored_value_changes_at_midnight_only(self) -> None:
        story = Story().drained("a").gone("a").at(1)
        states = [story.at(hours).ledger for hours in (1, 2, 11.9, 12, 13, 35.9, 36)]
        assert [before == after for before, after in itertools.pairwise(states)] == [
            True, True, False, True, True, False,
        ]  # fmt: skip

    def test_the_total_never_falls(self) -> None:
        story = Story().drained("a", price=Decimal("0.0623457")).gone("a").at(0.1)
        totals = []
        for step in range(200):
            if step == 150:
                story.added("d", created=story.hours)
            totals.append(story.at(0.1 + step * 0.777).ledger.total(story.now))
        for amounts in ([total.node_seconds for total in totals], [total.money.get("USD", 0) for total in totals]):
            assert amounts == sorted(amounts)
            assert amounts[150] == amounts[-1] > amounts[100] > amounts[0]

    def test_observations_do_not_change_the_total(self) -> None:
        """One observation at the end gives the same sums as one every half an hour."""
        often, seldom = Story().drained("a").gone("a").at(1), Story().drained("a").gone("a").at(1)
        for step in range(100):
            often.at(1 + step / 2)
        assert often.at(51).ledger == seldom.at(51).ledger

    def test_after_400_days_days_are_summed_up_and_receipts_dropped(self) -> None:
        story = Story().drained("a").gone("a").at(1).at(31 * 24)
        total = story.ledger.total(story.now)
        story.at(420 * 24)
        assert (len(story.ledger.days), story.ledger.receipts != ()) == (11, True)
        story.at(440 * 24)
        assert (story.ledger.days, story.ledger.receipts, story.ledger.level) == ({}, (), 0)
        assert story.ledger.total(story.now) == story.ledger.earlier == total


class TestMerged:
    def test_drains_that_only_this_process_recorded_are_added_and_counted_again(self) -> None:
        base = Story().drained("a").gone("a").at(1).ledger
        ours = observed(
            base.recorded(receipt("b", hours=1, before=2)), LiveNodes(frozenset(), frozenset(), ()), START + 20 * HOUR
        )
        theirs = msgspec.structs.replace(base, days={date(2025, 1, 1): Savings(5)})
        both = merged(ours, theirs, base)
        assert [known.node for known in both.receipts] == ["a", "b"]
        assert (both.days, both.receipts[1].counted) == (theirs.days, None)

    def test_entries_that_another_writer_dropped_stay_dropped(self) -> None:
        base = Story().drained("a").gone("a").at(1).ledger
        assert merged(base, SavingsLedger(), base).receipts == ()
