"""After any sequence of changes, topology spread and pod affinity give the same results as on a new snapshot."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from predicates import work
from predicates.indexes import topology
from predicates.indexes.domains import PodCounter
from predicates.indexes.terms import ClassDirectory, PodSelector, SelectorRegistry
from predicates.objects import Pod, PodClass
from predicates.plugins import pods
from predicates.selectors import Selector
from predicates.snapshot import Snapshot, Trial
from predicates.wire import Decoder, Interner
from tests.conformance.builders import node, pod
from tests.conformance.generate.world import Json
from tests.predicates.asking import reasons

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PLUGINS: Final = (pods.POD_TOPOLOGY_SPREAD, pods.INTER_POD_AFFINITY)
WEB, DB = {"app": "web"}, {"app": "db"}
NODES: Final = ("a", "b", "c", "d")
NAMESPACES: Final = ("default", "red", "gone")


def _constraint(key: str, labels: Json, **fields: Any) -> Json:
    selector = {"matchLabels": labels}
    return {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector, **fields}


def _term(key: str, labels: Json, **fields: Any) -> Json:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels}, **fields}


def _apart(*terms: Json) -> Json:
    return {"affinity": {"podAntiAffinity": {REQUIRED: list(terms)}}}


def _near(*terms: Json) -> Json:
    return {"affinity": {"podAffinity": {REQUIRED: list(terms)}}}


RED: Json = {"matchLabels": {"team": "red"}}
PODS: Final[tuple[Json, ...]] = (
    pod("", labels=WEB),
    pod("", labels=DB),
    pod("", labels={}),
    pod("", labels=WEB, topologySpreadConstraints=[_constraint(ZONE, WEB)]),
    pod("", labels=WEB, topologySpreadConstraints=[_constraint(HOST, WEB, nodeTaintsPolicy="Honor")]),
    pod("", labels=DB, topologySpreadConstraints=[_constraint(ZONE, {}, matchLabelKeys=["app"], minDomains=3)]),
    pod(
        "",
        labels=WEB,
        nodeSelector={"pool": "x"},
        topologySpreadConstraints=[_constraint(ZONE, WEB), _constraint(HOST, DB, nodeTaintsPolicy="Honor")],
    ),
    pod("", labels=WEB, **_apart(_term(HOST, WEB))),
    pod("", labels=DB, **_apart(_term(ZONE, WEB, namespaceSelector=RED), _term(HOST, {}))),
    pod("", labels=DB, **_apart(_term(ZONE, DB, namespaces=["red", "gone"]))),
    pod("", labels=DB, **_near(_term(ZONE, DB))),
    pod("", labels=WEB, **_near(_term(ZONE, DB, namespaceSelector=RED), _term(HOST, DB, namespaceSelector={}))),
)
#: (zone, pool, busy): the possible nodes.
LOOKS: Final = tuple((zone, pool, busy) for zone in ("1", "2", None) for pool in ("x", None) for busy in (False, True))
BUSY: Final = {"key": "busy", "effect": "NoSchedule"}

Step: TypeAlias = tuple[Any, ...]


class TopologyScenario:
    """A snapshot whose indexes exist from the start, and the steps that can change it."""

    def __init__(self) -> None:
        self.table = Snapshot()
        self.decoder = Decoder(Interner())
        self.classes = [self._class(item, where, leaving=leaving) for item in PODS for where, leaving in _WHERE]

    def _class(self, obj: Json, namespace: str, *, leaving: bool) -> PodClass:
        meta = obj["metadata"] | {"namespace": namespace, "name": "x"}
        if leaving:
            meta["deletionTimestamp"] = "2024-03-01T10:00:00Z"
        result = self.decoder.decode("Pod", msgspec.json.encode(obj | {"metadata": meta}))
        assert isinstance(result, Pod)
        return result.cls

    def do(self, step: Step) -> None:
        match step:
            case ("pod", name, which, where):
                self.table.upsert("Pod", _pod(name, self.classes[which], where))
            case ("no pod", name):
                self.table.delete("Pod", f"{_space(name)}/{name}")
            case ("node", name, look):
                self.table.upsert("Node", self.decoder.decode("Node", msgspec.json.encode(_node(name, LOOKS[look]))))
            case ("namespace", name, team):
                raw = msgspec.json.encode({"metadata": {"name": name, "labels": {"team": team}}})
                self.table.upsert("Namespace", self.decoder.decode("Namespace", raw))
            case ("no", kind, name):
                self.table.delete(kind, name)
            case ("ask", which):
                self.ask(which)
            case ("trial", steps):
                self.attempt(steps)

    def ask(self, which: int) -> list[dict[str, str]]:
        return [reasons(plugin, self.classes[which], self.table) for plugin in PLUGINS]

    def attempt(self, steps: Iterable[Step]) -> None:
        with self.table.trial() as trial:
            placed: list[tuple[PodClass, int]] = []
            evicted: set[str] = set()
            saved = trial.savepoint(), list(placed), set(evicted)
            for step in steps:
                self._try(step, trial, placed, evicted)
                if step[0] == "keep":
                    saved = trial.savepoint(), list(placed), set(evicted)
                elif step[0] == "revert":
                    trial.revert(saved[0])
                    placed[:], evicted = saved[1], set(saved[2])
            self.check()

    def _try(self, step: Step, trial: Trial, placed: list[tuple[PodClass, int]], evicted: set[str]) -> None:
        rows = self.table.nodes.row
        match step:
            case ("place", which, where) if where in rows:
                trial.place(self.classes[which], rows[where])
                placed.append((self.classes[which], rows[where]))
            case ("displace", which, _) if placed:
                trial.unplace(*placed.pop(which % len(placed)))
            case ("evict", name, _) if (obj := self.table.pods.get(f"{_space(name)}/{name}")) is not None:
                if obj.node_name in rows and name not in evicted:
                    evicted.add(name)
                    trial.evict(obj)
            case ("drain", where, _) if where in rows:
                trial.drain(rows[where])
            case ("keep", _, _):
                trial.keep()
            case ("epoch", _, _):
                self.table.invalidate()
            case ("ask", which, _):
                self.ask(which)

    def check(self) -> None:
        """Check that all classes have the same results as on a new snapshot."""
        fresh = TopologyScenario()
        fresh.classes = self.classes
        for kind, objects in (("Node", self.table.nodes), ("Namespace", self.table.of("Namespace").values())):
            for obj in objects:
                fresh.table.upsert(kind, obj)
        number = 0
        for cls in self.table.classes():
            for row, count in self.table.rows_of(cls).items():
                for _ in range(count):
                    number += 1
                    fresh.table.upsert("Pod", _pod(f"n{number}", cls, self.table.nodes.names[row]))
        with fresh.table.trial() as trial:
            for row in self.table.draining_rows:
                trial.drain(fresh.table.nodes.row[self.table.nodes.names[row]])
            for which in range(len(self.classes)):
                assert _sorted(self.ask(which)) == _sorted(fresh.ask(which))


_WHERE: Final = (("default", False), ("red", False), ("default", True))
_COUNT: Final = len(PODS) * len(_WHERE)


def _sorted(answers: list[dict[str, str]]) -> list[dict[str, str]]:
    return [dict(sorted(item.items())) for item in answers]


def _space(name: str) -> str:
    return f"space-of-{name}"


def _pod(name: str, cls: PodClass, where: str) -> Pod:
    """Return a pod whose name does not depend on its class, so that a pod can change class."""
    return Pod(namespace=_space(name), name=name, uid=name, node_name=where, cls=cls)


def _node(name: str, look: tuple[str | None, str | None, bool]) -> Json:
    zone, pool, busy = look
    labels = {key: value for key, value in ((ZONE, zone), ("pool", pool)) if value is not None}
    return node(name, labels=labels, taints=[BUSY] if busy else [])


_CLASS = st.integers(0, _COUNT - 1)
_NODE = st.sampled_from(NODES)
_NAME = st.sampled_from(("p", "q", "r", "s", "t"))
_TRIED = st.one_of(
    st.tuples(st.just("place"), _CLASS, _NODE),
    st.tuples(st.just("place"), _CLASS, _NODE),
    st.tuples(st.just("displace"), _CLASS, st.none()),
    st.tuples(st.just("evict"), _NAME, st.none()),
    st.tuples(st.just("drain"), _NODE, st.none()),
    st.tuples(st.just("keep"), st.none(), st.none()),
    st.tuples(st.just("revert"), st.none(), st.none()),
    st.tuples(st.just("epoch"), st.none(), st.none()),
    st.tuples(st.just("ask"), _CLASS, st.none()),
)
_STEP = st.one_of(
    st.tuples(st.just("pod"), _NAME, _CLASS, st.sampled_from((*NODES, "", "unknown"))),
    st.tuples(st.just("no pod"), _NAME),
    st.tuples(st.just("node"), _NODE, st.integers(0, len(LOOKS) - 1)),
    st.tuples(st.just("no"), st.just("Node"), _NODE),
    st.tuples(st.just("namespace"), st.sampled_from(NAMESPACES), st.sampled_from(("red", "blue"))),
    st.tuples(st.just("no"), st.just("Namespace"), st.sampled_from(NAMESPACES)),
    st.tuples(st.just("ask"), _CLASS),
    st.tuples(st.just("trial"), st.lists(_TRIED, max_size=8)),
)


@pytest.mark.parametrize("spare", [1000, -(10**6)], ids=["counters are kept", "counters are dropped each epoch"])
def test_results_equal_those_of_a_new_snapshot(spare: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "_SPARE", spare)

    @settings(max_examples=60, deadline=None)
    @given(st.lists(_STEP, min_size=4, max_size=25))
    def run(steps: list[Step]) -> None:
        cluster = TopologyScenario()
        for name in NODES[:3]:
            cluster.do(("node", name, ord(name) % len(LOOKS)))
        for which in range(0, _COUNT, 2):
            cluster.ask(which)
        for step in steps:
            cluster.do(step)
        cluster.check()

    run()


def _assert_counted(table: Snapshot) -> None:
    """Check that each counter has exactly the pods of the classes that it counts, also of namespaces given up."""
    index, expected = table.index(topology.TopologyIndex), dict[PodCounter, Counter[int]]()
    for cls in table.classes():
        for counter in index.counters_of(cls) or ():
            expected.setdefault(counter, Counter()).update(table.rows_of(cls))
    assert {counter: counter.rows for counter in expected} == expected


_TOGETHER = st.lists(st.tuples(st.lists(_CLASS, min_size=1, max_size=4), _NODE), min_size=1, max_size=5)


@example([([25, 28], "a")], [([0], "a")], 662, False)
@example([([26, 21], "a")], [([0], "a")], 655, False)
@settings(max_examples=200, deadline=None)
@given(_TOGETHER, _TOGETHER, st.integers(20, 1500), st.booleans())
def test_a_namespace_that_is_given_up_while_pods_are_placed_is_counted(
    before: list[tuple[list[int], str]], later: list[tuple[list[int], str]], units: int, rebuilt: bool
) -> None:
    """A class that is not known yet, or not any more, may cost more than is left of the work of the namespace."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "UNITS", units)
        patch.setattr(work, "UNITS_PER_NODE", 0)
        patch.setattr(topology, "_SPARE", -(10**6) if rebuilt else 1000)
        cluster = TopologyScenario()
        for name in NODES:
            cluster.do(("node", name, 0))
        table, rows = cluster.table, cluster.table.nodes.row
        for moves in (before, later):
            with table.trial() as trial:
                for which, where in moves:
                    cluster.ask(which[0])
                    trial.place_all([cluster.classes[each] for each in which], rows[where])
                    _assert_counted(table)
                trial.keep()
                _assert_counted(table)
            _assert_counted(table)
            table.invalidate()


def test_rows_that_are_added_later_are_counted() -> None:
    """The columns grow while counters are in use."""
    cluster = TopologyScenario()
    for which in range(_COUNT):
        cluster.ask(which)
    for number in range(30):
        cluster.do(("pod", f"p{number}", number % _COUNT, f"n{number}"))
        cluster.do(("node", f"n{number}", number % len(LOOKS)))
    cluster.check()


def test_unused_counters_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "_SPARE", 0)
    cluster = TopologyScenario()
    cluster.do(("node", "a", 0))
    index = cluster.table.index(topology.TopologyIndex)
    sizes = []
    for number in range(60):
        obj = pod("", labels=WEB, **_apart(_term(HOST, {"v": str(number)})))
        cls = cluster._class(obj, "default", leaving=False)
        cluster.table.upsert("Pod", _pod("p", cls, "a"))
        cluster.table.invalidate()
        reasons(pods.INTER_POD_AFFINITY, cls, cluster.table)
        sizes.append(index.term_count)
    assert max(sizes[10:]) < 10


_LABELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("xyz"), max_size=2)
_TESTS = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist")),
        st.frozensets(st.sampled_from("xyz"), min_size=2, max_size=2),
    ),
    max_size=2,
)
_SELECTOR = st.builds(Selector, st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xyz")), max_size=2), _TESTS)
_SCOPE = st.builds(
    PodSelector, st.none() | st.frozensets(st.sampled_from(("1", "2", "3", "4", "5", "6")), max_size=6), _SELECTOR
)
_CLASSES = st.lists(st.tuples(st.sampled_from(("1", "2", "6")), _LABELS), max_size=12)


def _classes(seen: list[tuple[str, Json]]) -> list[PodClass]:
    table = Decoder(Interner())
    result = []
    for number, (namespace, labels) in enumerate(seen):
        obj = pod(str(number), labels=labels, priority=number)
        obj["metadata"]["namespace"] = namespace
        decoded = table.decode("Pod", msgspec.json.encode(obj))
        assert isinstance(decoded, Pod)
        result.append(decoded.cls)
    return result


@given(_CLASSES, _SCOPE)
def test_directory_finds_the_classes_that_a_selector_matches(seen: Any, scope: PodSelector) -> None:
    directory, classes = ClassDirectory(), _classes(seen)
    for cls in classes:
        directory.add(cls)
    actual = list(directory.matching(scope))
    assert sorted(map(id, actual)) == sorted(id(cls) for cls in classes if scope.matches(cls))


@given(st.lists(_SCOPE, max_size=8), _CLASSES)
def test_registry_finds_each_selector_that_may_match(scopes: list[PodSelector], seen: Any) -> None:
    register: SelectorRegistry[int] = SelectorRegistry()
    for number, scope in enumerate(scopes):
        register.add(number, scope)
    for cls in _classes(seen):
        candidates = list(register.candidates(cls))
        assert len(candidates) == len(set(candidates))
        assert set(candidates) >= {number for number, scope in enumerate(scopes) if scope.matches(cls)}
