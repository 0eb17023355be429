"""The ledger of what drains owe after their end: drains add to it, and only what is paid leaves it."""

from datetime import datetime, timedelta

import pytest

from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt, OpenDebt, owing, without_paid
from tests.planning.builders import NOW

WEB, DB = Controller("ns", "Deployment", "web", "1"), Controller("ns", "StatefulSet", "db", "2")
EARLIER, LATER = NOW - timedelta(minutes=9), NOW - timedelta(minutes=1)
BEFORE = (OpenDebt("od-1", EARLIER, Debt(WEB, 2, 3)), OpenDebt("od-2", EARLIER, Debt(DB, 1, 1)))


@pytest.mark.parametrize(
    ("node", "debts", "since", "after"),
    [
        ("od-1", (), None, BEFORE),
        ("od-1", (Debt(WEB, 0, 4),), None, (OpenDebt("od-1", EARLIER, Debt(WEB, 2, 4)), BEFORE[1])),
        ("od-1", (Debt(WEB, 1, 1),), LATER, (OpenDebt("od-1", LATER, Debt(WEB, 2, 3)), BEFORE[1])),
        ("od-1", (Debt(DB, 1, 1),), None, (*BEFORE, OpenDebt("od-1", NOW, Debt(DB, 1, 1)))),
        ("od-3", (Debt(WEB, 1, 1),), LATER, (*BEFORE, OpenDebt("od-3", LATER, Debt(WEB, 1, 1)))),
    ],
    ids=["nothing", "more of the same owner", "less, later", "another owner", "another node"],
)
def test_a_drain_adds_what_it_owes(
    node: str, debts: tuple[Debt, ...], since: datetime | None, after: tuple[OpenDebt, ...]
) -> None:
    assert owing(BEFORE, node, debts, NOW, since) == after


@pytest.mark.parametrize(
    ("node", "paid", "after"),
    [
        ("od-1", (), BEFORE),
        ("od-1", (Debt(WEB, 2, 3),), BEFORE[1:]),
        ("od-1", (Debt(WEB, 3, 4),), BEFORE[1:]),
        ("od-1", (Debt(WEB, 2, 2),), BEFORE),
        ("od-1", (Debt(WEB, 1, 3),), BEFORE),
        ("od-1", (Debt(DB, 1, 1),), BEFORE),
        ("od-2", (Debt(WEB, 2, 3),), BEFORE),
    ],
    ids=["nothing", "as much", "more", "fewer pods", "fewer Ready pods", "another owner", "another node"],
)
def test_a_drain_takes_out_only_what_it_owed_and_has_paid(
    node: str, paid: tuple[Debt, ...], after: tuple[OpenDebt, ...]
) -> None:
    assert without_paid(BEFORE, node, paid) == after
