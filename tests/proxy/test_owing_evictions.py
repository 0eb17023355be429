"""Which evictions a failed drain of a proxy owes, also those that were not answered in time."""

from dataclasses import replace

import pytest

from rescheduler.draining.state import Drain, Failure, Phase, Why
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt
from rescheduler.planning.memory import OpenDebt
from rescheduler.planning.outcome import PodRef
from rescheduler.planning.policy import Policy
from rescheduler.proxy.owing import FailedDrains
from rescheduler.view import View
from tests.loop.world import LIMITS, START, world
from tests.planning.builders import ON_DEMAND, node

WEB = Controller("default", "Deployment", "web", "uid-web")
DEBT = Debt(WEB, ready=1, bound=1)
FAILED = replace(
    Drain("od-1", LIMITS, Phase.DONE, debts={WEB: DEBT}, released=True), failure=Failure(Why.STOPPED, "told to stop")
)
OWED = (OpenDebt("od-1", START, DEBT),)


@pytest.mark.parametrize(
    ("drain", "owed"),
    [
        pytest.param(FAILED, (), id="no eviction was asked for"),
        pytest.param(replace(FAILED, begun=frozenset({WEB})), OWED, id="an eviction was not answered in time"),
        pytest.param(
            replace(FAILED, begun=frozenset({WEB}), evicted=(PodRef("default", "web-1", "a"),)), OWED, id="evicted"
        ),
        pytest.param(replace(FAILED, resumed=True), OWED, id="another process may have evicted pods"),
        pytest.param(replace(FAILED, begun=frozenset({WEB}), failure=None, debts={}), (), id="all is paid"),
    ],
)
def test_what_a_drain_owes(drain: Drain, owed: tuple[OpenDebt, ...]) -> None:
    with world(node("od-1", ON_DEMAND)) as here:
        failed = FailedDrains(View(here, Policy(), here.clock, "proxy"), here, here.clock, here.report, ready=True)
        failed.note(drain)
        assert failed.debts == owed
