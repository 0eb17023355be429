"""Plans of a cluster with hostile namespaces, beside plans of the same cluster without them.

Each of these namespaces has another kind of many: terms, selectors, budgets, quotas, classes, pending pods. In each
round after the first plan, each of them replaces one of its objects. All times are CPU times of the process.
"""

import gc
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from multiprocessing import get_context
from typing import Any, Final, NamedTuple

import click
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
ROUNDS: Final = 3

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


def terms(number: int, size: int, *, key: str = HOST, values: int = 1, **fields: Any) -> list[Manifest]:
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
        for n in range(size)
    ]


def anti(all_terms: list[Manifest]) -> Manifest:
    return {"podAntiAffinity": {REQUIRED: all_terms}}


def towards(all_terms: list[Manifest]) -> Manifest:
    return {"podAffinity": {REQUIRED: all_terms}}


def preferred(all_terms: list[Manifest]) -> Manifest:
    weighted = [{"weight": 1, "podAffinityTerm": term} for term in all_terms]
    return {"podAntiAffinity": {PREFERRED: weighted}, "podAffinity": {PREFERRED: weighted}}


def named(number: int) -> list[Manifest]:
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


def running(size: int, on: str = "od", **of_number: Callable[[int], Any]) -> Callable[[str], Iterable[Manifest]]:
    """Return a maker of that many pods of the namespace beside its objects."""

    def make(namespace: str) -> Iterable[Manifest]:
        return [plain(on, **of_number)(namespace, 1_000_000 + number) for number in range(size)]

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
    template = {
        "metadata": {"labels": labels(number)},
        "spec": pod("x", cpu="1m", affinity=anti(terms(number, 20)))["spec"],
    }
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


EVERYBODY: Final[Manifest] = {"namespaceSelector": {}}
SOME: Final[Manifest] = {"namespaceSelector": {"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}}

KINDS: Final[dict[str, Kind]] = {
    # What any Deployment of 100 pods on one node costs: the kinds with 100 running pods are compared with it.
    "running, one class": Kind(plain("od", labels=lambda _: {"app": "one"}), 100),
    "pending, 50 own terms": Kind(of(lambda n: anti(terms(n, 50))), 500),
    "pending, distinct terms": Kind(of(lambda n: anti(named(n)), labels={"app": "evil"}), 10_000),
    "running, distinct terms": Kind(of(lambda n: anti(named(n)), "spot"), 880),
    "running, 20 x 20 terms": Kind(of(lambda n: anti(terms(n, 20, values=20)), "spot"), 880),
    "running, on one on-demand node": Kind(of(lambda n: anti(terms(n, 50)), "od"), 100),
    "terms over all namespaces": Kind(of(lambda n: anti(terms(n, 2, **EVERYBODY)), "spot"), 880),
    "pending, terms over all namespaces": Kind(of(lambda n: anti(terms(n, 20, **EVERYBODY))), 500),
    "terms over selected namespaces": Kind(of(lambda n: anti(terms(n, 5, **SOME)), "spot"), 880),
    "pending affinity": Kind(of(lambda n: towards(terms(n, 50))), 500),
    "preferred terms": Kind(of(lambda n: preferred(terms(n, 50)), "od"), 100),
    "preferred terms on spot": Kind(of(lambda n: preferred(terms(n, 20, **EVERYBODY)), "spot"), 880),
    "pending spread": Kind(plain(topologySpreadConstraints=spread), 500),
    "running spread": Kind(plain("od", topologySpreadConstraints=spread, labels=labels), 100),
    "match label keys": Kind(
        plain(
            topologySpreadConstraints=lambda n: spread(n, matchLabelKeys=[f"l{i}" for i in range(50)]),
            labels=lambda n: {f"l{i}": str(n) for i in range(50)},
        ),
        500,
    ),
    "budgets": Kind(own_budget, 2_000, running(100, labels=labels)),
    "limit ranges and quotas": Kind(mixed, 3_000, running(100, labels=labels)),
    "pending classes": Kind(plain(labels=labels), 10_000),
    "running classes": Kind(plain("od", labels=labels), 100),
    "many labels": Kind(plain("od", labels=lambda n: {f"k{n}-{i}": "x" * 60 for i in range(500)}), 100),
    "annotations": Kind(plain("od", annotations=lambda n: {f"k{n}-{i}": "x" * 1000 for i in range(100)}), 100),
    "tolerations": Kind(plain(tolerations=tolerations), 1_000),
    "running tolerations": Kind(plain("od", tolerations=tolerations), 100),
    "node affinity": Kind(plain(affinity=node_affinity), 500),
    "running node affinity": Kind(plain("od", affinity=node_affinity), 100),
    "host ports": Kind(plain(containers=containers), 2_000),
    "claims": Kind(plain(volumes=claims), 2_000),
    "running claims": Kind(plain("od", volumes=claims), 100),
    "autoscalers": Kind(autoscaler, 3_000, running(100, labels=labels)),
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
        return f"{self.reading:7.3f} {self.first:9.3f} {self.later:9.4f} {self.megabytes:8.0f} {self.drainable:5}"


class Scene:
    """The cluster with these *kinds* of hostile namespaces, each with *scale* times its number of objects."""

    def __init__(self, *kinds: str, scale: float = 1.0) -> None:
        self._snapshot, self._put = Snapshot(), _putting(Decoder(Interner()))
        self._kinds = {kind: int(KINDS[kind].number * scale) for kind in kinds}
        self._changes = count()
        for manifest in cluster():
            self._put(self._snapshot, manifest)
        for kind, number in self._kinds.items():
            name = namespace_of(kind)
            for manifest in (*(KINDS[kind].make(name, each) for each in range(number)), *KINDS[kind].more(name)):
                self._put(self._snapshot, manifest)
        self._planner = Planner(self._snapshot, Policy())

    def change(self) -> None:
        """Replace one object of each hostile namespace by another one, and change a pod of the others."""
        change = next(self._changes)
        for kind, number in self._kinds.items():
            old, name = KINDS[kind].make(namespace_of(kind), change), namespace_of(kind)
            self._snapshot.delete(old["kind"], f"{name}/{old['metadata']['name']}")
            self._put(self._snapshot, KINDS[kind].make(name, number + change))
        cpu = f"{251 + change}m"
        self._put(self._snapshot, pod(f"shop/web{change % 7}-{change}", f"od-{change % ON_DEMAND_NODES}", cpu=cpu))

    def plan(self) -> None:
        """Plan as the daemon does in each round."""
        self._planner.first_plan(CIRCUMSTANCES)

    def drainable(self) -> int:
        """Return how many nodes can be drained, one after the other."""
        return len(self._planner.plan_all(CIRCUMSTANCES).plans)


def measured(*kinds: str, scale: float = 1.0) -> Cost:
    """Return the cost in a process of its own, so that the peak of its memory is its own."""
    with get_context("fork").Pool(1) as pool:
        return pool.apply(_measured, (kinds, scale))


def _measured(kinds: tuple[str, ...], scale: float) -> Cost:
    started = time.process_time()
    scene = Scene(*kinds, scale=scale)
    reading, first, rounds = time.process_time() - started, _seconds(scene.plan), []
    for _ in range(ROUNDS):
        scene.change()
        rounds.append(_seconds(scene.plan))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Cost(reading, first, sorted(rounds)[ROUNDS // 2], peak, scene.drainable())


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


def run() -> Iterator[Result]:
    """Yield what six hostile namespaces of different kinds add to a plan: to the first one, and in later rounds."""
    runs = [(measured(), measured(*SIX)) for _ in range(3)]
    what = f"plan of {len(list(cluster()))} objects with six hostile namespaces"
    for label, field in {"first plan": "first", "a round when each of them changed": "later"}.items():
        without, beside = (min(getattr(cost, field) for cost in costs) for costs in zip(*runs, strict=True))
        added = (beside - without) / len(SIX) * 1000
        yield Result(
            f"{what}: {label}", f"{beside:.3f} s", f"{without:.3f} s", added, "ms each", 50, 0.05 * without * 1000
        )


@click.command()
@click.option("--scale", default=1.0, help="Multiply the numbers of objects.")
@click.argument("words", nargs=-1)
def main(scale: float, words: tuple[str, ...]) -> None:
    """Print the costs of each kind whose name contains one of the WORDS."""
    click.echo(f"{'':40} reading first-plan     round       MB plans\n{'none':40} {measured(scale=scale)}")
    for kind in KINDS:
        if not words or any(word in kind for word in words):
            click.echo(f"{kind:40} {measured(kind, scale=scale)}")
    click.echo(f"{'six':40} {measured(*SIX, scale=scale)}")


if __name__ == "__main__":
    main()
