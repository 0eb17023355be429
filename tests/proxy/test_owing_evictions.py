"""Evictions that count as debts of a failed drain, including those without a response in time."""

from dataclasses import replace

import pytest

from rescheduler.draining.state import Drain, Failure, Phase, Why
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt, OpenDebt
from rescheduler.planning.outcome import PodRef
from tests.housekeeping.world import LIMITS, START, world
from tests.planning.builders import ON_DEMAND, node
from tests.proxy.test_proxy_debts import drains

WEB = Controller("default", "Deployment", "web", "uid-web")
DEBT = Debt(WEB, ready=1, bound=1)
FAILED = replace(
    Drain("od-1", LIMITS, Phase.DONE, debts={WEB: DEBT}, released=True), failure=Failure(Why.STOPPED, "told to stop")
)
OWED = (OpenDebt("od-1", START, DEBT),)


@pytest.mark.parametrize(
    ("drain", "owed"),
    [
        pytest.param(FAILED, (), id="no eviction was requested"),
        pytest.param(replace(FAILED, begun=frozenset({WEB})), OWED, id="an eviction was not answered in time"),
        pytest.param(
            replace(FAILED, begun=frozenset({WEB}), evicted=(PodRef("default", "web-1", "a"),)), OWED, id="evicted"
        ),
        pytest.param(replace(FAILED, resumed=True), OWED, id="another process may have evicted pods"),
        pytest.param(replace(FAILED, begun=frozenset({WEB}), failure=None, debts={}), (), id="all debts are paid"),
    ],
)
def test_evictions_and_unanswered_requests_are_debts(drain: Drain, owed: tuple[OpenDebt, ...]) -> None:
    with world(node("od-1", ON_DEMAND)) as here:
        failed = drains(here, ready=True)
        failed.note(drain)
        assert failed.debts == owed
