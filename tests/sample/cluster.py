"""The sample cluster: 30 on-demand and 60 spot nodes of a shop on EKS, the same in every run."""

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from typing import Final

from tests.bench.shapes import Json
from tests.sample import objects
from tests.sample.objects import SampleMachine, SampleWorkload

#: The time at which the pages of the sample are made.
NOW: Final = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)

_ANNOTATED: Final = "cluster-autoscaler.kubernetes.io"
_SCRATCH: Final = {"volumes": [{"name": "scratch", "emptyDir": {}}]}

CACHE: Final = SampleWorkload("ci", "ci-cache", cpu=500, memory=2048, spec={"nodeSelector": {"pool": "ci"}})
API: Final = SampleWorkload("data", "api", cpu=600, memory=1536, spec=_SCRATCH)
RUNNER: Final = SampleWorkload("ci", "release-build", kind="", cpu=1000, memory=2048)
LEDGER: Final = SampleWorkload(
    "payments", "ledger", cpu=1000, memory=2048, annotations={f"{_ANNOTATED}/safe-to-evict": "false"}
)
SESSIONS: Final = SampleWorkload("shop", "session-store", cpu=700, memory=4096, disrupted=0)
POSTGRES: Final = SampleWorkload("data", "postgres", kind="StatefulSet", cpu=2000, memory=8192, disrupted=1)
SPARK: Final = SampleWorkload("data", "spark-worker", cpu=2000, memory=6144, spec=_SCRATCH)
METRICS: Final = SampleWorkload("kube-system", "metrics-server", cpu=100, memory=200)
DNS: Final = SampleWorkload("kube-system", "coredns", cpu=100, memory=170, disrupted=1)

#: Workloads without obstacles, in the order in which nodes are filled with them.
ORDINARY: Final = (
    SampleWorkload("shop", "frontend", cpu=400, memory=768, disrupted=4),
    SampleWorkload("shop", "cart", cpu=300, memory=512, disrupted=2),
    SampleWorkload("shop", "search", cpu=900, memory=3072),
    SampleWorkload("payments", "gateway", cpu=500, memory=1024, disrupted=2),
    SampleWorkload("payments", "fraud-check", cpu=700, memory=2048),
    SampleWorkload("data", "ingest", cpu=600, memory=1536, disrupted=3),
    SampleWorkload("monitoring", "grafana", cpu=200, memory=512),
    SampleWorkload("shop", "images", cpu=350, memory=1024),
)
DAEMONS: Final = (
    SampleWorkload("kube-system", "aws-node", kind="DaemonSet", cpu=50, memory=64),
    SampleWorkload("kube-system", "kube-proxy", kind="DaemonSet", cpu=100, memory=64),
    SampleWorkload("monitoring", "node-exporter", kind="DaemonSet", cpu=50, memory=64),
)

#: By on-demand node: the pods with obstacles, and the number of other pods.
_CI: Final = (
    ((CACHE,), 3),
    ((CACHE, API), 2),
    ((CACHE, API), 3),
    ((CACHE, LEDGER), 3),
    ((CACHE, RUNNER), 4),
    ((CACHE, SESSIONS), 5),
    ((CACHE, SESSIONS, RUNNER), 3),
    ((CACHE, LEDGER, API), 4),
)
_OTHERS: Final = (
    *(((), ordinary) for ordinary in (2, 3, 3, 4, 4, 5, 5, 6)),
    ((POSTGRES,), 2),
    ((POSTGRES,), 1),
    ((POSTGRES,), 3),
    ((DNS,), 3),
    ((SPARK,), 3),
    ((SPARK, SPARK), 2),
    ((SPARK,), 4),
    ((RUNNER,), 4),
    ((SESSIONS,), 4),
    ((METRICS,), 3),
    ((LEDGER,), 5),
    ((DNS,), 6),
    ((), 9),
    ((), 10),
)
_SPOT_NODES: Final = 60
_SMALL: Final = 13  #: other on-demand nodes up to this number are small


def machines() -> tuple[SampleMachine, ...]:
    """Return the nodes: eight on-demand nodes for CI, the other on-demand nodes, the spot nodes."""
    kinds = ("m5.2xlarge", "m5.2xlarge", "r5.2xlarge", "m5.2xlarge", "c5.4xlarge")
    disabled = {f"{_ANNOTATED}/scale-down-disabled": "true"}
    first = [
        SampleMachine(i, "m5.2xlarge", spot=False, created=_days_ago(40 + 9 * i), labels={"pool": "ci"})
        for i in range(8)
    ]
    others = [
        SampleMachine(
            i,
            "m5.xlarge" if i < _SMALL else kinds[i % len(kinds)],
            spot=False,
            created=_days_ago(i * 11 % 90 + 1),
            annotations=disabled if i == len(_CI) + len(_OTHERS) - 1 else {},
        )
        for i in range(len(_CI), len(_CI) + len(_OTHERS))
    ]
    spot = [
        SampleMachine(i, ("m5.2xlarge", "m5a.2xlarge")[i % 2], spot=True, created=_days_ago(i * 7 % 20, hours=i % 24))
        for i in range(_SPOT_NODES)
    ]
    return (*first, *others, *spot)


def items() -> Iterator[Json]:
    """Yield all objects."""
    nodes = machines()
    bound = list(_bound(nodes))
    pods: Counter[SampleWorkload] = Counter()
    spaces = sorted({workload.namespace for workload, _ in bound})
    yield from map(objects.namespace, spaces)
    yield objects.storage_class()
    for machine in nodes:
        yield objects.node(machine)
        yield objects.csi_node(machine)
    for place, (workload, machine) in enumerate(bound):
        number = pods[workload]
        pods[workload] += 1
        yield objects.pod(workload, number, machine, _days_ago(place * 5 % 30, hours=place % 24))
        if workload.kind == "StatefulSet":
            yield from objects.volume(workload, number, machine)
    for workload, number in pods.items():
        if workload.kind == "Deployment":
            yield from objects.rolled_out(workload, number, _days_ago(30))
        if workload.kind == "StatefulSet":
            yield objects.stateful(workload, number, _days_ago(30))
        if workload.disrupted is not None:
            yield objects.budget(workload, number)


def _bound(nodes: tuple[SampleMachine, ...]) -> Iterator[tuple[SampleWorkload, SampleMachine]]:
    """Yield the workload and the node of every pod."""
    turn = 0
    on_demand = [machine for machine in nodes if not machine.spot]
    spot = [machine for machine in nodes if machine.spot]
    loads = [
        *zip(on_demand, (*_CI, *_OTHERS), strict=True),
        *((machine, ((), 6 + machine.number % 4)) for machine in spot),
    ]
    for machine, (special, ordinary) in loads:
        yield from ((workload, machine) for workload in (*DAEMONS, *special))
        for _ in range(ordinary):
            yield ORDINARY[turn % len(ORDINARY)], machine
            turn += 1


def _days_ago(days: int, hours: int = 0) -> str:
    return f"{NOW - dt.timedelta(days=days, hours=hours):%Y-%m-%dT%H:%M:%SZ}"
