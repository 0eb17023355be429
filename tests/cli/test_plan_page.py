"""Tests of the page of ``plan`` for values that the sample does not have: levers, prices, long names, no nodes."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

import pytest

from rescheduler.cli.blockers import NodeNames
from rescheduler.cli.console import rendered
from rescheduler.cli.node_table import node_table
from rescheduler.cli.output import as_json
from rescheduler.cli.plan_page import page
from rescheduler.pages.report import as_html
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.outcome import Blocker, Landing, Placement, Plan, Planning, PodRef, Reason, Rejected, Verdict
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy, Survive
from rescheduler.planning.what_if.overview import NO_PRICE, Lever, Overview, overview
from tests.planning.builders import CIRCUMSTANCES, NOW, ON_DEMAND, Manifest, node, pod, snapshot

TYPE = "node.kubernetes.io/instance-type"
NODES = [node(f"od-{i}", ON_DEMAND, labels={TYPE: "m5.2xlarge"}) for i in range(3)] + [node("spot-1"), node("spot-2")]
PRICES = PriceList({("m5.2xlarge", "", False): Decimal("0.384")}, currency="$")
CACHE = Blocker(Reason.NO_ROOM, "its nodeSelector pool=ci matches no spot node", "ci/cache-1")
STORAGE = Blocker(Reason.LOCAL_STORAGE, "local volume tmp would be lost", "data/api-1")
DISABLED = Blocker(Reason.SCALE_DOWN_DISABLED, "it has the annotation x")
LEVERS = (
    Lever(
        "Deployment ci/ci-cache",
        Reason.NO_ROOM,
        "nodeSelector pool=ci",
        nodes=("od-0", "od-1", "od-2"),
        frees=("od-0",),
        together_with=("Deployment data/api: emptyDir tmp",),
        frees_together=("od-0", "od-1"),
    ),
    Lever("Pod ci/job", Reason.NO_CONTROLLER, "it has no controller", nodes=("od-2",)),
)


def placement(name: str, target: str) -> Placement:
    namespace, _, short = name.partition("/")
    return Placement(PodRef(namespace, short, f"uid-{short}"), target)


def planning(*verdicts: Verdict, **fields: bool | int) -> Planning:
    return Planning(verdicts, len(verdicts), 2, **fields)  # type: ignore[arg-type]


def lines(result: Overview, objects: Sequence[Manifest], *, wide: bool = False, width: int = 80) -> list[str]:
    return rendered(page(result, snapshot(objects), NOW, wide=wide), width).splitlines()


def summed_up(
    plans: Planning, objects: Sequence[Manifest], prices: PriceList, levers: Sequence[Lever] = ()
) -> Overview:
    return overview(plans, snapshot(objects), prices, levers)


def test_levers_are_between_the_totals_and_the_nodes() -> None:
    plans = planning(*(Rejected(f"od-{i}", (CACHE,)) for i in range(3)))
    text = lines(summed_up(plans, NODES, PRICES, LEVERS), NODES)
    assert text == [
        "0 of 3 on-demand nodes drainable; ci/ci-cache blocks 3.",
        "",
        "3 nodes stay (a node can have several reasons)",
        "  no-room-on-spot  3 nodes  warning",
        "",
        "What would free more (to try one, add its --what-if to this command)",
        "  #  frees   $/month  risk  what",
        "  1      1                  Deployment ci/ci-cache: nodeSelector pool=ci",
        "      no-room-on-spot (warning) keeps 3 nodes; alone it frees 1 (m5.2xlarge);",
        "        with Deployment data/api: emptyDir tmp it frees 2 (m5.2xlarge)",
        "  2      0            pod   Pod ci/job: it has no controller",
        "      no-controller (error) keeps 1 node; alone it frees none",
        "  Risk: pod = nothing creates the pod again.",
        "",
        "Nodes in drain order",
        "",
        "3 nodes stay for the same reasons",
        *(f"  od-{i}, m5.2xlarge, a, 280 $/month, requests 0 of 4 vCPU, 0 B of 16 GiB" for i in range(3)),
        "  no-room-on-spot (warning): its nodeSelector pool=ci matches no spot node",
        "    Pod ci/cache-1",
    ]


def test_names_of_nodes_are_short_in_levers_and_in_the_first_sentence() -> None:
    domain = ".eu-west-1.compute.internal"
    objects = [node(f"od-{i}{domain}", ON_DEMAND) for i in (1, 2)]
    lever = Lever(
        f"Node od-1{domain}",
        Reason.SCALE_DOWN_DISABLED,
        "annotation x",
        nodes=(f"od-1{domain}",),
        frees=(f"od-1{domain}",),
    )
    plans = planning(*(Rejected(f"od-{i}{domain}", (DISABLED,)) for i in (1, 2)))
    text = lines(summed_up(plans, objects, PriceList(), [lever]), objects, width=120)
    assert text[0] == "0 of 2 on-demand nodes drainable; od-1 blocks 1."
    assert "  1      1  Node od-1: annotation x" in text
    assert "      scale-down-disabled (info) keeps 1 node; alone it frees 1 (od-1)" in text


@pytest.mark.parametrize(("frees", "gain"), [((), "not tried"), (("od-0",), "alone it frees at least 1 (m5.2xlarge)")])
def test_a_lever_that_was_not_tried_states_this(frees: tuple[str, ...], gain: str) -> None:
    plans = planning(*(Rejected(f"od-{i}", (CACHE,)) for i in range(3)))
    lever = Lever("Pod ci/job", Reason.NO_CONTROLLER, "no controller", ("od-0",), frees, tried=False)
    text = lines(summed_up(plans, NODES, PRICES, [lever]), NODES, width=200)
    assert f"      no-controller (error) keeps 1 node; {gain}" in text


def test_the_spot_nodes_that_get_pods_are_counted() -> None:
    moving = Plan("od-0", (placement("shop/web-1", "spot-1"), placement("shop/web-2", "spot-1")))
    for plan, sentence in (
        (moving, "Freed by moving 2 pods to 1 of 5 spot nodes"),
        (Plan("od-0", ()), "Freed without moving pods"),
    ):
        result = summed_up(Planning((plan,), 1, 5), NODES, PriceList())
        assert lines(result, NODES)[2] == sentence


def test_prices_that_no_node_has_are_reported() -> None:
    prices = PriceList(by_type={("other", "", False): Decimal(1)})
    assert NO_PRICE in lines(summed_up(planning(Plan("od-0", ())), NODES, prices), NODES, width=200)
    assert NO_PRICE not in lines(summed_up(planning(Plan("od-0", ())), NODES, PriceList()), NODES, width=200)


HEADLINES: dict[str, tuple[Planning, PriceList, str]] = {
    "all, with prices": (
        planning(*(Plan(f"od-{i}", ()) for i in range(3))),
        PRICES,
        "3 of 3 on-demand nodes drainable; saves 841 $/month.",
    ),
    "all, without prices": (
        planning(*(Plan(f"od-{i}", ()) for i in range(3))),
        PriceList(),
        "3 of 3 on-demand nodes drainable (12 vCPU, 48 GiB).",
    ),
    "the controller that blocks the most nodes": (
        planning(
            Rejected("od-0", (STORAGE,)), Rejected("od-1", (STORAGE, DISABLED)), Rejected("od-2", (DISABLED, CACHE))
        ),
        PRICES,
        "0 of 3 on-demand nodes drainable; data/api-1 blocks 2.",
    ),
    "a reason of the nodes": (
        planning(Rejected("od-0", (DISABLED,)), Rejected("od-1", (DISABLED,)), Plan("od-2", ())),
        PRICES,
        "1 of 3 on-demand nodes drainable; saves 280 $/month; scale-down-disabled blocks 2.",
    ),
    "no room, regardless of the first pod": (
        planning(Rejected("od-0", (CACHE,))),
        PRICES,
        "0 of 1 on-demand node drainable; no-room-on-spot blocks 1.",
    ),
    "one node without a price": (
        planning(Plan("od-0", ()), Plan("od-1", ())),
        PriceList(by_node={"od-0": Decimal("0.1")}),
        "2 of 2 on-demand nodes drainable; saves at least 73.00/month.",
    ),
    "no nodes": (planning(), PRICES, "0 of 0 on-demand nodes drainable."),
}


@pytest.mark.parametrize(("plans", "prices", "sentence"), HEADLINES.values(), ids=HEADLINES)
def test_the_first_sentence_sums_up_the_plan(plans: Planning, prices: PriceList, sentence: str) -> None:
    assert lines(summed_up(plans, NODES, prices), NODES, width=200)[0] == sentence


def test_limitations_of_the_result_are_shown() -> None:
    nothing = Planning((), 0, 0, timed_out=True, upper_bound=4)
    result = overview(nothing, snapshot([]), PriceList(), assumptions=["no PodDisruptionBudget in the file"])
    assert lines(result, []) == [
        "0 of 0 on-demand nodes drainable.",
        "",
        "The search timed out; at most 4 nodes can be drained.",
        "No node has the label node-role.kubernetes.io/worker (--on-demand-node-label).",
        "No node has the label node-role.kubernetes.io/spot-worker (--spot-node-label).",
        "Note: no PodDisruptionBudget in the file",
    ]


PLAN = Plan(
    "od-0",
    (placement("shop/web-1", "spot-1"), placement("shop/web-2", "spot-2"), placement("shop/web-3", "spot-1")),
    leaving=(PodRef("shop", "old", "uid-old"),),
    robust=False,
    landing=Landing(2, 1),
    forecast=(placement("shop/web-1", "spot-1"), placement("shop/web-2", "od-1"), placement("shop/web-3", "spot-1")),
)
WEB = [pod(f"shop/web-{i}", "od-0") for i in (1, 2, 3)]


def block(*, wide: bool) -> list[str]:
    text = lines(summed_up(planning(PLAN), NODES + WEB, PriceList()), NODES + WEB, wide=wide)
    return text[text.index("Nodes in drain order") + 2 :]


def test_pods_are_grouped_by_controller() -> None:
    assert block(wide=False) == [
        "od-0, m5.2xlarge, a: drainable",
        "  requests 3 of 4 vCPU, 0 B of 16 GiB",
        "  the daemon would not drain it: fragile-plan",
        "  fragile: the pods fit only if the scheduler chooses these nodes",
        "  waits for 1 pod that is being deleted",
        "  forecast: 2 pods to spot nodes, 1 to other nodes",
        "  ReplicaSet shop/web: 3 pods → spot-1 (2), spot-2",
    ]


@pytest.mark.parametrize("robust", [True, False, None])
def test_the_report_says_of_each_drain_what_the_page_says(*, robust: bool | None) -> None:
    before = replace(PLAN, node="od-1", placements=(placement("shop/api-1", "spot-2"),), landing=None)
    plan = replace(PLAN, robust=robust, first=(before,), preempts=(PodRef("batch", "low", "uid-low"),))
    overview = summed_up(planning(plan), NODES + WEB, PriceList())
    text, html = lines(overview, NODES + WEB), as_html(overview)
    said = [line.strip().rstrip(":") for line in text[text.index("Nodes in drain order") :] if "→" not in line]
    notes = said[4 : said.index("before that, od-1, which stays, makes room") + 1]
    assert ("fragile: the pods fit only if the scheduler chooses these nodes" in notes) is (robust is False)
    assert "the scheduler preempts batch/low" in notes
    for note in notes:
        assert f">{note[0].upper()}{note[1:]}.</p>" in html
    assert html.index("<p>Before that, od-1") < html.index("shop/api-1") < html.index("shop/web-1")


def test_wide_output_names_each_pod_and_the_choice_of_the_scheduler() -> None:
    assert block(wide=True)[6:] == [
        "  shop/web-1 (ReplicaSet shop/web) → spot-1",
        "  shop/web-2 (ReplicaSet shop/web) → spot-2; the scheduler would prefer od-1",
        "  shop/web-3 (ReplicaSet shop/web) → spot-1",
    ]


def test_wide_output_shows_each_node_separately() -> None:
    plans = planning(*(Rejected(f"od-{i}", (STORAGE,)) for i in range(3)))
    text = lines(summed_up(plans, NODES, PRICES), NODES, wide=True)
    assert [line for line in text if line.endswith(": stays")] == [
        f"od-{i}, m5.2xlarge, a, 280 $/month: stays" for i in range(3)
    ]


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("wide", [False, True])
def test_long_names_are_not_truncated(width: int, wide: bool) -> None:
    name, target, long_pod = "n" * 60, "s" * 60, "p" * 63
    objects = [node(name, ON_DEMAND), node(target), pod(f"shop/{long_pod}", name)]
    plan = Plan(name, (placement(f"shop/{long_pod}", target),))
    stuck = Rejected(name, (Blocker(Reason.POD_STUCK_TERMINATING, "it is stuck", f"shop/{long_pod}"),))
    for verdict, wanted in ((plan, {name, target}), (stuck, {name, long_pod})):
        text = lines(summed_up(planning(verdict), objects, PriceList()), objects, wide=wide, width=width)
        assert [line for line in text if len(line) > width] == []
        together = "".join(line.strip() for line in text)
        assert {part for part in wanted if part not in together} == set()


def test_the_worst_pools_are_listed_with_their_homeless_pods() -> None:
    """At 80 columns, with at most three pools and two controllers of each; all of them with ``-o wide``."""
    objects = [node("od", ON_DEMAND, unschedulable=True)]
    for number in range(5):
        objects.append(node(f"spot-{number}", labels={TYPE: f"m{number}"}))
        objects += [
            pod(f"{app}{number}-0", f"spot-{number}", cpu="1200m", priority=5 if app == "high" else 0)
            for app in ("high", "cart", "web")
        ]
    cluster = snapshot(objects)
    planner = Planner(cluster, Policy())
    planning = planner.plan_all(CIRCUMSTANCES)
    certificate = planner.certificate(CIRCUMSTANCES, Survive.POOL, planning.plans)
    result = replace(overview(planning, cluster, PriceList()), survival=certificate)
    text = lines(result, objects)
    begin = text.index("Would not survive the loss of 5 of 5 pools of spot nodes")
    shown = text[begin : text.index("", begin)]
    assert [line for line in shown if "without a place" in line] == [
        f"  a/m{number} (1 node): 3 of 3 pods without a place; they need 3.6 vCPU, 0 B: at least" for number in range(3)
    ]
    assert shown[1:5] == [
        "  a/m0 (1 node): 3 of 3 pods without a place; they need 3.6 vCPU, 0 B: at least",
        "    1 node like spot-0",
        "    ReplicaSet default/high0, priority 5: 1 pod: 0/4 remaining nodes are",
        "      available: 4 Insufficient cpu",
    ]
    assert "    and pods of 1 more controller" in shown
    assert shown[-1] == "  2 more with -o wide."
    wide = lines(result, objects, wide=True)
    assert sum("pods without a place" in line for line in wide) == 5


def test_what_the_daemon_would_not_drain_says_so_in_every_format() -> None:
    """A plan whose pods mostly return, in the line of its node, in JSON and in the report."""
    plan = Plan("od-0", (placement("shop/a", "spot-1"),), robust=True, landing=Landing(0, 1))
    result = summed_up(planning(plan), NODES, PRICES)
    reason = "returns-to-on-demand"
    assert f"  the daemon would not drain it: {reason}" in lines(result, NODES)
    names = NodeNames.of(result.nodes)
    assert f"drainable: 1 pod, but {reason}" in rendered(node_table(result, names, NOW, 120), 120)
    assert as_json(result, 0)["nodes"][0]["left_by_daemon"] == reason
    assert f"The daemon would not drain it: {reason}." in as_html(result)
    allowed = overview(planning(plan), snapshot(NODES), PRICES, policy=Policy(allow_returning_plans=True))
    assert as_json(allowed, 0)["nodes"][0]["left_by_daemon"] is None
    assert reason not in as_html(allowed)


@pytest.mark.parametrize("stays", [True, False], ids=["a node stays", "all nodes are empty"])
def test_without_spot_nodes_the_first_thing_to_do_is_to_try_some(stays: bool) -> None:
    """Not if every node can be drained: their pods need no spot nodes."""
    verdict = Rejected("od-0", (CACHE,)) if stays else Plan("od-0", ())
    result = summed_up(Planning((verdict,), 1, 0), NODES[:1], PRICES)
    command = "rescheduler plan --what-if 'add-spot 3 like od-0'"
    assert (f"First: {command}" in lines(result, NODES)) is stays
    assert ("; there is no spot node: try add-spot" in lines(result, NODES)[0]) is stays
    assert (f"First: <code>{command}</code>" in as_html(result)) is stays
