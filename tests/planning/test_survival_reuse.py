"""Certificates that reuse what did not change, and prove all losses at once, equal those that do neither."""

from collections.abc import Iterable
from copy import deepcopy
from random import Random
from typing import Any, Final

import pytest

from predicates.objects import PodClass
from predicates.snapshot import Snapshot
from rescheduler.planning.outcome import Blocker, Plan, Planning, Reason, Rejected, Verdict
from rescheduler.planning.placement.ample import Ample
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, FallbackHeadroom, Policy, Survive
from rescheduler.planning.rules.pod_traits import DO_NOT_DRAIN
from rescheduler.planning.waits import Cooldown
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, Manifest, node, pod, repels, seeks, snapshot
from tests.planning.changing import ChangingCluster, at, stamp
from tests.planning.test_replacements import DEPLOYMENT, container, workload

TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"


def cluster(seed: int) -> tuple[list[Manifest], list[Manifest]]:
    """Return nodes of three pools and more, and pods with and without rules about others; there is some room."""
    rng = Random(seed)
    spot = [
        node(f"s{number}", zone=rng.choice("abc"), labels={TYPE: rng.choice("mc")}, cpu=rng.choice(("4", "8", "16")))
        for number in range(rng.randint(4, 9))
    ]
    others = [node(f"o{number}", ON_DEMAND, zone=rng.choice("abc"), cpu="8") for number in range(rng.randint(0, 3))]
    names = [each["metadata"]["name"] for each in (*spot, *others)]
    return [*spot, *others], [_pod(rng, number, rng.choice(names)) for number in range(rng.randint(14, 25))]


def _pod(rng: Random, number: int, on: str) -> Manifest:
    app = f"app{rng.randrange(4)}"
    more: dict[str, Any] = {
        "labels": {"app": app},
        "cpu": f"{rng.randint(1, 12) * 100}m",
        "priority": rng.choice((0, 5)),
    }
    match rng.randrange(7):
        case 0:
            more["affinity"] = repels(app)
        case 1:
            more["affinity"] = repels(app, ZONE)
        case 2:
            more["affinity"] = seeks(app, ZONE)
        case 3:
            selector = {"matchLabels": {"app": app}}
            constraint = {"maxSkew": 5, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
            more["topologySpreadConstraints"] = [{**constraint, "topologyKey": ZONE}]
        case 4:
            port = {"containerPort": 80, "hostPort": 80 + rng.randrange(2)}
            more["containers"] = [{"name": "m", "image": "i", "ports": [port]}]
    return pod(f"p{number}", on, owner=None if rng.random() < 0.1 else "ReplicaSet", **more)


def certified(table: Snapshot) -> Any:
    return Planner(table, Policy()).certificate(CIRCUMSTANCES, Survive.POOL)


@pytest.mark.parametrize("seed", range(40))
def test_proofs_for_all_pools_at_once_change_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, pods = cluster(seed)
    found = certified(snapshot([*nodes, *pods]))
    monkeypatch.setattr(Ample, "fits_always", lambda *_: False)
    assert certified(snapshot([*nodes, *pods])) == found


def test_most_is_proved_for_all_pools_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    proved: list[bool] = []
    fits_always = Ample.fits_always

    def noted(ample: Ample, pod: PodClass, pending: int, with_ports: int) -> bool:
        proved.append(fits_always(ample, pod, pending, with_ports))
        return proved[-1]

    monkeypatch.setattr(Ample, "fits_always", noted)
    for seed in range(40):
        nodes, pods = cluster(seed)
        certified(snapshot([*nodes, *pods]))
    assert proved.count(True) > 40
    assert proved.count(False) > 40


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_a_planner_that_has_seen_changes_finds_what_a_new_one_finds(seed: int) -> None:
    """Pods move, come, go, and are replaced by others of the same name; their owner goes, they terminate."""
    rng, (nodes, pods) = Random(seed), cluster(seed)
    table, names = snapshot([*nodes, *pods]), [each["metadata"]["name"] for each in nodes]
    planner = Planner(table, Policy())
    planner.certificate(CIRCUMSTANCES, Survive.POOL)
    for step in range(6):
        number = rng.randrange(len(pods))
        changed = pods[number] = deepcopy(pods[number])
        match rng.randrange(5):
            case 0:
                changed["spec"]["nodeName"] = rng.choice(names)
                changed["metadata"]["uid"] = f"moved-{step}"
            case 1:
                pods[number] = _pod(rng, int(changed["metadata"]["name"][1:]), rng.choice(names))
            case 2:
                changed["metadata"]["ownerReferences"] = []
            case 3:
                changed["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            case 4:
                pods.append(_pod(rng, 100 + step, rng.choice(names)))
        fresh = snapshot([*nodes, *pods])
        for key, each in fresh.pods.items():
            if table.pods.get(key) != each:
                table.upsert("Pod", each)
        assert planner.certificate(CIRCUMSTANCES, Survive.POOL) == certified(fresh)
        gone = rng.choice(list(fresh.pods))
        table.delete("Pod", gone)
        pods = [each for each in pods if f"default/{each['metadata']['name']}" != gone]
        assert planner.certificate(CIRCUMSTANCES, Survive.POOL) == certified(snapshot([*nodes, *pods]))


SPOT_NODES = [node(f"s-{zone}", zone=zone, labels={TYPE: "m"}) for zone in "ab"]


def runtime(overhead: str) -> Manifest:
    fixed = {"overhead": {"podFixed": {"cpu": overhead}}}
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "kata"},
        "handler": "k",
        **fixed,
    }


def replica_set() -> Manifest:
    container = {"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"runtimeClassName": "kata", "containers": [container]}}
    meta = {"name": "web", "namespace": "default", "uid": "uid-of-web"}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": {"template": template}}


def namespace(level: str) -> Manifest:
    labels = {"pod-security.kubernetes.io/enforce": level}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": labels}}


@pytest.mark.parametrize(
    ("pods", "before", "after"),
    [
        (
            [
                replica_set(),
                *(pod(f"web-{n}", "s-a", runtimeClassName="kata", overhead={"cpu": "100m"}) for n in range(3)),
            ],
            runtime("100m"),
            runtime("900m"),
        ),
        ([pod("web-0", "s-a", hostNetwork=True)], namespace("privileged"), namespace("baseline")),
    ],
    ids=["runtime class", "pod security"],
)
def test_what_replacements_derive_from_ends_a_certificate(
    pods: list[Manifest], before: Manifest, after: Manifest
) -> None:
    cluster = ChangingCluster([*SPOT_NODES, *pods, before])
    planner = Planner(cluster.snapshot, Policy())
    assert planner.certificate(CIRCUMSTANCES, Survive.POOL).holds
    cluster.put(after)
    assert not planner.certificate(CIRCUMSTANCES, Survive.POOL).holds
    assert not certified(cluster.snapshot).holds


def test_pods_are_created_again_with_the_priority_that_others_of_their_class_have_now() -> None:
    """PriorityClasses are not known, and the template names another one than the running pod has."""
    template = replica_set()
    template["spec"]["template"]["spec"] |= {"priorityClassName": "high"}
    others = [pod("other-0", "s-b", priority=number, priorityClassName="high") for number in (1, 2)]
    cluster = ChangingCluster([*SPOT_NODES, template, pod("web-0", "s-a"), others[0]])
    planner, found = Planner(cluster.snapshot, Policy()), []
    for other in (None, others[1], pod("other-0", "s-b")):
        if other is not None:
            cluster.put(other)
        found += [each.cls.spec.priority for each in planner.displaced(CIRCUMSTANCES, ["s-a"])]
    assert found == [1, 2, None]


# Verdicts that depend on a certificate, or on the room that remains, depend on other nodes that may go at any time.

CERTIFYING: Final = (
    Policy(planning_timeout=1000.0, survive=Survive.POOL),
    Policy(planning_timeout=1000.0, survive=Survive.ZONE),
    Policy(planning_timeout=1000.0, fallback_headroom=FallbackHeadroom(100)),
    Policy(planning_timeout=1000.0, fallback_headroom=FallbackHeadroom(largest_pool=True)),
)
VETO: Final = (Blocker(Reason.JOB_WOULD_FAIL, "its Job would fail"),)
DAEMON: Final = "cluster-autoscaler.kubernetes.io/daemonset-pod"


class Others:
    """A cluster of which most on-demand nodes are empty, and what is known about these besides the snapshot."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        spot = [node(f"s{number}", zone="ab"[number % 2], cpu="4") for number in range(4)]
        self._names = [f"o{number}" for number in range(4)]
        on_demand = [node(name, ON_DEMAND, cpu=rng.choice(("2", "4"))) for name in self._names]
        self.nodes = {each["metadata"]["name"]: each for each in (*spot, *on_demand)}
        larger = [workload("ReplicaSet", container(cpu="2"), name=f"p{n}", owners=DEPLOYMENT) for n in range(2)]
        self.cluster = ChangingCluster([*self.nodes.values(), *larger])
        for number in range(rng.randint(9, 13)):
            self._put(number, rng.choice((*("s0", "s1", "s2", "s3"), *("s0", "s1", "s2", "s3"), "o0")))
        self.seconds = 0.0
        self.fields: dict[str, Any] = {"cooling": {}, "vetoes": {}}

    def _put(self, number: int, on: str, **fields: Any) -> None:
        self.cluster.put(pod(f"p{number}-0", on, cpu="1", labels={"app": f"p{number}"}, generation=1, **fields))

    def change(self) -> None:
        """Change something about one node: a cooldown, a veto, an annotation that ends, its pods; and time passes."""
        rng, name = self.rng, self.rng.choice(self._names)
        self.seconds += rng.choice((0.0, 0.0, 20.0, 70.0))
        match rng.randrange(7):
            case 0:
                self._toggle("cooling", name, Cooldown("uid", 1, at(3600)))
            case 1:
                self._toggle("vetoes", name, VETO)
            case 2:
                period = rng.choice(("true", "1m", "false"))
                again = self.nodes[name] | {
                    "metadata": self.nodes[name]["metadata"] | {"annotations": {DO_NOT_DRAIN: period}}
                }
                again["metadata"]["creationTimestamp"] = stamp(self.seconds)
                self.cluster.put(again)
            case 3:
                self._put(
                    rng.randrange(14), rng.choice(("s0", "s1", name)), annotations=rng.choice(({}, {DAEMON: "true"}))
                )
            case 4:
                self._return(rng.choice(tuple(self.nodes)))
            case _:
                self._edit(rng.choice((0, 1)))

    def _toggle(self, field: str, name: str, value: object) -> None:
        before = self.fields[field]
        without = {key: each for key, each in before.items() if key != name}
        self.fields[field] = without if name in before else {**before, name: value}

    def _edit(self, number: int) -> None:
        """Edit what says whether its template, or the running pod, tells what the new pod requests."""
        if (edited := self.cluster.snapshot.pods.get(f"default/p{number}-0")) is not None:
            annotations = {} if edited.annotations else {"vpaUpdates": "main: cpu"}
            self._put(number, edited.node_name, annotations=annotations)

    def _return(self, name: str) -> None:
        """Replace the node by one of the same name, without pods."""
        for key in list(self.cluster.snapshot.pods_on[name]):
            self.cluster.delete("Pod", key)
        self.cluster.delete("Node", name)
        self.cluster.put(self.nodes[name])

    @property
    def circumstances(self) -> Circumstances:
        return Circumstances(at(self.seconds), **self.fields)


def told(planning: Planning) -> list[Verdict]:
    """Return the verdicts without the pool that would not be survived: of several, the one that was found last."""
    return [each if isinstance(each, Plan) else Rejected(each.node, _told(each.blockers)) for each in planning.verdicts]


def _told(blockers: Iterable[Blocker]) -> tuple[Blocker, ...]:
    survived = Reason.WOULD_NOT_SURVIVE
    return tuple(Blocker(survived, "", each.pod) if each.reason is survived else each for each in blockers)


def test_a_node_that_returns_under_its_name_has_no_pods_of_the_one_before() -> None:
    cluster = ChangingCluster([*SPOT_NODES, pod("web-0", "s-a")])
    planner = Planner(cluster.snapshot, Policy())
    assert [each.name for each in planner.displaced(CIRCUMSTANCES, ["s-a"])] == ["web-0"]
    cluster.delete("Pod", "default/web-0")
    cluster.delete("Node", "s-a")
    cluster.put(SPOT_NODES[0])
    assert planner.displaced(CIRCUMSTANCES, ["s-a"]) == []


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("policy", CERTIFYING, ids=["pool", "zone", "headroom", "largest pool"])
def test_verdicts_follow_what_is_known_about_other_nodes(policy: Policy, seed: int) -> None:
    others = Others(Random(seed))
    reusing = Planner(others.cluster.snapshot, policy)
    for _ in range(8):
        others.change()
        scratch, now = Planner(others.cluster.snapshot, policy), others.circumstances
        assert told(reusing.plan_each(now)) == told(scratch.plan_each(now))
        assert told(reusing.first_plan(now)) == told(scratch.first_plan(now))
        until = reusing.first_until(now)
        assert until == scratch.first_until(now) or reusing.first_plan(now).plans
