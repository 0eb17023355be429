"""Debts of failed drains of the proxy: which drains cause them, and when they are paid."""

from datetime import timedelta

import pytest

from rescheduler.cloudpool.proxy.removal import FailedDrains
from rescheduler.draining.state import Drain, Failure, Limits, Phase, Why
from rescheduler.errors import Retryable
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt
from rescheduler.planning.outcome import PodRef
from rescheduler.planning.policy import Policy
from tests.housekeeping.world import LoopWorld, world
from tests.planning.builders import node, pod

WEB = Controller("default", "ReplicaSet", "web", "uid-of-web")
OWED = {WEB: Debt(WEB, ready=1, bound=1, owner_uids=("uid-of-web",))}
LACKS_ONE_POD = (
    "replacement pods are not running yet: default/ReplicaSet/web lacks 1 since the drain of od-1; "
    "a restart of the proxy waives the debts"
)
FAILED = Failure(Why.REPLACEMENT_REFUSED, "exceeded quota")
EVICTED = (PodRef("default", "web-1", "uid-web-1"),)
BEGUN = frozenset({WEB})


def ended(**fields: object) -> Drain:
    return Drain("od-1", Limits(eviction=1, grace=1), Phase.DONE, debts=OWED, **fields)  # type: ignore[arg-type]


def drains(here: LoopWorld, *, ready: bool = False) -> FailedDrains:
    view = ClusterView(here, Policy(), here.clock, "proxy")
    return FailedDrains(view, here, here.clock, here.report, timedelta(minutes=10), lambda _: {}, ready=ready)


#: End of a drain whose controller has no pod left: its debt.
ENDS: dict[str, tuple[Drain, str]] = {
    "failed after an eviction": (ended(failure=FAILED, evicted=EVICTED, begun=BEGUN), LACKS_ONE_POD),
    "failed without an eviction": (ended(failure=FAILED), ""),
    "of a dead process, rolled back": (ended(rolled_back=True, released=True), LACKS_ONE_POD),
    "succeeded": (ended(evicted=EVICTED, begun=BEGUN, released=True), ""),
}


@pytest.mark.parametrize(("drain", "owed"), ENDS.values(), ids=ENDS)
def test_only_failed_drains_that_may_have_evicted_pods_leave_debts(drain: Drain, owed: str) -> None:
    with world(node("od-1"), node("od-2")) as here:
        here.controllers["web"] = {"wanted": 1}
        failed = drains(here)
        failed.note(drain)
        assert failed.owed() == owed


#: The replacement pod, whether it must be Ready, and the remaining debt.
REPLACED = {
    "not bound": ("", False, LACKS_ONE_POD),
    "bound": ("od-2", False, ""),
    "bound, and to be Ready": ("od-2", True, LACKS_ONE_POD),
}


@pytest.mark.parametrize(("on", "ready", "owed"), REPLACED.values(), ids=REPLACED)
def test_a_bound_or_ready_replacement_pays_a_debt(on: str, owed: str, *, ready: bool) -> None:
    unready = {"conditions": [{"type": "Ready", "status": "False"}]}
    with world(node("od-1"), node("od-2"), pod("web-2", on, status=unready)) as here:
        here.controllers["web"] = {"wanted": 1}
        failed = drains(here, ready=ready)
        failed.note(ended(failure=FAILED, evicted=EVICTED, begun=BEGUN))
        assert failed.owed() == owed


def test_a_scale_down_cancels_a_debt_permanently() -> None:
    with world(node("od-1")) as here:
        here.controllers["web"] = {"wanted": 0}
        failed = drains(here)
        failed.note(ended(failure=FAILED, evicted=EVICTED, begun=BEGUN))
        assert failed.owed() == ""
        here.controllers["web"] = {"wanted": 1}
        assert failed.owed() == ""


def test_controllers_that_cannot_be_read_hold_drains() -> None:
    with world(node("od-1")) as here:
        failed = drains(here)
        failed.note(ended(failure=FAILED, evicted=EVICTED, begun=BEGUN))
        here.controller_errors["web"] = Retryable("broken")
        assert failed.owed() == "cannot check the debts of earlier drains: broken"


def test_a_debt_holds_drains_for_the_landing_timeout_and_then_only_those_of_its_owner() -> None:
    with world(node("od-1"), node("od-2")) as here:
        failed = drains(here)
        failed.note(ended(failure=FAILED, evicted=EVICTED, begun=BEGUN))
        assert (failed.owed(), failed.memory.not_recovered.active(here.clock.now())) == (LACKS_ONE_POD, {})
        here.pass_time(600)
        assert (failed.owed(), [*failed.memory.not_recovered.active(here.clock.now())]) == ("", [str(WEB)])
