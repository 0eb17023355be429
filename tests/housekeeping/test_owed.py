"""No machine ends while pods that left its node do not run, or have no place for long: in this drain or a later one."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import count
from typing import Final

import msgspec
import pytest

from predicates.objects import Taint
from rescheduler.draining import actions
from rescheduler.draining.actions import Intent, Step
from rescheduler.errors import Retryable
from rescheduler.observe.events import Held, OrderWithheld
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt, OpenDebt
from rescheduler.planning.last_look import NodeLease
from rescheduler.planning.memory import Memory, dump
from rescheduler.planning.outcome import Reason
from rescheduler.providers.base import Deleted, NodeRef, Refusal, Refused
from rescheduler.settings import Timing
from tests.housekeeping.test_course import edit
from tests.housekeeping.world import START, LoopWorld, Replacement, ScriptedProvider, blockers, world
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


class Announcing(ScriptedProvider):
    """A cloud that announces which machines it will reclaim, or does not respond. Their Nodes show nothing."""

    ends: Collection[str] = ()
    silent = False

    def refresh(self, *, deadline: float) -> None:  # noqa: ARG002
        if self.silent:
            raise Retryable("silence")

    def notices(self, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, datetime]:
        self.refresh(deadline=deadline)
        return {each.name: START + timedelta(hours=1) for each in nodes if each.name in self.ends}

    def announce(self, *ends: str) -> None:
        self.ends = ends


def test_a_notice_of_the_provider_right_before_the_order_keeps_the_machine() -> None:
    with world(*CLUSTER) as here:
        provider = Announcing([Deleted()])
        provider.before_order = lambda: provider.announce("spot-1")
        assert rounds(here, provider) == []
        [blocker, *_] = blockers(here, "od-1")
        assert blocker.reason is Reason.NOT_RECOVERED
        assert "the provider will reclaim it soon" in here.of(OrderWithheld)[0].why
        provider.before_order = lambda: None
        provider.announce()
        assert rounds(here, provider) == ["od-1"]


@pytest.mark.parametrize("ends", ["spot-2", "od-2"])
def test_a_notice_about_a_node_without_moved_pods_keeps_no_machine(ends: str) -> None:
    with world(*CLUSTER, node("spot-2", cpu="500m"), node("od-2", ON_DEMAND), pod("big-1", "od-2", cpu="3.5")) as here:
        provider = Announcing([Deleted()])
        provider.before_order = lambda: provider.announce(ends)
        assert rounds(here, provider)[:1] == ["od-1"]


def test_a_notice_does_not_matter_if_the_pods_have_another_place() -> None:
    with world(*CLUSTER, node("spot-2")) as here:
        provider = Announcing([Deleted()])
        provider.before_order = lambda: provider.announce(on(here, "web"))
        assert rounds(here, provider) == ["od-1"]


def test_a_provider_that_does_not_tell_its_notices_ends_no_machine() -> None:
    with world(*CLUSTER) as here:
        provider = Announcing([Deleted()])
        provider.before_order = lambda: setattr(provider, "silent", True)
        assert rounds(here, provider) == []
        provider.before_order, provider.silent = lambda: None, False
        assert rounds(here, provider) == ["od-1"]


@pytest.mark.parametrize("node_is_there", [True, False])
def test_a_process_that_starts_reads_notices_before_it_settles_debts(*, node_is_there: bool) -> None:
    """An earlier process has moved a pod to a node that the provider reclaims now."""
    left = [node("od-1", ON_DEMAND)] if node_is_there else []
    with world(*left, node("spot-1"), pod("web-1", "spot-1")) as here:
        owner = here.cluster.pods["default/web-1"].owner
        assert owner is not None
        debt = Debt(Controller("default", owner.kind, owner.name, owner.uid), 1, 1, owner_uids=(owner.uid,))
        here.config_map.put(dump(Memory(debts=(OpenDebt("od-1", START, debt),))))
        provider = Announcing([Deleted()])
        provider.announce("spot-1")
        here.loop(timing=SHORT, provider=provider).round()
        assert [owed.debt for owed in here.memory.debts] == [debt]
        assert "the provider will reclaim it soon" in here.of(Held)[-1].detail
        provider.announce()
        here.loop(timing=SHORT, provider=provider).round()
        assert here.memory.debts == ()


def test_a_silent_provider_does_not_delay_the_rollback_of_a_drain() -> None:
    with world(*CLUSTER) as here:
        here.mark("od-1", Intent("me", Step.DRAINING, START).dump(), actions.taint("me"))
        provider = Announcing([Deleted()])
        provider.silent = True
        here.loop(timing=SHORT, provider=provider).round()
        assert not here.node("od-1").spec.taints


def test_what_was_above_an_owed_controller_is_told_to_the_reader() -> None:
    """It may be gone before this process reads it for the first time."""
    top = Controller("default", "Postgres", "main", "uid-main", "db.example.com/v1")
    debts = [Debt(Controller("default", "StatefulSet", name, f"uid-{name}"), 1, 1, above=(top,)) for name in "abc"]
    with world(*CLUSTER, node("od-2", ON_DEMAND), node("od-3", ON_DEMAND)) as here:
        here.config_map.put(dump(Memory(debts=(OpenDebt("gone", START, debts[0]),))))
        drained = Intent("before", Step.DRAINING, START, debts=(debts[1],))
        removed = Intent("before", Step.REMOVING, START, group="workers", debts=(debts[2],))
        for name, written in (("od-2", drained), ("od-3", removed)):
            here.mark(name, written.dump(), actions.taint("before"))
        loop = here.loop(timing=SHORT, provider=ScriptedProvider([Deleted()]))
        for _ in range(3):
            loop.round()
        assert here.recalled.items() >= {debt.controller: (top,) for debt in debts}.items()


def on(here: LoopWorld, app: str) -> str:
    """Return the node of the pod of *app*."""
    [name] = {each.node_name for each in here.cluster.pods.values() if each.name.startswith(app)}
    return name


def test_the_node_that_pods_left_is_no_other_place_for_them() -> None:
    """It accepts pods again, but its machine would end."""
    with world(*CLUSTER, node("spot-2", cpu="500m")) as here:
        provider = ScriptedProvider([Deleted()], before_order=lambda: notice(here))
        assert rounds(here, provider) == []


def seen_just_now(here: LoopWorld) -> None:
    """The wall clock of this process, or that of the kubelets, says that pods have been Ready for long."""
    here.seen_ready = lambda _: here.clock.monotonic() - 5


def test_pods_stay_after_this_process_has_seen_them_ready_for_a_while() -> None:
    with world(*CLUSTER) as here:
        seen_just_now(here)
        looks = list[None]()
        assert rounds(here, ScriptedProvider([Deleted()], before_order=lambda: looks.append(None))) == []
        assert looks == []


def test_the_last_look_asks_since_when_pods_were_seen_ready() -> None:
    with world(*CLUSTER) as here:
        provider = ScriptedProvider([Deleted()], before_order=lambda: seen_just_now(here))
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
