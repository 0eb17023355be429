"""Plans of a cluster with hostile namespaces, beside plans of the same cluster without them.

Each of these namespaces has another kind of many: terms, selectors, budgets, quotas, classes, pending pods. In each
round after the first plan, each of them replaces one of its objects. All times are CPU times of the process.
"""

import gc
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import get_context
from typing import Any, Final, NamedTuple

import msgspec

from predicates.snapshot import Snapshot
from predicates.wire import Decoder, Interner
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from tests.bench.result import Result
from tests.planning.builders import CIRCUMSTANCES, HOST, ON_DEMAND, ZONE, budget, node, pod, repels

Manifest = dict[str, Any]

ON_DEMAND_NODES: Final = 5
SPOT_NODES: Final = 8
ROUNDS: Final = 5

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def cluster(nodes: int = ON_DEMAND_NODES, spot: int = SPOT_NODES) -> Iterator[Manifest]:
    """Yield the objects of the other namespaces."""
    for number in range(nodes):
        yield node(f"od-{number}", ON_DEMAND, cpu="8", zone="ab"[number % 2], pods=5000)
    for name in KINDS:
        yield node(f"od-of-{namespace_of(name)}", ON_DEMAND, cpu="8", pods=5000)
    for number in range(spot):
        yield node(f"spot-{number}", cpu="16", zone="ab"[number % 2], pods=5000)
    for name in ("shop", *KINDS):
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace_of(name), "labels": {"a": "b"}}}
    for number in range(6 * nodes):
        app = f"web{number % 7}"
        fields: Manifest = {"affinity": repels(app)} if not number % 7 else {}
        yield pod(f"shop/{app}-{number}", f"od-{number % nodes}", cpu="250m", **fields)
    for number in range(4 * spot):
        yield pod(f"shop/api{number % 5}-{number}", f"spot-{number % spot}", cpu="250m")
    for number in range(7):
        yield budget(f"web{number}", f"web{number}", allowed=99, namespace="shop")


def namespace_of(kind: str) -> str:
    return "".join(character if character.isalnum() else "-" for character in kind)


class Kind(NamedTuple):
    """What a hostile namespace has: *number* objects made by *make*, and others that its pods need."""

    make: Callable[[str, int], Manifest]
    number: int
    more: Callable[[str], Iterable[Manifest]] = lambda _: ()


def terms(number: int, count: int, *, key: str = HOST, values: int = 1, **fields: Any) -> list[Manifest]:
    return [
        {
            "topologyKey": key,
            "labelSelector": {
                "matchExpressions": [
                    {"key": f"k{number}-{n}", "operator": "NotIn", "values": [f"v{value}" for value in range(values)]}
                ]
            },
        }
        | fields
        for n in range(count)
    ]


def anti(all_terms: list[Manifest]) -> Manifest:
    return {"podAntiAffinity": {REQUIRED: all_terms}}


def towards(all_terms: list[Manifest]) -> Manifest:
    return {"podAffinity": {REQUIRED: all_terms}}


def preferred(all_terms: list[Manifest]) -> Manifest:
    weighted = [{"weight": 1, "podAffinityTerm": term} for term in all_terms]
    return {"podAntiAffinity": {PREFERRED: weighted}, "podAffinity": {PREFERRED: weighted}}


def named(n: str, number: int) -> list[Manifest]:
    """Return a term that selects pods with a label of their own."""
    return [{"topologyKey": HOST, "labelSelector": {"matchLabels": {"own": str(number)}}}]


def place(namespace: str, on: str | None, number: int) -> str:
    """Return a spot node, or the on-demand node of the namespace."""
    return "" if on is None else f"spot-{number % SPOT_NODES}" if on == "spot" else f"od-of-{namespace}"


def of(affinity: Callable[[int], Manifest], on: str | None = None, **fields: Any) -> Callable[[str, int], Manifest]:
    """Return a maker of pods with this affinity, pending ones, or on one of the nodes with prefix *on*."""

    def make(namespace: str, number: int) -> Manifest:
        where = place(namespace, on, number)
        return pod(f"{namespace}/evil-{number}", where, cpu="1m", affinity=affinity(number), **fields)

    return make


def plain(on: str | None = None, **of_number: Callable[[int], Any]) -> Callable[[str, int], Manifest]:
    def make(namespace: str, number: int) -> Manifest:
        where = place(namespace, on, number)
        fields = {name: value(number) for name, value in of_number.items()}
        return pod(f"{namespace}/evil-{number}", where, **({"cpu": "1m"} | fields))

    return make


def spread(number: int, **fields: Any) -> list[Manifest]:
    selector = {"matchExpressions": [{"key": f"k{number}", "operator": "DoesNotExist"}]}
    return [
        {"maxSkew": 5000, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector} | fields
        for key, when in ((HOST, "DoNotSchedule"), (ZONE, "DoNotSchedule"))
    ]


def object_of(kind: str, spec: Callable[[int], Manifest], version: str = "v1", **more: Any) -> Callable[..., Manifest]:
    def make(namespace: str, number: int) -> Manifest:
        meta = {"name": f"evil-{number}", "namespace": namespace}
        return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec(number)} | more

    return make


def limits(number: int) -> Manifest:
    return {"limits": [{"type": "Container", "max": {"cpu": "64", f"example.com/r{number}": "1"}}]}


def running(count: int, on: str = "od", **of_number: Callable[[int], Any]) -> Callable[[str], Iterable[Manifest]]:
    """Return a maker of that many pods of the namespace beside its objects."""

    def make(namespace: str) -> Iterable[Manifest]:
        return [plain(on, **of_number)(namespace, 1_000_000 + number) for number in range(count)]

    return make


def labels(number: int) -> Manifest:
    return {"app": f"evil{number}", "own": str(number)}


def mixed(namespace: str, number: int) -> Manifest:
    return object_of("LimitRange", limits)(namespace, number) if number % 2 else quota(namespace, number)


def quota(namespace: str, number: int) -> Manifest:
    hard = {"hard": {"requests.cpu": "100", f"requests.example.com/r{number}": "1"}}
    return object_of("ResourceQuota", lambda _: hard)(namespace, number)


def own_budget(namespace: str, number: int) -> Manifest:
    selector = {"matchExpressions": [{"key": f"k{number}", "operator": "NotIn", "values": ["a", "b"]}]}
    return budget(f"evil-{number}", "", allowed=1, selector=selector, namespace=namespace)


def autoscaler(namespace: str, number: int) -> Manifest:
    spec = {"targetRef": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "evil"}}
    return object_of("VerticalPodAutoscaler", lambda _: spec, "autoscaling.k8s.io/v1")(namespace, number)


def buffer(namespace: str, number: int) -> Manifest:
    template = {"metadata": {"labels": labels(number)}, "spec": pod("x", cpu="1m", affinity=anti(terms(number, 20)))["spec"]}
    status = {"replicas": 1, "conditions": [{"type": "ReadyForProvisioning", "status": "True"}]}
    return object_of("CapacityBuffer", lambda _: {"podTemplateRef": {"name": "x"}}, template=template, status=status)(
        namespace, number
    )


def tolerations(number: int) -> list[Manifest]:
    return [{"key": f"example.com/{number}-{n}", "operator": "Exists"} for n in range(50)]


def node_affinity(number: int) -> Manifest:
    values = [f"v{number}-{n}" for n in range(1000)]
    expressions = [{"key": HOST, "operator": "NotIn", "values": values}]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}}


def containers(number: int) -> list[Manifest]:
    ports = [{"containerPort": 80, "hostPort": 1000 + number, "protocol": "TCP"}]
    return [{"name": "main", "image": "a", "ports": ports, "resources": {"requests": {"cpu": "1m"}}}]


def claims(number: int) -> list[Manifest]:
    return [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"c{number}-{n}"}} for n in range(10)]


EVERYBODY: Final = {"namespaceSelector": {}}
SOME: Final = {"namespaceSelector": {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}}

KINDS: Final[dict[str, Kind]] = {
    "pending, 50 own terms": Kind(of(lambda n: anti(terms(n, 50))), 500),
    "pending, distinct terms": Kind(of(lambda n: anti(named("", n)), labels={"app": "evil"}), 10_000),
    "running, distinct terms": Kind(of(lambda n: anti(named("", n)), "spot"), 10_000),
    "running, 20 x 20 terms": Kind(of(lambda n: anti(terms(n, 20, values=20)), "spot"), 1_500),
    "running, on one on-demand node": Kind(of(lambda n: anti(terms(n, 50)), "od"), 500),
    "terms over all namespaces": Kind(of(lambda n: anti(terms(n, 1, **EVERYBODY)), "spot"), 2_000),
    "pending, terms over all namespaces": Kind(of(lambda n: anti(terms(n, 20, **EVERYBODY))), 500),
    "terms over selected namespaces": Kind(of(lambda n: anti(terms(n, 5, **SOME)), "spot"), 1_000),
    "pending affinity": Kind(of(lambda n: towards(terms(n, 50))), 500),
    "preferred terms": Kind(of(lambda n: preferred(terms(n, 50)), "od"), 500),
    "preferred terms on spot": Kind(of(lambda n: preferred(terms(n, 20, **EVERYBODY)), "spot"), 1_000),
    "pending spread": Kind(plain(topologySpreadConstraints=spread), 500),
    "running spread": Kind(plain("od", topologySpreadConstraints=spread, labels=labels), 2_000),
    "match label keys": Kind(
        plain(
            topologySpreadConstraints=lambda n: spread(n, matchLabelKeys=[f"l{i}" for i in range(50)]),
            labels=lambda n: {f"l{i}": str(n) for i in range(50)},
        ),
        500,
    ),
    "budgets": Kind(own_budget, 2_000, running(500, labels=labels)),
    "limit ranges and quotas": Kind(mixed, 3_000, running(500, labels=labels)),
    "pending classes": Kind(plain(labels=labels), 10_000),
    "running classes": Kind(plain("od", labels=labels), 5_000),
    "many labels": Kind(plain("od", labels=lambda n: {f"k{n}-{i}": "x" * 60 for i in range(500)}), 500),
    "annotations": Kind(plain("od", annotations=lambda n: {f"k{n}-{i}": "x" * 1000 for i in range(100)}), 500),
    "tolerations": Kind(plain(tolerations=tolerations), 1_000),
    "running tolerations": Kind(plain("od", tolerations=tolerations), 1_000),
    "node affinity": Kind(plain(affinity=node_affinity), 500),
    "running node affinity": Kind(plain("od", affinity=node_affinity), 500),
    "host ports": Kind(plain(containers=containers), 2_000),
    "claims": Kind(plain(volumes=claims), 2_000),
    "running claims": Kind(plain("od", volumes=claims), 2_000),
    "autoscalers": Kind(autoscaler, 3_000, running(500, labels=labels)),
    "buffers": Kind(buffer, 500),
    "priorities": Kind(plain(priority=lambda n: n, labels=labels), 5_000),
    "replica sets": Kind(
        object_of("ReplicaSet", lambda n: {"replicas": 1, "template": pod("x", labels=labels(n))}, "apps/v1"), 3_000
    ),
}

#: The six of the row in the table.
SIX: Final = (
    "pending, 50 own terms",
    "terms over all namespaces",
    "running, 20 x 20 terms",
    "budgets",
    "limit ranges and quotas",
    "pending classes",
)


class Cost(NamedTuple):
    """The CPU seconds of reading the cluster, of the first plan and of a following round; what was planned."""

    reading: float
    first: float
    later: float
    megabytes: float
    drainable: int

    def __str__(self) -> str:
        return (
            f"{self.reading:7.3f} {self.first:9.3f} {self.later:9.4f} {self.megabytes:8.0f} {self.drainable:5}"
        )


def measured(kinds: Iterable[str], scale: float = 1.0) -> Cost:
    """Return the cost in a process of its own, so that the peak of its memory is its own."""
    with get_context("fork").Pool(1) as pool:
        return pool.apply(_measured, (tuple(kinds), scale))


def _measured(kinds: tuple[str, ...], scale: float) -> Cost:
    started = time.process_time()
    snapshot, put = Snapshot(), _putting(Decoder(Interner()))
    for manifest in cluster():
        put(snapshot, manifest)
    numbers = {kind: int(KINDS[kind].number * scale) for kind in kinds}
    for kind, count in numbers.items():
        name = namespace_of(kind)
        for number in range(count):
            put(snapshot, KINDS[kind].make(name, number))
        for manifest in KINDS[kind].more(name):
            put(snapshot, manifest)
    reading, planner = time.process_time() - started, Planner(snapshot, Policy(scheduler_names=frozenset()))
    first = _seconds(lambda: planner.first_plan(CIRCUMSTANCES))
    rounds = []
    for number in range(ROUNDS):
        for kind, count in numbers.items():
            old = KINDS[kind].make(namespace_of(kind), number)
            snapshot.delete(old["kind"], f"{namespace_of(kind)}/{old['metadata']['name']}")
            put(snapshot, KINDS[kind].make(namespace_of(kind), count + number))
        old_web = pod(f"shop/web{number % 7}-{number}", f"od-{number % ON_DEMAND_NODES}", cpu=f"{251 + number}m")
        put(snapshot, old_web)
        rounds.append(_seconds(lambda: planner.first_plan(CIRCUMSTANCES)))
    planning = planner.plan_all(CIRCUMSTANCES)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Cost(reading, first, sum(rounds) / len(rounds), peak, len(planning.plans))


def _putting(decoder: Decoder) -> Callable[[Snapshot, Manifest], None]:
    def put(snapshot: Snapshot, manifest: Manifest) -> None:
        kind = manifest["kind"]
        snapshot.upsert(kind, decoder.decode(kind, msgspec.json.encode(manifest)))

    return put


def _seconds(act: Callable[[], object]) -> float:
    gc.collect()
    started = time.process_time()
    act()
    return time.process_time() - started


def table(kinds: Iterable[str], scale: float) -> Iterator[str]:
    yield f"{'':40} reading first-plan     round       MB plans"
    yield f"{'none':40} {measured((), scale)}"
    for kind in kinds:
        yield f"{kind:40} {measured((kind,), scale)}"


if __name__ == "__main__":
    import sys

    scale = float(sys.argv[1])
    chosen = [kind for kind in KINDS if len(sys.argv) < 3 or any(word in kind for word in sys.argv[2:])]
    for line in table(chosen, scale):
        print(line, flush=True)
