"""No machine ends while pods that left its node do not run, or have no place for long: in this drain or a later one."""

from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import Final

import msgspec
import pytest

from predicates.objects import Taint
from rescheduler.planning.last_look import NodeLease
from rescheduler.planning.outcome import Reason
from rescheduler.providers.base import Deleted, Refusal, Refused
from rescheduler.settings import Timing
from tests.housekeeping.test_course import edit
from tests.housekeeping.world import LoopWorld, Replacement, ScriptedProvider, blockers, world
from tests.planning.builders import ON_DEMAND, node, pod

CLUSTER: Final = (node("od-1", ON_DEMAND), node("spot-1"), pod("web-1", "od-1"))
SHORT: Final = Timing(node_drain_delay=timedelta(), pending_patience=timedelta(), node_cooldown=timedelta(seconds=1))
NOTICE: Final = Taint("aws-node-termination-handler/spot-itn", "NoSchedule")


def rounds(here: LoopWorld, provider: ScriptedProvider, number: int = 15) -> list[str]:
    """Run rounds for less than three landing timeouts. Return the nodes whose machines were ordered away."""
    loop = here.loop(timing=SHORT, provider=provider)
    for _ in range(number):
        loop.round()
        here.pass_time(60)
    return [order.name for order in provider.orders]


@pytest.mark.parametrize("replacement", [Replacement.UNREADY, Replacement.REFUSED])
def test_the_next_drain_does_not_end_the_machine_either(replacement: Replacement) -> None:
    with world(*CLUSTER) as here:
        here.replacements["web"] = replacement
        assert rounds(here, ScriptedProvider([Deleted()])) == []
        assert [blocker.reason for blocker in blockers(here, "od-1")][:1] == [Reason.NOT_RECOVERED]


def test_the_machine_ends_once_the_owed_pods_run() -> None:
    with world(*CLUSTER) as here:
        here.replacements["web"] = Replacement.UNREADY
        provider = ScriptedProvider([Deleted()])
        assert rounds(here, provider) == []
        here.recover("web")
        assert rounds(here, provider) == ["od-1"]


def notice(here: LoopWorld) -> None:
    edit(here, "spot-1", taints=(NOTICE,))


def cordon(here: LoopWorld) -> None:
    edit(here, "spot-1", unschedulable=True)


def stale_lease(here: LoopWorld) -> None:
    here.leases["spot-1"] = NodeLease(here.clock.now() - timedelta(seconds=36), timedelta(seconds=40))


@pytest.mark.parametrize("sign", [notice, cordon, stale_lease])
def test_a_sign_right_before_the_order_keeps_the_machine(sign: Callable[[LoopWorld], object]) -> None:
    with world(*CLUSTER) as here:
        provider = ScriptedProvider([Deleted()], before_order=lambda: sign(here))
        assert rounds(here, provider) == []
        assert [blocker.reason for blocker in blockers(here, "od-1")][:1] == [Reason.NOT_RECOVERED]


def test_a_sign_does_not_matter_if_the_pods_have_another_place() -> None:
    with world(*CLUSTER, node("spot-2")) as here:
        provider = ScriptedProvider([Deleted()], before_order=lambda: edit(here, on(here, "web"), taints=(NOTICE,)))
        assert rounds(here, provider) == ["od-1"]


def on(here: LoopWorld, app: str) -> str:
    """Return the node of the pod of *app*."""
    [name] = {each.node_name for each in here.cluster.pods.values() if each.name.startswith(app)}
    return name


def test_the_node_that_pods_left_is_no_other_place_for_them() -> None:
    """It accepts pods again, but its machine would end."""
    with world(*CLUSTER, node("spot-2", cpu="500m")) as here:
        provider = ScriptedProvider([Deleted()], before_order=lambda: notice(here))
        assert rounds(here, provider) == []


def crash(here: LoopWorld) -> None:
    """The moved pod ends, and does not become Ready again."""
    pod_of_web = next(each for each in here.cluster.pods.values() if each.name.startswith("web"))
    here.cluster.upsert("Pod", msgspec.structs.replace(pod_of_web, ready=False))


def refused_once(here: LoopWorld, then: Callable[[LoopWorld], object]) -> ScriptedProvider:
    """Return a provider that refuses the first order; after it, *then* happens to the moved pod."""
    seen = count()
    return ScriptedProvider(
        [Refused(Refusal.BELOW_MINIMUM, "the pool is at its minimum"), Deleted()],
        on_order=lambda: next(seen) or then(here),
    )


@pytest.mark.parametrize("trouble", [notice, cordon, crash])
def test_what_a_failed_drain_has_paid_is_owed_while_its_node_is_there(trouble: Callable[[LoopWorld], object]) -> None:
    """The drain fails at the provider after its pods run, and then they are about to lose their place."""
    with world(*CLUSTER) as here:
        provider = refused_once(here, trouble)
        assert rounds(here, provider) == ["od-1"]  # the refused order
        assert [blocker.reason for blocker in blockers(here, "od-1")][:1] == [Reason.NOT_RECOVERED]
        assert ([owed.lacking for owed in here.memory.settled], here.memory.debts) == ([True], ())


def test_a_kubelet_that_dies_after_a_failed_drain_keeps_the_machine() -> None:
    with world(*CLUSTER) as here:
        assert rounds(here, refused_once(here, stale_lease)) == ["od-1"]


def test_the_node_of_a_failed_drain_goes_once_its_pods_have_another_place() -> None:
    with world(*CLUSTER) as here:
        provider = refused_once(here, notice)
        assert rounds(here, provider) == ["od-1"]
        here.add(node("spot-2"))
        assert rounds(here, provider) == ["od-1", "od-1"]
        here.cluster.delete("Node", "od-1")
        rounds(here, provider, number=1)
        assert (here.memory.settled, here.memory.debts) == ((), ())


def test_the_node_of_a_failed_drain_goes_if_its_pods_stay() -> None:
    with world(*CLUSTER) as here:
        assert rounds(here, refused_once(here, lambda _: None)) == ["od-1", "od-1"]


def test_a_scale_down_after_a_failed_drain_owes_nothing() -> None:
    with world(*CLUSTER) as here:

        def scale_down(_: LoopWorld) -> None:
            here.controllers["web"] = {"wanted": 0}
            for key in list(here.cluster.pods):
                here.cluster.delete("Pod", key)

        provider = refused_once(here, scale_down)
        assert rounds(here, provider) == ["od-1", "od-1"]
        assert (here.memory.settled, here.memory.debts) == ((), ())
