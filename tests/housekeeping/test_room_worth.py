"""The worth of orders of spot nodes: prices from file, provider and flags, and the provider's templates."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pytest

from rescheduler.errors import Retryable
from rescheduler.housekeeping.command_reads import provider_groups
from rescheduler.observe.events import Held, Planned, RoomOrdered, Waiting
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.policy import Policy
from rescheduler.providers.base import NodeGroup, NodeRef, NodeTaint, NodeTemplate, NotSupported
from rescheduler.settings import MakeRoom, RoomSettings, Timing
from tests.housekeeping.test_provider_room import SpotGroup
from tests.housekeeping.world import LoopWorld, world
from tests.planning.builders import ON_DEMAND, SPOT, Manifest, node, pod

TYPE: Final = "node.kubernetes.io/instance-type"
TIMING: Final = Timing(node_drain_delay=timedelta())
MODES: Final = [MakeRoom.PLACEHOLDERS, MakeRoom.PROVIDER]
#: Two pods that need a new spot node, because spot-1 is full.
WEB: Final[tuple[Manifest, ...]] = (
    node("od-1", ON_DEMAND, labels={TYPE: "m"}),
    pod("web-1", "od-1", cpu="2"),
    pod("web-2", "od-1", cpu="1"),
)
FULL: Final[tuple[Manifest, ...]] = (node("spot-1", labels={TYPE: "m"}), pod("full", "spot-1", cpu="4"))
LIKE: Final = "template-node-for-spot-1"


class Priced(SpotGroup):
    """A provider with prices, and with templates of its groups."""

    def __init__(self, prices: Mapping[str, float], templates: Mapping[str, NodeTemplate] | None = None) -> None:
        super().__init__()
        self.prices, self.templates, self.asked = prices, templates or {}, list[str]()
        self.sizes: dict[str, int] = {}  # target sizes of the groups that differ from the default
        self.silent = False

    def target_size(self, group: str, *, deadline: float) -> int:
        return self.sizes[group] if group in self.sizes else super().target_size(group, deadline=deadline)

    def groups(self, *, deadline: float) -> Sequence[NodeGroup]:  # noqa: ARG002
        if self.silent:
            raise Retryable("no response")
        return [NodeGroup(name, 0, self.most) for name in {"spot": None, **self.templates}]

    def group_for(self, node: NodeRef, *, deadline: float) -> NodeGroup | None:  # noqa: ARG002
        return NodeGroup("spot", 0, self.most) if node.name.startswith("spot") else None

    def template(self, group: str, *, deadline: float) -> NodeTemplate:  # noqa: ARG002
        if group not in self.templates:
            raise NotSupported("no template")
        return self.templates[group]

    def node_price(self, node: NodeRef, start: datetime, end: datetime, *, deadline: float) -> float:  # noqa: ARG002
        self.asked.append(node.name)
        if node.name not in self.prices:
            raise Retryable("no response")
        return self.prices[node.name]


def template(cpu: str = "4", label: str = SPOT, taints: tuple[NodeTaint, ...] = (), **fields: str) -> NodeTemplate:
    amounts = {"cpu": cpu, "memory": "16Gi", "pods": "110", **fields}
    return NodeTemplate({label: "true", TYPE: "m"}, taints, amounts, amounts)


def rounds(here: LoopWorld, provider: Priced, mode: MakeRoom, prices: PriceList | None = None) -> None:
    loop = here.loop(TIMING, provider=provider, room=RoomSettings(mode), prices=prices)
    for _ in range(2):
        loop.round()
        here.pass_time(1)


def outcome(here: LoopWorld) -> Any:
    """Return template and worth of the order, or why there is none."""
    if ordered := here.of(RoomOrdered):
        return ordered[0].template, ordered[0].worth
    [verdict] = here.of(Planned)[-1].planning.verdicts
    return str(getattr(verdict, "blockers", [""])[0]).rpartition("no spot room is ordered: ")[2]


MONEY: dict[str, tuple[PriceList, Mapping[str, float], Any]] = {
    "the provider's prices": (
        PriceList(), {"od-1": 2, "spot-1": 0.5}, ("spot-1", "frees 2.0000 and adds 0.5000 per hour")
    ),
    "the provider's prices: it does not pay": (
        PriceList(),
        {"od-1": 1, "spot-1": 1},
        "1 new spot node like spot-1 would not pay off: an order frees 1.0000 and adds 1.0000 per hour",
    ),
    "the file comes first": (
        PriceList(by_type={("m", "", False): Decimal(3), ("m", "", True): Decimal(1)}),
        {"od-1": 1, "spot-1": 1},
        ("spot-1", "frees 3.0000 and adds 1.0000 per hour"),
    ),
    "the provider comes before a price per vCPU": (
        PriceList(per_vcpu=Decimal(1), spot_per_vcpu=Decimal(2)),
        {"spot-1": 0.5},
        ("spot-1", "frees 4.0000 and adds 0.5000 per hour"),
    ),
    "one price is not known": (PriceList(), {"od-1": 1}, ("spot-1", "frees 4 vCPU and adds 4")),
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("prices", "answers", "expected"), MONEY.values(), ids=MONEY)
def test_the_first_source_with_a_price_applies(
    mode: MakeRoom, prices: PriceList, answers: Mapping[str, float], expected: Any
) -> None:
    with world(*WEB, *FULL) as here:
        rounds(here, Priced(answers), mode, prices)
        assert outcome(here) == expected


def test_each_price_is_requested_from_the_provider_once_an_hour() -> None:
    with world(*WEB, *FULL) as here:
        provider = Priced({"od-1": 1, "spot-1": 1})
        loop = here.loop(TIMING, provider=provider, room=RoomSettings(MakeRoom.PLACEHOLDERS))
        for _ in range(5):
            loop.round()
            here.pass_time(120)
        assert provider.asked == ["od-1", "spot-1"]


TEMPLATES: dict[str, tuple[Mapping[str, NodeTemplate], Mapping[str, float], Any]] = {
    "the provider's template": ({"spot": template("3")}, {}, (LIKE, "frees 4 vCPU and adds 3")),
    "with prices": (
        {"spot": template()},
        {"od-1": 2, LIKE: 0.5},
        (LIKE, "frees 2.0000 and adds 0.5000 per hour"),
    ),
    "it is too small": (
        {"spot": template("1")},
        {},
        (
            f"new spot nodes like {LIKE} would not help: "
            "pod default/web-1: 0/20 spot nodes are available: 20 Insufficient cpu"
        ),
    ),
    "a taint": (
        {"spot": template(taints=(NodeTaint("gpu", "", "NoSchedule"),))},
        {},
        (
            f"new spot nodes like {LIKE} would not help: "
            "pod default/web-1: it does not tolerate the taint gpu:NoSchedule of 20 of 20 spot nodes"
        ),
    ),
    "the cheapest group": (
        {"spot": template("8"), "small": template("3")},
        {},
        ("template-node-for-small-1", "frees 4 vCPU and adds 3"),
    ),
    "groups of on-demand nodes do not count": (
        {"spot": template("3"), "od": template("1", ON_DEMAND)},
        {},
        (LIKE, "frees 4 vCPU and adds 3"),
    ),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("templates", "prices", "expected"), TEMPLATES.values(), ids=TEMPLATES)
def test_without_spot_nodes_new_ones_are_assumed_to_be_like_the_provider_s_template(
    mode: MakeRoom, templates: Mapping[str, NodeTemplate], prices: Mapping[str, float], expected: Any
) -> None:
    with world(*WEB) as here:
        provider = Priced(prices, templates)
        rounds(here, provider, mode)
        assert outcome(here) == expected
        if mode is MakeRoom.PROVIDER and (ordered := here.of(RoomOrdered)):
            assert ordered[0].template == f"template-node-for-{ordered[0].group}-1"
            assert provider.calls == [("increase", 1)]


def test_the_template_of_a_group_with_nodes_does_not_count() -> None:
    with world(*WEB, *FULL) as here:
        rounds(here, Priced({}, {"spot": template("3")}), MakeRoom.PROVIDER)
        assert outcome(here) == ("spot-1", "frees 4 vCPU and adds 4")


def test_the_template_of_a_group_without_nodes_counts_beside_existing_spot_nodes() -> None:
    with world(*WEB, *FULL) as here:
        provider = Priced({}, {"small": template("3")})
        provider.sizes["small"] = 0
        rounds(here, provider, MakeRoom.PROVIDER)
        assert outcome(here) == ("template-node-for-small-1", "frees 4 vCPU and adds 3")
        assert here.of(RoomOrdered)[0].group == "small"


def test_pods_of_daemon_sets_count_on_nodes_like_the_template() -> None:
    agent = pod("agent", "od-1", cpu="1500m", owner="DaemonSet")
    with world(*WEB[:2], agent) as here:
        rounds(here, Priced({}, {"spot": template("3")}), MakeRoom.PLACEHOLDERS)
        assert "Insufficient cpu" in outcome(here)


@pytest.mark.parametrize("broken", [template(cpu="many"), None])
def test_without_a_template_placeholders_are_made_for_nodes_like_the_on_demand_node(
    broken: NodeTemplate | None,
) -> None:
    with world(*WEB) as here:
        provider = Priced({"od-1": 9}, {"spot": broken} if broken else {})
        provider.silent = broken is None
        rounds(here, provider, MakeRoom.PLACEHOLDERS)
        assert outcome(here) == ("od-1", "frees 4 vCPU and adds 4")


def test_without_a_template_no_nodes_are_requested_from_the_provider() -> None:
    with world(*WEB) as here:
        provider = Priced({})
        rounds(here, provider, MakeRoom.PROVIDER)
        assert next((held.waiting, held.detail) for held in here.of(Held)) == (
            Waiting.NO_SPOT_CAPACITY,
            "there is no spot node, and no group of the provider has a template with the labels of spot nodes",
        )
        assert provider.calls == []


def test_a_plan_with_the_provider_buys_what_its_templates_say() -> None:
    """Groups with nodes are left out while there are spot nodes: these show what new nodes are like."""
    provider = Priced({}, {"new": template("8"), "old": template(), "od": template(label=ON_DEMAND)})
    provider.sizes = {"new": 0, "old": 1, "od": 0}
    for has_spot, expected in ((True, [("new", "8")]), (False, [("new", "8"), ("old", "4")])):
        found = provider_groups(provider, Policy().spot_label, deadline=9, has_spot=has_spot)
        groups = [(each.name, each.template.status.allocatable["cpu"]) for each in found.groups if each.template]
        assert sorted(groups) == expected
    provider.silent = True
    assert provider_groups(provider, Policy().spot_label, deadline=9, has_spot=True).groups == ()
