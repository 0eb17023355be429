"""Namespaces with too many terms, budgets, quotas and limits to judge: they keep their own nodes, and no others.

Whatever is not judged must not permit a node that the scheduler rejects.
"""

from collections.abc import Callable, Iterator
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from predicates import work
from predicates.filters import Filters
from predicates.indexes.topology import TopologyIndex
from predicates.snapshot import Snapshot
from rescheduler.planning.outcome import Rejected
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from tests.planning.builders import CIRCUMSTANCES, HOST, ON_DEMAND, ZONE, Manifest, budget, node, pod, short, snapshot

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
TOO_MANY: Final = "too many different affinity terms and topology spread constraints in namespace team"
ALL: Final = 10**9


@pytest.fixture
def _few_units(monkeypatch: pytest.MonkeyPatch) -> None:
    _limit(monkeypatch, 600)


def _limit(monkeypatch: pytest.MonkeyPatch, units: int) -> None:
    monkeypatch.setattr(work, "UNITS", units)
    monkeypatch.setattr(work, "UNITS_PER_NODE", 0)


def term(key: str = HOST, **fields: object) -> Manifest:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "none"}}} | fields


def anti(*terms: Manifest) -> Manifest:
    return {"podAntiAffinity": {REQUIRED: list(terms)}}


def crowd(*terms: Manifest, on: str = "s-1") -> Iterator[Manifest]:
    """Yield pods of the namespace `team` with more terms than are judged; the last pod has *terms* as well."""
    own = [term(labelSelector={"matchExpressions": [{"key": f"k{n}", "operator": "Exists"}]}) for n in range(40)]
    yield pod("team/many-1", on, cpu="1m", affinity=anti(*own))
    yield pod("team/last-1", on, cpu="1m", affinity=anti(*terms))


NODES: Final = (
    *(node(name, ON_DEMAND) for name in ("od-1", "od-2")),
    *(node("s-1", zone="a"), node("s-2", zone="a"), node("s-3", zone="b")),
)

#: Terms of the namespace that is given up, and the node of a pod of another namespace.
TERMS: Final[dict[str, tuple[list[Manifest], str]]] = {
    "none": ([], "s-1"),
    "of its own namespace": ([term(ZONE)], "s-1"),
    "that names its own namespace": ([term(ZONE, namespaces=["team"])], "s-1"),
    "of another namespace, by node": ([term(namespaces=["default"])], "s-2"),
    "of two namespaces, by node": ([term(namespaces=["team", "default"])], "s-2"),
    "of selected namespaces, by node": ([term(namespaceSelector={"matchLabels": {"a": "b"}})], "s-2"),
    "of all namespaces, by zone": ([term(ZONE, namespaceSelector={})], "s-3"),
    "of all namespaces, by a label that no node has": ([term("example.com/none", namespaceSelector={})], "s-1"),
}


@pytest.mark.usefixtures("_few_units")
@pytest.mark.parametrize("case", TERMS)
def test_a_namespace_that_is_given_up_repels_others_where_it_may(case: str) -> None:
    terms, where = TERMS[case]
    planner = Planner(snapshot([*NODES, pod("a-1", "od-1"), *crowd(*terms)]), Policy())
    assert short(planner.plan_node("od-1", CIRCUMSTANCES)) == {"a-1": where}


@pytest.mark.usefixtures("_few_units")
def test_its_pods_keep_the_nodes_that_they_run_on() -> None:
    plain = pod("team/plain-1", "od-2")
    planner = Planner(snapshot([*NODES, pod("a-1", "od-1"), plain, *crowd(on="s-3")]), Policy())
    assert short(planner.plan_node("od-1", CIRCUMSTANCES)) == {"a-1": "s-3"}
    verdict = planner.plan_node("od-2", CIRCUMSTANCES)
    assert isinstance(verdict, Rejected)
    assert TOO_MANY in verdict.blockers[0].detail


@pytest.mark.usefixtures("_few_units")
def test_its_pending_pods_take_no_room() -> None:
    waiting = pod("team/waiting-1", cpu="4")
    planner = Planner(snapshot([*NODES, waiting, *crowd()]), Policy())
    assert planner.pending(CIRCUMSTANCES).pods == 0
    assert Planner(snapshot([*NODES, waiting]), Policy()).pending(CIRCUMSTANCES).pods == 1


@pytest.mark.usefixtures("_few_units")
def test_a_term_that_another_namespace_has_as_well_still_counts() -> None:
    """The namespace that is given up was the first with the term."""
    shared = term(namespaces=["default"], labelSelector={"matchLabels": {"app": "a"}})
    other = pod("other/o-1", "s-2", cpu="1m", affinity=anti(shared))
    planner = Planner(snapshot([*NODES, pod("a-1", "od-1"), *crowd(shared), other]), Policy())
    assert short(planner.plan_node("od-1", CIRCUMSTANCES)) == {"a-1": "s-3"}


@pytest.mark.usefixtures("_few_units")
def test_its_pods_come_and_go() -> None:
    """Pods that are placed after it was given up repel others, and no longer do when they are gone."""
    repelling = anti(term(namespaceSelector={}))
    cluster = snapshot([*NODES, pod("a-1", "od-1"), *crowd()])
    planner = Planner(cluster, Policy())
    assert short(planner.plan_node("od-1", CIRCUMSTANCES)) == {"a-1": "s-1"}
    late = snapshot([pod("team/late-1", "s-1", cpu="1m", affinity=repelling)])
    cluster.upsert("Pod", late.pods["team/late-1"])
    assert short(planner.plan_node("od-1", CIRCUMSTANCES)) == {"a-1": "s-2"}
    cluster.delete("Pod", "team/late-1")
    assert short(planner.plan_node("od-1", CIRCUMSTANCES)) == {"a-1": "s-1"}


def test_it_is_judged_again_when_its_pods_are_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    _limit(monkeypatch, 1500)
    cluster = snapshot([*NODES, pod("team/plain-1", "od-2"), *crowd(on="s-3")])
    planner = Planner(cluster, Policy())
    assert isinstance(planner.plan_node("od-2", CIRCUMSTANCES), Rejected)
    for name in ("many-1", "last-1"):
        cluster.delete("Pod", f"team/{name}")
    cluster.compact()
    assert short(planner.plan_node("od-2", CIRCUMSTANCES)) == {"plain-1": "s-1"}


# The law: what is not judged is rejected.

NAMESPACES: Final = ("a", "b", "team")
KEYS: Final = (HOST, ZONE)


@st.composite
def _terms(draw: st.DrawFn) -> Manifest:
    expression = {"key": draw(st.sampled_from("xyz")), "operator": draw(st.sampled_from(["Exists", "DoesNotExist"]))}
    fields: Manifest = {"labelSelector": {"matchExpressions": [expression]}}
    match draw(st.integers(0, 3)):
        case 0:
            fields["namespaces"] = draw(st.lists(st.sampled_from(NAMESPACES), min_size=1, max_size=2, unique=True))
        case 1:
            fields["namespaceSelector"] = {}
    return {"topologyKey": draw(st.sampled_from(KEYS))} | fields


@st.composite
def _pods(draw: st.DrawFn) -> list[Manifest]:
    pods = []
    for number in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["podAntiAffinity", "podAntiAffinity", "podAffinity"]))
        affinity = {kind: {REQUIRED: draw(st.lists(_terms(), max_size=3))}}
        labels = dict.fromkeys(draw(st.sets(st.sampled_from("xyz"))), "")
        on = draw(st.sampled_from(["", "s-1", "s-2", "s-3"]))
        name = f"{draw(st.sampled_from(NAMESPACES))}/p{number}-1"
        pods.append(pod(name, on, cpu="10m", labels=labels, affinity=affinity))
    return pods


def _accepting(cluster: Snapshot) -> list[set[str]]:
    """Return the nodes that accept each pod, asked twice: a namespace may be given up for a later pod."""
    filters = Filters(cluster)
    for each in cluster.pods.values():
        filters.feasible(each.cls)
    accepted = [filters.feasible(each.cls) for each in cluster.pods.values()]
    return [{cluster.nodes.names[row] for row in each.nonzero()[0]} for each in accepted]


@settings(max_examples=150)
@given(_pods(), st.integers(20, 800))
def test_nodes_are_accepted_only_if_all_terms_were_judged(pods: list[Manifest], units: int) -> None:
    objects = [*NODES, *pods]
    with pytest.MonkeyPatch.context() as patch:
        _limit(patch, ALL)
        everything = snapshot(objects)
        expected = _accepting(everything)
        _limit(patch, units)
        limited = snapshot(objects)
        found = _accepting(limited)
        index = limited.index(TopologyIndex)
        for each, all_accepting, accepting in zip(limited.pods.values(), expected, found, strict=True):
            assert accepting <= all_accepting
            assert not (accepting and index.is_given_up(each.namespace))


# Objects other than pods


@pytest.mark.usefixtures("_few_units")
def test_too_many_budgets_keep_the_pods_of_their_namespace() -> None:
    selectors = [{"matchExpressions": [{"key": f"k{n}", "operator": "Exists"}]} for n in range(700)]
    many = [budget(f"b-{n}", "", allowed=1, selector=each, namespace="team") for n, each in enumerate(selectors)]
    own = budget("a", "a", allowed=1)
    planner = Planner(snapshot([*NODES, pod("a-1", "od-1"), pod("team/b-1", "od-2"), own, *many]), Policy())
    assert short(planner.plan_node("od-1", CIRCUMSTANCES)) == {"a-1": "s-1"}
    verdict = planner.plan_node("od-2", CIRCUMSTANCES)
    assert isinstance(verdict, Rejected)
    [detail] = [blocker.detail for blocker in verdict.blockers]
    assert detail == "namespace team has too many PodDisruptionBudgets to judge which of them select it"


def quota(number: int, namespace: str, hard: Manifest | None = None, used: Manifest | None = None) -> Manifest:
    hard = {"pods": "100"} if hard is None else hard
    return {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": f"q-{number}", "namespace": namespace},
        "spec": {"hard": hard}, "status": {"hard": hard, "used": {"pods": "1"} if used is None else used},
    }  # fmt: skip


def limits(number: int, namespace: str) -> Manifest:
    spec = {"limits": [{"type": "Container", "min": {"cpu": "1m"}}]}
    return {
        "apiVersion": "v1", "kind": "LimitRange",
        "metadata": {"name": f"l-{number}", "namespace": namespace}, "spec": spec,
    }  # fmt: skip


def selecting(number: int, namespace: str) -> Manifest:
    selector = {"matchExpressions": [{"key": f"k{number}", "operator": "Exists"}]}
    return budget(f"b-{number}", "", allowed=1, selector=selector, namespace=namespace)


@pytest.mark.parametrize("make", [selecting, limits], ids=["budgets", "limit ranges"])
def test_the_work_for_new_classes_is_limited_for_each_round(
    make: Callable[[int, str], Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each roll-out has pods of a new class, of which there are few at a time."""
    _limit(monkeypatch, 600)
    cluster = snapshot([*NODES, *(make(number, "team") for number in range(20))])
    planner = Planner(cluster, Policy())
    for number in range(60):
        cluster.upsert("Pod", snapshot([pod("team/a-1", "od-1", cpu=f"{100 + number}m")]).pods["team/a-1"])
        assert short(planner.plan_node("od-1", CIRCUMSTANCES)) == {"a-1": "s-1"}
        assert planner.plan_each(CIRCUMSTANCES) == Planner(cluster, Policy()).plan_each(CIRCUMSTANCES)


def _new_class(cluster: Snapshot, number: int) -> None:
    [changed] = snapshot([pod("x-1", "s-1", cpu=f"{2 + number}m")]).pods.values()
    cluster.upsert("Pod", changed)


def _edit(cluster: Snapshot, number: int) -> None:
    cluster.upsert("Pod", replace(cluster.pods["default/x-1"], annotations={"example.com/round": str(number)}))


def _one_more(cluster: Snapshot, number: int) -> None:
    cluster.upsert("Pod", replace(cluster.pods["default/x-1"], name=f"y-{number}"))


#: What changes from round to round: a pod of another namespace.
CHANGES: Final = {"a new class": _new_class, "an edit": _edit, "one more pod": _one_more}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("make", [selecting, limits], ids=["budgets", "limit ranges"])
def test_what_one_round_has_refused_is_judged_in_later_rounds(
    make: Callable[[int, str], Manifest], change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A roll-out of many workloads has new classes of pods on many nodes at a time."""
    _limit(monkeypatch, 100)
    burst = [pod(f"team/a-{number}", f"od-{number}", cpu=f"{100 + number}m") for number in range(8)]
    nodes = [*(node(f"od-{number}", ON_DEMAND) for number in range(8)), node("s-1", cpu="64", pods=300)]
    burst.append(pod("x-1", "s-1", cpu="1m"))
    cluster = snapshot([*nodes, *burst, *(make(number, "team") for number in range(20))])
    planner, refused = Planner(cluster, Policy()), []
    for number in range(10):
        refused.append(sum("too many" in str(each) for each in planner.plan_each(CIRCUMSTANCES).rejected))
        CHANGES[change](cluster, number)
    assert refused[0] > 0
    assert refused == sorted(refused, reverse=True)
    assert refused[-1] == 0
    _limit(monkeypatch, ALL)
    assert planner.plan_each(CIRCUMSTANCES) == Planner(cluster, Policy()).plan_each(CIRCUMSTANCES)


def test_the_work_for_quotas_does_not_grow_with_the_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many questions are asked in one ground: about each node that changes, for levers, while a drain goes on."""
    _limit(monkeypatch, 1500)
    quotas = [quota(number, "team") for number in range(8)]
    planner = Planner(snapshot([*NODES, pod("team/a-1", "od-1"), pod("team/b-1", "od-2"), *quotas]), Policy())
    for _ in range(40):
        assert short(planner.plan_node("od-1", CIRCUMSTANCES)) == {"a-1": "s-1"}


COUNTED: Final[Manifest] = {"pods": "41"}

#: What a quota of the namespace `team` limits, what its controller has counted, and the units that this takes.
UNCOUNTED: Final[dict[str, tuple[Manifest, Manifest, int]]] = {
    "an extended resource without requests.": ({"pods": "90", "nvidia.com/gpu": "4"}, COUNTED, 0),
    "objects of a kind that does not exist": ({"pods": "90", "count/widgets.example.com": "4"}, COUNTED, 0),
    "objects that are no pods": ({"pods": "90", "services": "4"}, COUNTED, 0),
    "limits of an extended resource": ({"pods": "90", "limits.nvidia.com/gpu": "4"}, COUNTED, 0),
    "a resource that no pod has": ({"pods": "90", "requests.example.com/dongle": "4"}, COUNTED, 4000),
    "claims of another storage class": ({"pods": "90", "a.storageclass.storage.k8s.io/requests.storage": 1}, {}, 4000),
    "nothing is counted yet": ({"pods": "90", "services": "4", "requests.cpu": "900"}, {}, 4000),
}


@pytest.mark.parametrize("case", UNCOUNTED)
def test_what_a_quota_has_not_counted_is_counted_once_for_all_nodes(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pods of the namespace, on 20 on-demand nodes and on a spot node, are of 41 classes."""
    hard, used, units = UNCOUNTED[case]
    _limit(monkeypatch, units)
    quotas = [quota(0, "team", hard, used), quota(1, "team", hard, used)]
    names = [f"od-{number}" for number in range(20)]
    classes = [pod(f"team/a-{number}", f"od-{number}", cpu=f"{100 + number}m") for number in range(20)]
    others = [pod(f"team/b-{number}", "s-1", cpu=f"{1 + number}m") for number in range(21)]
    nodes = [*(node(name, ON_DEMAND) for name in names), node("s-1", cpu="64")]
    planner = Planner(snapshot([*nodes, *classes, *others, *quotas]), Policy())
    for _ in range(2):
        for number in range(20):
            assert short(planner.plan_node(f"od-{number}", CIRCUMSTANCES)) == {f"a-{number}": "s-1"}


@pytest.mark.usefixtures("_few_units")
@pytest.mark.parametrize("where", ["s-1", "", "gone-1"], ids=["on a spot node", "pending", "on a lost node"])
def test_only_pods_that_may_have_to_move_limit_the_number_of_quotas(where: str) -> None:
    quotas = [quota(number, "team") for number in range(6)]
    others = [pod(f"team/b-{number}", where, cpu="1m") for number in range(50)]
    planner = Planner(snapshot([*NODES, node("s-4", cpu="64"), pod("team/a-1", "od-1"), *others, *quotas]), Policy())
    verdict = planner.plan_node("od-1", CIRCUMSTANCES)
    assert "quota-exceeded" not in short(verdict)


@pytest.mark.usefixtures("_few_units")
@pytest.mark.parametrize(
    ("make", "what"), [(quota, "ResourceQuotas"), (limits, "LimitRanges")], ids=["quotas", "limit ranges"]
)
def test_too_many_quotas_and_limits_keep_the_pods_of_their_namespace(
    make: Callable[[int, str], Manifest], what: str
) -> None:
    many = [make(number, "team") for number in range(100)]
    few = [make(number, "default") for number in range(4)]
    pods = [pod("a-1", "od-1"), pod("team/b-1", "od-2")]
    planner = Planner(snapshot([*NODES, *pods, *few, *many]), Policy())
    assert short(planner.plan_node("od-1", CIRCUMSTANCES)) == {"a-1": "s-1"}
    verdict = planner.plan_node("od-2", CIRCUMSTANCES)
    assert isinstance(verdict, Rejected)
    assert [blocker.detail for blocker in verdict.blockers] == [f"namespace team has too many {what} to judge"]
