"""Tests of the pods that controllers create in place of evicted ones, and of plans that are made for them."""

from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from predicates.objects import Pod
from predicates.snapshot import Snapshot
from rescheduler.planning.new_specs import REVISION_HASH
from rescheduler.planning.outcome import Plan, Rejected
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from rescheduler.planning.replacements import Replacements
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, Manifest, node, pod, short, snapshot
from tests.planning.changing import ChangingCluster

OD: Final = node("od", ON_DEMAND, cpu="8")
DEPLOYMENT: Final = [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": True}]
LIMITS: Final = {
    "kind": "LimitRange",
    "metadata": {"name": "defaults", "namespace": "default"},
    "spec": {"limits": [{"type": "Container", "default": {"cpu": "3"}, "defaultRequest": {"cpu": "2"}}]},
}


def container(name: str = "main", **amounts: str) -> dict[str, Any]:
    return {"name": name, "image": "app:1", "resources": {"requests": amounts} if amounts else {}}


def workload(kind: str, *containers: dict[str, Any], name: str = "a", **fields: Any) -> Manifest:
    """Return a controller of the pods ``a-…``. *fields* accepts ``owners``, ``spec``, ``status`` and ``template``."""
    return {
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-of-{name}",
            "ownerReferences": fields.get("owners", []),
        },
        "spec": {
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": list(containers), **fields.get("template", {})},
            },
            **fields.get("spec", {}),
        },
        "status": fields.get("status", {}),
    }


def replica_set(*containers: dict[str, Any], **fields: Any) -> Manifest:
    return workload("ReplicaSet", *containers, owners=DEPLOYMENT, **fields)


def vpa(target: dict[str, Any], mode: str = "Auto", **fields: Any) -> Manifest:
    return {
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "vpa", "namespace": "default"},
        "spec": {
            "targetRef": {"kind": "Deployment", "name": "web"},
            "updatePolicy": {"updateMode": mode},
            "resourcePolicy": {"containerPolicies": fields.get("policies", [])},
        },
        "status": {"recommendation": {"containerRecommendations": [{"containerName": "main", "target": target}]}},
    }


def running(generation: int = 1, *, owner: str | None = "ReplicaSet", name: str = "a-1", **fields: Any) -> Manifest:
    manifest = pod(name, "od", owner=owner, **fields)
    manifest["metadata"]["generation"] = generation
    return manifest


def replaced(*objects: Manifest) -> tuple[Snapshot, Pod]:
    cluster = snapshot([OD, *objects])
    [original] = cluster.pods.values()
    return cluster, Replacements(cluster).of(original)


#: Objects, and the CPU that the replacement requests, in thousandths.
REQUESTS: dict[str, tuple[list[Manifest], int]] = {
    "the same as the template": ([running(), replica_set(container(cpu="1"))], 1000),
    "resized in place: the template counts": ([running(2, cpu="3"), replica_set(container(cpu="1"))], 1000),
    "resized to less in place": ([running(2, cpu="100m"), replica_set(container(cpu="1"))], 1000),
    "changed by admission, not resized": ([running(1, cpu="3"), replica_set(container(cpu="1"))], 3000),
    "not known whether it was resized: the larger one": (
        [running(0, cpu="100m"), replica_set(container(cpu="1"))],
        1000,
    ),
    "not known whether it was resized, and the running one is larger": (
        [running(0, cpu="3"), replica_set(container(cpu="1"))],
        3000,
    ),
    "the template of a bare ReplicaSet now asks for more": (
        [running(), workload("ReplicaSet", container(cpu="4"))],
        4000,
    ),
    "a bare ReplicaSet: not known whether admission or an older template set the request": (
        [running(cpu="3"), workload("ReplicaSet", container(cpu="1"))],
        3000,
    ),
    "a bare ReplicaSet with another image has a new template": (
        [running(containers=[container(cpu="3") | {"image": "app:0"}]), workload("ReplicaSet", container(cpu="1"))],
        1000,
    ),
    "a bare ReplicaSet with another label has a new template": (
        [running(cpu="3", labels={"app": "old"}), workload("ReplicaSet", container(cpu="1"))],
        1000,
    ),
    "an injected container is kept": (
        [
            running(2, containers=[container(cpu="1"), container("proxy", cpu="500m")]),
            replica_set(container(cpu="1")),
        ],
        1500,
    ),
    "a VerticalPodAutoscaler recommends more": (
        [running(), replica_set(container(cpu="1")), vpa({"cpu": "4", "memory": "1Gi"})],
        4000,
    ),
    "a recommendation for an injected container": (
        [
            running(containers=[container(cpu="1"), container("proxy", cpu="500m")]),
            replica_set(container(cpu="1")),
            vpa({"cpu": "2"}),
        ],
        2500,
    ),
    "a VerticalPodAutoscaler that is off": (
        [running(), replica_set(container(cpu="1")), vpa({"cpu": "4"}, "Off")],
        1000,
    ),
    "a VerticalPodAutoscaler that only sets new pods": (
        [running(), replica_set(container(cpu="1")), vpa({"cpu": "4"}, "Initial")],
        4000,
    ),
    "a VerticalPodAutoscaler that does not control CPU": (
        [
            running(),
            replica_set(container(cpu="1")),
            vpa({"cpu": "4"}, policies=[{"containerName": "*", "controlledResources": ["memory"]}]),
        ],
        1000,
    ),
    "a VerticalPodAutoscaler that was deleted": (
        [running(cpu="4", annotations={"vpaUpdates": "Pod resources updated"}), replica_set(container(cpu="1"))],
        1000,
    ),
    "a LimitRange sets the request": ([running(containers=[container()]), replica_set(container()), LIMITS], 2000),
    "a LimitRange does not change a declared request": (
        [running(), replica_set(container(cpu="1")), LIMITS],
        1000,
    ),
    "the template of another controller with the same name": (
        [running(2, cpu="3"), replica_set(container(cpu="1")) | {"metadata": {"name": "a", "uid": "x"}}],
        3000,
    ),
    "no template": ([running(2, cpu="3")], 3000),
}


@pytest.mark.parametrize(("objects", "cpu"), REQUESTS.values(), ids=REQUESTS)
def test_requests_of_the_replacement(objects: list[Manifest], cpu: int) -> None:
    _, replacement = replaced(*objects)
    assert dict(replacement.cls.requests)["cpu"] == cpu


@pytest.mark.parametrize(("uid", "cpu"), [("uid-of-a", 4000), ("x", 1000), ("", 4000)], ids=["own", "other", "unknown"])
def test_a_template_is_that_of_the_owner_with_the_uid(uid: str, cpu: int) -> None:
    """A ReplicaSet that was created again under the same name does not replace the pods of the old one."""
    controller = workload("ReplicaSet", container(cpu="4"))
    controller["metadata"]["uid"] = uid
    _, replacement = replaced(running(), controller)
    assert dict(replacement.cls.requests)["cpu"] == cpu


def test_a_replacement_like_the_running_pod_is_the_same_object() -> None:
    cluster, replacement = replaced(running(), replica_set(container(cpu="1")))
    assert replacement is cluster.pods["default/a-1"]


HASH: Final[dict[str, Any]] = {"labels": {"app": "a", "controller-revision-hash": "old"}}
NEW: Final[dict[str, Any]] = {"template": {"nodeSelector": {"disk": "ssd"}}, "status": {"updateRevision": "new"}}
ON_DELETE: Final = {"updateStrategy": {"type": "OnDelete"}}


def partition(number: int) -> dict[str, Any]:
    return {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": number}}}


#: The StatefulSet's fields, and whether the pod ``a-1`` is created from the new template.
REVISIONS: dict[str, tuple[dict[str, Any], bool]] = {
    "OnDelete": ({"spec": ON_DELETE}, True),
    "a rolling update": ({"spec": partition(0)}, True),
    "the ordinal is the partition": ({"spec": partition(1)}, True),
    "the ordinal is below the partition": ({"spec": partition(2)}, False),
}


@pytest.mark.parametrize(("fields", "is_new"), REVISIONS.values(), ids=REVISIONS)
def test_a_stateful_set_follows_its_revision_rules(fields: dict[str, Any], *, is_new: bool) -> None:
    stateful_set = workload("StatefulSet", container(cpu="1"), **NEW, **fields)
    claim: dict[str, Any] = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-a-1"}}]}
    _, replacement = replaced(running(owner="StatefulSet", **HASH, **claim), stateful_set)
    assert (replacement.cls.spec.node_selector == {"disk": "ssd"}) is is_new
    assert [each.name for each in replacement.cls.claims] == ["data-a-1"]
    assert replacement.cls.labels["controller-revision-hash"] == ("new" if is_new else "old")


@pytest.mark.parametrize(("now", "expected"), [("4", 4000), ("500m", 500)], ids=["more", "less"])
def test_pods_of_a_new_revision_request_what_it_says(now: str, expected: int) -> None:
    stateful_set = workload("StatefulSet", container(cpu=now), spec=ON_DELETE, status={"updateRevision": "new"})
    _, replacement = replaced(running(owner="StatefulSet", **HASH), stateful_set)
    assert dict(replacement.cls.requests)["cpu"] == expected


#: The CPU that the template has now, and what the replacement of a pod with 1 CPU has. The controller has not observed
#: the template yet, so its status names another revision.
UNOBSERVED = {
    "more, and the status has the running revision": ("4", "old", 4000),
    "less, and the status has the running revision": ("500m", "old", 500),
    "rolled back, and the status has the other revision": ("1", "new", 1000),
}


@pytest.mark.parametrize(("now", "revision", "cpu"), UNOBSERVED.values(), ids=UNOBSERVED)
@pytest.mark.parametrize("known", [True, False], ids=["its revision is known", "its revision is gone"])
def test_a_template_that_was_not_observed_yet_decides(now: str, revision: str, cpu: int, *, known: bool) -> None:
    status = {"updateRevision": revision, "observedGeneration": 1}
    stateful_set = workload("StatefulSet", container(cpu=now), spec=ON_DELETE, status=status)
    stateful_set["metadata"]["generation"] = 2
    old = workload("StatefulSet", container(cpu="1"))["spec"]["template"]
    meta = {"name": "old", "namespace": "default"}
    revisions = [{"kind": "ControllerRevision", "metadata": meta, "data": {"spec": {"template": old}}}] * known
    _, replacement = replaced(running(owner="StatefulSet", **HASH), stateful_set, *revisions)
    assert dict(replacement.cls.requests)["cpu"] == cpu


def test_what_admission_added_to_the_running_pod_is_kept() -> None:
    tolerations = [{"key": "spot", "operator": "Exists"}]
    volumes = [{"name": "token", "projected": {}}, {"name": "workload-socket", "emptyDir": {}}]
    stateful_set = workload("StatefulSet", container(cpu="2"), spec=ON_DELETE, **NEW)
    containers = [container(cpu="1"), container("proxy", cpu="100m")]
    _, replacement = replaced(
        running(owner="StatefulSet", **HASH, tolerations=tolerations, volumes=volumes, containers=containers),
        stateful_set,
    )
    spec = replacement.cls.spec
    assert [each.key for each in spec.tolerations] == ["spot"]
    assert [volume.name for volume in spec.volumes] == ["token", "workload-socket"]
    assert [each.name for each in spec.containers] == ["main", "proxy"]
    assert spec.node_selector == {"disk": "ssd"}


#: Objects beside a spot node with 4 CPU, and the reasons that keep the on-demand node.
PLANS: dict[str, tuple[list[Manifest], list[str]]] = {
    "a pod that was resized to less fits as it is, but not its replacement": (
        [running(2, cpu="1"), replica_set(container(cpu="5"))],
        ["no-room-on-spot"],
    ),
    "a pod that was resized to more does not fit as it is, but its replacement does": (
        [running(2, cpu="5"), replica_set(container(cpu="1"))],
        [],
    ),
    "a VerticalPodAutoscaler recommends more than a spot node has": (
        [running(), replica_set(container(cpu="1")), vpa({"cpu": "6"})],
        ["no-room-on-spot"],
    ),
    "the new template of a StatefulSet selects no spot node": (
        [running(owner="StatefulSet", **HASH), workload("StatefulSet", container(cpu="1"), spec=ON_DELETE, **NEW)],
        ["pinned-to-on-demand"],
    ),
    "the template names the node": (
        [running(), replica_set(container(cpu="1"), template={"nodeName": "od"})],
        ["node-name-in-template"],
    ),
    "the template names another node": (
        [running(), replica_set(container(cpu="1"), template={"nodeName": "s"})],
        ["node-name-in-template"],
    ),
    "all replicas get larger together": (
        [
            running(name="a-1"),
            running(name="a-2"),
            running(name="a-3"),
            replica_set(container(cpu="1")),
            vpa({"cpu": "1500m"}),
        ],
        ["no-room-on-spot"],
    ),
}


@pytest.mark.parametrize(("objects", "reasons"), PLANS.values(), ids=PLANS)
def test_a_plan_is_made_for_the_replacement_pods(objects: list[Manifest], reasons: list[str]) -> None:
    planner = Planner(snapshot([OD, node("s"), *objects]), Policy())
    for planning in (
        planner.plan_all(CIRCUMSTANCES),
        planner.plan_each(CIRCUMSTANCES),
        planner.first_plan(CIRCUMSTANCES),
    ):
        [verdict] = planning.verdicts
        assert isinstance(verdict, Rejected if reasons else Plan)
        assert (short(verdict) if reasons else []) == reasons


def test_a_changed_template_is_used_by_the_next_plan() -> None:
    cluster = snapshot([OD, node("s"), running(2), replica_set(container(cpu="1"))])
    planner = Planner(cluster, Policy())
    before = planner.first_plan(CIRCUMSTANCES)
    larger = snapshot([replica_set(container(cpu="6"))]).of("ReplicaSet")
    cluster.replace_by_key("ReplicaSet", larger)
    after = planner.first_plan(CIRCUMSTANCES)
    assert (len(before.plans), len(after.plans)) == (1, 0)


SELECTORS: dict[str, tuple[Manifest, dict[str, str]]] = {
    "added by admission, as far as is known": (workload("ReplicaSet", container(cpu="1")), {"pool": "a"}),
    "the template has another one": (
        workload("ReplicaSet", container(cpu="1"), template={"nodeSelector": {"pool": "b"}}),
        {"pool": "b"},
    ),
    "certainly of an old template": (workload("ReplicaSet", container("new", cpu="1")), {}),
}


@pytest.mark.parametrize(("controller", "selector"), SELECTORS.values(), ids=SELECTORS)
def test_the_node_selector_of_a_bare_replica_set(controller: Manifest, selector: dict[str, str]) -> None:
    _, replacement = replaced(running(nodeSelector={"pool": "a"}), controller)
    assert replacement.cls.spec.node_selector == selector


PRIORITIES: dict[str, tuple[list[Manifest], dict[str, Any], int | None]] = {
    "the same class": ([], {"priorityClassName": "low"}, -5),
    "a class that another pod has": (
        [pod("other-1", "s", priority=1000, priorityClassName="important")],
        {"priorityClassName": "important"},
        1000,
    ),
    "a class of the system": ([], {"priorityClassName": "system-cluster-critical"}, 2_000_000_000),
    "a class that no pod has": ([], {"priorityClassName": "unknown"}, -5),
    "no class any more, and the classes are known": (
        [{"kind": "PriorityClass", "metadata": {"name": "low"}, "value": -5}],
        {},
        0,
    ),
    "another class, which is known": (
        [
            {"kind": "PriorityClass", "metadata": {"name": name}, "value": value}
            for name, value in {"low": -5, "b": 9}.items()
        ],
        {"priorityClassName": "b"},
        9,
    ),
    "no class any more, as another pod": ([pod("other-1", "s", priority=0)], {}, 0),
}


@pytest.mark.parametrize(("others", "template", "priority"), PRIORITIES.values(), ids=PRIORITIES)
def test_the_priority_follows_from_the_class_of_the_template(
    others: list[Manifest], template: dict[str, Any], priority: int | None
) -> None:
    current = running(priority=-5, priorityClassName="low")
    controller = workload("ReplicaSet", container(cpu="1"), template=template)
    cluster = snapshot([OD, node("s"), current, controller, *others])
    assert Replacements(cluster).of(cluster.pods["default/a-1"]).cls.spec.priority == priority


def test_an_amount_that_is_not_a_quantity_leaves_the_running_pod() -> None:
    _, replacement = replaced(running(2, cpu="3"), replica_set(container(cpu="1")), vpa({"cpu": "much"}))
    assert dict(replacement.cls.requests)["cpu"] == 3000


def test_vpas_of_other_namespaces_cost_nothing_for_each_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant may have thousands of them."""
    names = [f"web{n}" for n in range(20)]
    sets = [workload("ReplicaSet", container(cpu="1"), name=name) for name in names]
    others = [merged(vpa({"cpu": "999999999999"}), f"tenant/vpa{n}") for n in range(50)]
    pods = [running(name=f"{name}-1") for name in names]
    cluster = snapshot([OD, *pods, *sets, *others])
    reads, of = list[str](), Snapshot.of

    def counted(self: Snapshot, kind: str) -> Any:
        reads.append(kind)
        return of(self, kind)

    monkeypatch.setattr(Snapshot, "of", counted)
    replacements = Replacements(cluster)
    assert all(replacements.of(each) == each for each in cluster.pods.values())
    assert reads.count("VerticalPodAutoscaler") == 1


def merged(manifest: Manifest, key: str) -> Manifest:
    namespace, _, name = key.partition("/")
    return manifest | {"metadata": {"name": name, "namespace": namespace}}


# Kept replacements equal those of a new snapshot.


def _kept_pods() -> list[Manifest]:
    """Return pods of two controllers of one class, two of whose owners have no UID, as in some files."""
    plain, volume = running(), {"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}
    pods = [running(name="b-1"), running(2, name="c-1"), running(name="e-1", volumes=[volume])]
    pods += [running(name="x-1", labels={"app": "files"}), running(name="y-1", labels={"app": "files"})]
    for each in pods[-2:]:
        each["metadata"]["ownerReferences"][0]["uid"] = ""
    labels = {"app": "s", REVISION_HASH: "s-1"}
    stateful = [running(name=f"s-{number}", owner="StatefulSet", labels=labels) for number in range(2)]
    return [plain, *pods, *stateful]


_AMOUNTS = st.sampled_from(("1", "2", "much"))


def _stateful(cpu: str, revision: str, partition: int) -> Manifest:
    strategy = {"updateStrategy": {"rollingUpdate": {"partition": partition}}}
    status = {"updateRevision": revision, "currentRevision": "s-1"}
    return workload("StatefulSet", container(cpu=cpu), name="s", spec=strategy, status=status)


def _revision(cpu: str) -> Manifest:
    template = workload("StatefulSet", container(cpu=cpu), name="s")["spec"]["template"]
    meta = {"name": "s-1", "namespace": "default"}
    return {"kind": "ControllerRevision", "metadata": meta, "data": {"spec": {"template": template}}}


def _namespace(level: str) -> Manifest:
    return {"kind": "Namespace", "metadata": {"name": "default", "labels": {_ENFORCE: level}}}


_ENFORCE: Final = "pod-security.kubernetes.io/enforce"


def _important(value: int) -> Manifest:
    return pod("other-1", "od", priority=value, priorityClassName="high")


_TEMPLATES = st.builds(
    lambda name, cpu, template, bare: workload(
        "ReplicaSet", container(cpu=cpu), name=name, template=template, owners=[] if bare else DEPLOYMENT
    ),
    st.sampled_from("abcexy"),
    _AMOUNTS,
    st.sampled_from(({}, {"priorityClassName": "high"}, {"runtimeClassName": "kata"}, {"hostNetwork": True})),
    st.booleans(),
)
_DECIDING = st.one_of(
    _TEMPLATES,
    _TEMPLATES,
    st.builds(_stateful, _AMOUNTS, st.sampled_from(("s-1", "s-2")), st.integers(0, 1)),
    st.builds(_revision, _AMOUNTS),
    st.just(LIMITS),
    st.builds(lambda cpu: vpa({"cpu": cpu}), _AMOUNTS),
    st.builds(_namespace, st.sampled_from(("privileged", "baseline"))),
    st.sampled_from(("high", "low")).map(
        lambda name: {"kind": "PriorityClass", "metadata": {"name": name}, "value": 7}
    ),
    st.just(
        {"kind": "RuntimeClass", "metadata": {"name": "kata"}, "handler": "k", "overhead": {"podFixed": {"cpu": "1"}}}
    ),
    st.integers(1, 3).map(_important),
    st.sampled_from(({}, {"note": "x"}, {"vpaUpdates": "x"})).map(lambda notes: running(annotations=notes)),
)
_CHANGES = st.lists(st.tuples(_DECIDING, st.booleans()), min_size=1, max_size=8)


def _found(replacements: Replacements, pod: Pod) -> str:
    """Return what is known about the replacement. It is compared as text: two classes are never equal."""
    return f"{replacements.of(pod)}, {list(replacements.blockers([pod]))}"


#: The template names the class of another pod, whose priority changes.
_OTHERS: Final = [
    (workload("ReplicaSet", container(cpu="1"), template={"priorityClassName": "high"}), False),
    (_important(1), False),
    (_important(2), False),
    (_important(2), True),
]
#: The owners of two pods of one class have no UID.
_NO_UIDS: Final = [(workload("ReplicaSet", container(cpu=cpu), name=name), False) for name, cpu in ("x1", "y2")]


@example(_OTHERS)
@example(_NO_UIDS)
@settings(max_examples=200)
@given(_CHANGES)
def test_kept_replacements_equal_new_ones(changes: list[tuple[Manifest, bool]]) -> None:
    """Each of the changes puts an object, or deletes it."""
    cluster = ChangingCluster([OD, *_kept_pods()])
    kept = Replacements(cluster.snapshot)
    for manifest, deletes in changes:
        meta = manifest["metadata"]
        if deletes:
            cluster.delete(manifest["kind"], "/".join(filter(None, (meta.get("namespace"), meta["name"]))))
        else:
            cluster.put(manifest)
        for each in cluster.snapshot.pods.values():
            assert _found(kept, each) == _found(Replacements(cluster.snapshot), each)


def test_replacements_are_kept_while_nothing_changes_that_they_follow_from() -> None:
    cluster = ChangingCluster([OD, running(2), replica_set(container(cpu="2"))])
    kept = Replacements(cluster.snapshot)
    first = kept.of(cluster.snapshot.pods["default/a-1"]).cls
    cluster.put(pod("other-1", "od"))
    assert kept.of(cluster.snapshot.pods["default/a-1"]).cls is first
