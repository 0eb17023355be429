"""Debts of failed drains of the proxy: which drains cause them, and when they are paid."""

from datetime import timedelta

import pytest

from rescheduler.cloudpool.proxy.removal import FailedDrains
from rescheduler.draining.state import Drain, Failure, Limits, Phase, Why
from rescheduler.errors import Retryable
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.facts.round_facts import Known
from rescheduler.housekeeping.synced_memory import SyncedMemory, waive
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt
from rescheduler.planning.outcome import PodRef
from rescheduler.planning.policy import Policy
from rescheduler.planning.refusals import KubeletRefusal
from rescheduler.planning.waits import Waits
from tests.housekeeping.config_map import InMemoryConfigMap
from tests.housekeeping.world import LoopWorld, world
from tests.planning.builders import node, pod

WEB = Controller("default", "ReplicaSet", "web", "uid-of-web")
OWED = {WEB: Debt(WEB, ready=1, bound=1, owner_uids=("uid-of-web",))}
WAIVE = "a command waives a debt"
LACKS_ONE_POD = f"replacement pods are not running yet: default/ReplicaSet/web lacks 1 since the drain of od-1; {WAIVE}"
FAILED = Failure(Why.REPLACEMENT_REFUSED, "exceeded quota")
EVICTED = (PodRef("default", "web-1", "uid-web-1"),)
BEGUN = frozenset({WEB})


def ended(**fields: object) -> Drain:
    return Drain("od-1", Limits(eviction=1, grace=1), Phase.DONE, debts=OWED, **fields)  # type: ignore[arg-type]


def drains(here: LoopWorld, stored: InMemoryConfigMap | None = None, *, ready: bool = False) -> FailedDrains:
    view = ClusterView(here, Policy(), here.clock, Known(holder="proxy"))
    patience = timedelta(minutes=10)
    memory = ledger(here, stored or InMemoryConfigMap())
    return FailedDrains(view, here, here.clock, here.report, patience, lambda _: {}, memory, ready=ready, waive=WAIVE)


def ledger(here: LoopWorld, stored: InMemoryConfigMap) -> SyncedMemory:
    return SyncedMemory(stored, Waits(), here.clock, here.report, lambda: True)


#: End of a drain whose controller has no pod left: its debt.
ENDS: dict[str, tuple[Drain, str]] = {
    "failed after an eviction": (ended(failure=FAILED, evicted=EVICTED, begun=BEGUN), LACKS_ONE_POD),
    "failed without an eviction": (ended(failure=FAILED), ""),
    "of a dead process, rolled back": (ended(rolled_back=True, released=True), LACKS_ONE_POD),
    "succeeded": (ended(evicted=EVICTED, begun=BEGUN, released=True, paid=BEGUN), ""),
    "handed over": (ended(evicted=EVICTED, begun=BEGUN, released=True, removed_by="node od-1 is gone"), LACKS_ONE_POD),
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


def test_a_restart_forgets_nothing() -> None:
    """The debts of a drain are stored before it evicts, so a process that is killed at any moment leaves them."""
    with world(node("od-1"), node("od-2")) as here:
        here.controllers["web"] = {"wanted": 1}
        stored = InMemoryConfigMap()
        first = drains(here, stored)
        assert first.owed() == ""
        assert first.store(ended(begun=BEGUN), end=False)
        assert drains(here, stored).owed() == LACKS_ONE_POD
        first.note(ended(failure=FAILED, evicted=EVICTED, begun=BEGUN))
        later = drains(here, stored)
        assert later.owed() == LACKS_ONE_POD
        here.pass_time(600)
        assert later.owed() == ""
        assert [*drains(here, stored).memory.not_recovered.by_name] == []  # nothing is known before the first read
        again = drains(here, stored)
        assert again.owed() == ""
        assert [*again.memory.not_recovered.active(here.clock.now())] == [str(WEB)]
        assert [owed.node for owed in again.debts] == ["od-1"]


def test_what_kubelets_have_refused_is_known_after_a_restart() -> None:
    with world(node("od-1"), node("od-2")) as here:
        stored = InMemoryConfigMap()
        refusal = KubeletRefusal(WEB, "digest", (), "spot-1", "OutOfcpu", here.clock.now())
        first = drains(here, stored)
        assert first.owed() == ""
        first.note(ended(failure=Failure(Why.KUBELET_REFUSED, "", refusal=refusal)))
        again = drains(here, stored)
        assert again.owed() == ""
        assert [*again.memory.refusals.by_key.values()] == [refusal]


@pytest.mark.parametrize(
    "drain",
    [
        pytest.param(ended(), id="no eviction was requested"),
        pytest.param(ended(evicted=EVICTED, begun=BEGUN, released=True, paid=BEGUN), id="succeeded"),
        pytest.param(ended(failure=FAILED, evicted=EVICTED, begun=BEGUN, paid=BEGUN), id="failed, and all is paid"),
    ],
)
def test_a_drain_that_owes_nothing_leaves_no_expected_debts(drain: Drain) -> None:
    with world(node("od-1"), node("od-2")) as here:
        here.controllers["web"] = {"wanted": 1}
        stored = InMemoryConfigMap()
        failed = drains(here, stored)
        failed.owed()
        failed.store(ended(), end=False)
        failed.store(drain, end=True)
        failed.note(drain)
        assert (failed.debts, drains(here, stored).owed()) == ((), "")


def test_a_waiver_ends_a_debt_of_the_proxy() -> None:
    with world(node("od-1"), node("od-2")) as here:
        here.controllers["web"] = {"wanted": 1}
        stored = InMemoryConfigMap()
        failed = drains(here, stored)
        failed.owed()
        failed.note(ended(failure=FAILED, evicted=EVICTED, begun=BEGUN))
        assert failed.owed() == LACKS_ONE_POD
        assert waive(stored, [str(WEB)]) != []
        assert (failed.owed(), failed.debts) == ("", ())


def test_no_drain_begins_while_the_debts_cannot_be_read_or_stored() -> None:
    with world(node("od-1")) as here:
        here.controllers["web"] = {"wanted": 0}
        stored = InMemoryConfigMap()
        stored.unreadable = "get configmap: forbidden"
        failed = drains(here, stored)
        assert failed.owed() == "cannot check the debts of earlier drains: get configmap: forbidden"
        assert not failed.store(ended(), end=False)
        stored.unreadable, stored.refusals = "", [Retryable("patch configmap: no answer")]
        assert failed.owed() == "cannot check the debts of earlier drains: patch configmap: no answer"
        assert failed.owed() == ""
