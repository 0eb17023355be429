"""What the provider for Machines does beyond the table of `conformance`: which Machines it removes, and how."""

import contextlib
import datetime as dt
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from devcluster.api import Json
from devcluster.standin.faults import Fault
from rescheduler import errors, providers
from rescheduler.errors import AuthError, ConfigError, NoTurn, Permanent
from rescheduler.execution.machine_objects import MachineObjects
from rescheduler.kube.client import Client
from rescheduler.kube.connection import Kubeconfig
from rescheduler.kube.responses import ReadOnly
from rescheduler.providers.base import (
    Accepted,
    AlreadyGone,
    BelowMinimum,
    ClusterObjects,
    Deleted,
    DeleteOutcome,
    Failed,
    InstanceState,
    NodeRef,
    NotSupported,
    ObjectVersion,
    Refusal,
    Refused,
    Unserved,
)
from rescheduler.providers.clusterapi import ClusterApiFile, ClusterApiProvider
from rescheduler.providers.clusterapi.machines import REMOVED, new_mark, state_of
from rescheduler.providers.clusterapi.objects import APIS, ApiObjects, Scaled
from tests.kube.conftest import kubeconfig
from tests.providers.clocks import StepClock
from tests.providers.clusterapis import (
    POOL,
    SPACE,
    ClusterApiWorld,
    MachineCluster,
    cluster_api_world,
    node_of,
    openshift_world,
)
from tests.providers.worlds import MINUTES, delete, group_of

T = TypeVar("T", bound=msgspec.Struct)

MARK = "cluster.x-k8s.io/delete-machine"


@pytest.fixture
def world() -> Iterator[ClusterApiWorld]:
    with cluster_api_world(3, 0) as world:
        yield world


@pytest.fixture
def openshift() -> Iterator[ClusterApiWorld]:
    with openshift_world(3, 0) as world:
        yield world


def one(world: ClusterApiWorld, node: NodeRef, **options: Any) -> DeleteOutcome:
    [outcome] = delete(world, node, **options)
    return outcome


def refused(world: ClusterApiWorld, node: NodeRef) -> Refused:
    """Return the refusal of a removal, which was foretold; nothing is changed."""
    before = world.target()
    outcome = one(world, node)
    assert isinstance(outcome, Refused)
    deadline = world.clock.monotonic() + MINUTES
    assert world.provider.refusals(world.group, [node], deadline=deadline) == {node.name: outcome}
    assert (world.target(), changes(world)) == (before, 0)
    return outcome


def changes(world: ClusterApiWorld) -> int:
    return sum(request.method == "PATCH" for request in world.server.faulty_app.requests)


def marks(world: ClusterApiWorld) -> list[str]:
    """Return the names of the Machines that stay and have a mark."""
    alive = world.cluster.alive()
    return [each["metadata"]["name"] for each in alive if any(m in each["metadata"]["annotations"] for m in API(world))]


def API(world: ClusterApiWorld) -> tuple[str, ...]:  # noqa: N802
    return world.cluster.api.marks


def first(world: ClusterApiWorld) -> Json:
    return world.cluster.alive()[0]


def noted(world: ClusterApiWorld, kind: str, name: str, **annotations: str) -> None:
    world.cluster.change(kind, name, {"metadata": {"annotations": annotations}})


Change = Callable[[ClusterApiWorld], object]
PAUSED = {"cluster.x-k8s.io/paused": ""}


def _spec(kind: str, name: str, spec: Json) -> Change:
    return lambda world: world.cluster.change(kind, name, {"spec": spec})


def _note(kind: str, name: str, **annotations: str) -> Change:
    return lambda world: noted(world, kind, name or first(world)["metadata"]["name"], **annotations)


def _topology(world: ClusterApiWorld) -> None:
    """Let the Cluster set the replicas."""
    labels = {"topology.cluster.x-k8s.io/deployment-name": "md"}
    world.cluster.change("machinedeployments", POOL, {"metadata": {"labels": labels}})
    topology = {"workers": {"machineDeployments": [{"name": "md", "replicas": 3}]}}
    world.cluster.change("clusters", "c", {"spec": {"topology": topology}})


def _owner(kind: str | None) -> Change:
    def change(world: ClusterApiWorld) -> None:
        owners = [{"kind": kind, "name": "p", "uid": "u", "controller": True}] if kind else []
        first(world)["metadata"]["ownerReferences"] = owners
        world.cluster.stopped = True

    return change


def _rolls(world: ClusterApiWorld, replicas: int) -> None:
    world.cluster.add_set(world.scaled(), "newer", replicas, revision=2)
    world.cluster.stopped = True


OF_MACHINE, OF_GROUP = "Machine on-demand-1-", "MachineDeployment on-demand: "
#: What protects the first Machine → the reason, and the beginning and another part of its text.
PROTECTED: dict[str, tuple[Change, Refusal, str, str]] = {
    "of the control plane": (
        lambda world: first(world)["metadata"]["labels"].update({"cluster.x-k8s.io/control-plane": ""}),
        Refusal.CONTROL_PLANE,
        OF_MACHINE,
        "belongs to the control plane",
    ),
    "of nothing": (_owner(None), Refusal.NOT_IN_GROUP, OF_MACHINE, "belongs to no MachineSet"),
    "of a MachinePool": (_owner("MachinePool"), Refusal.NOT_IN_GROUP, OF_MACHINE, "whose infrastructure chooses"),
    "paused": (_note("machines", "", **PAUSED), Refusal.PROTECTED, OF_MACHINE, "is paused"),
    "the Cluster is paused": (_spec("clusters", "c", {"paused": True}), Refusal.PROTECTED, OF_GROUP, "is paused"),
    "the Cluster is annotated": (_note("clusters", "c", **PAUSED), Refusal.PROTECTED, OF_GROUP, "is paused"),
    "the group is annotated": (_note("machinedeployments", POOL, **PAUSED), Refusal.PROTECTED, OF_GROUP, "is paused"),
    "the MachineSet is annotated": (
        _note("machinesets", f"{POOL}-1", **PAUSED),
        Refusal.PROTECTED,
        OF_GROUP,
        "is paused",
    ),
    "roll-outs are paused": (
        _spec("machinedeployments", POOL, {"paused": True}),
        Refusal.PROTECTED,
        OF_GROUP,
        "is paused",
    ),
    "controlled by another object": (
        lambda world: world.scaled()["metadata"].update(ownerReferences=[{"kind": "Pool", "controller": True}]),
        Refusal.PROTECTED,
        OF_GROUP,
        "sets its replicas",
    ),
    "HyperShift": (
        lambda world: noted(
            world,
            "machinedeployments",
            POOL,
            **{
                "hypershift.openshift.io/nodePool": "clusters/p",
                "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "0",
            },
        ),
        Refusal.PROTECTED,
        OF_GROUP,
        "sets its replicas",
    ),
    "no Cluster": (lambda world: world.cluster.objects["clusters"].clear(), Refusal.PROTECTED, OF_GROUP, "Cluster"),
    "the topology": (_topology, Refusal.PROTECTED, OF_GROUP, "leave them unset there"),
    "the group goes": (
        lambda world: world.scaled()["metadata"].update(deletionTimestamp="2024-01-01T00:00:00Z"),
        Refusal.PROTECTED,
        OF_GROUP,
        "is being deleted",
    ),
    "a roll-out": (lambda world: _rolls(world, 1), Refusal.PROTECTED, OF_GROUP, "a roll-out is in progress"),
    "a roll-out on deletion": (lambda world: _rolls(world, 0), Refusal.PROTECTED, OF_GROUP, "a roll-out"),
    "a minimum in words": (
        _note("machinedeployments", POOL, **{"cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "two"}),
        Refusal.PROTECTED,
        OF_GROUP,
        "min-size is no number from 0 to 2147483647",
    ),
    "marked by others": (_note("machines", "", **{MARK: "true"}), Refusal.PROTECTED, OF_GROUP, "another client"),
    "another is marked by others": (
        lambda world: noted(world, "machines", world.cluster.alive()[1]["metadata"]["name"], **{MARK: ""}),
        Refusal.PROTECTED,
        OF_GROUP,
        "would go instead",
    ),
    "two with its provider ID": (
        lambda world: world.cluster.alive()[1]["spec"].update(providerID=first(world)["spec"]["providerID"]),
        Refusal.AMBIGUOUS,
        "several Machines have its provider ID: ",
        "",
    ),
}


@pytest.mark.parametrize(("change", "reason", "begins", "says"), PROTECTED.values(), ids=PROTECTED)
def test_a_protected_machine_stays(
    world: ClusterApiWorld, change: Change, reason: Refusal, begins: str, says: str
) -> None:
    node = world.nodes()[0]
    change(world)
    check_refused(world, node, reason, begins, says)


def check_refused(world: ClusterApiWorld, node: NodeRef, reason: Refusal, begins: str, says: str) -> None:
    outcome = refused(world, node)
    assert outcome.reason is reason
    assert outcome.detail.startswith(begins)
    assert says in outcome.detail
    assert group_of(world, node) is None
    assert world.provider.refusal_without_group(node, deadline=world.clock.monotonic() + MINUTES) == outcome


OPENSHIFT: dict[str, tuple[Change, Refusal, str]] = {
    "master": (
        lambda world: first(world)["metadata"]["labels"].update(
            {"machine.openshift.io/cluster-api-machine-role": "master"}
        ),
        Refusal.CONTROL_PLANE,
        "the control plane",
    ),
    "deletePolicy": (_spec("machinesets", POOL, {"deletePolicy": "Oldest"}), Refusal.PROTECTED, "may prefer another"),
    "another failed": (
        lambda world: world.cluster.alive()[1]["status"].update(errorReason="InvalidConfiguration"),
        Refusal.PROTECTED,
        "has failed or is not ready, and may go instead",
    ),
    "migrated": (
        lambda world: world.scaled()["status"].update(authoritativeAPI="ClusterAPI"),
        Refusal.PROTECTED,
        "another API is in charge of it",
    ),
    "Hive": (
        lambda world: world.scaled()["metadata"].update(labels={"hive.openshift.io/machine-pool": "p"}, annotations={}),
        Refusal.PROTECTED,
        "another object controls it",
    ),
    "the old mark of others": (
        lambda world: noted(
            world,
            "machines",
            world.cluster.alive()[1]["metadata"]["name"],
            **{"machine.openshift.io/cluster-api-delete-machine": "true"},
        ),
        Refusal.PROTECTED,
        "would go instead",
    ),
}


@pytest.mark.parametrize(("change", "reason", "says"), OPENSHIFT.values(), ids=OPENSHIFT)
def test_a_protected_machine_of_openshift_stays(
    openshift: ClusterApiWorld, change: Change, reason: Refusal, says: str
) -> None:
    node = openshift.nodes()[0]
    change(openshift)
    check_refused(openshift, node, reason, "Machine", says)


def _unhealthy(world: ClusterApiWorld, kind: str) -> None:
    world.cluster.alive()[1]["status"]["conditions"] = [{"type": kind, "status": "False"}]


@pytest.mark.parametrize(
    "change",
    [
        lambda world: _unhealthy(world, "NodeHealthy"),
        lambda world: _unhealthy(world, "HealthCheckSucceeded"),
        lambda world: world.cluster.alive()[1]["status"].pop("nodeRef"),
        lambda world: world.cluster.alive()[1]["status"].update(failureReason="Error"),
    ],
)
def test_an_unhealthy_machine_could_go_instead_before_cluster_api_1_9(world: ClusterApiWorld, change: Change) -> None:
    world.cluster.version = "v1beta1"
    node = world.nodes()[0]
    change(world)
    check_refused(world, node, Refusal.PROTECTED, OF_GROUP, "has failed or is not ready, and may go instead")
    world.cluster.version = "v1beta2"
    assert isinstance(one(world, node), Deleted)


ALLOWED: dict[str, Change] = {
    "another value of replicas in the topology": lambda world: world.cluster.change(
        "clusters", "c", {"spec": {"topology": {"workers": {"machineDeployments": [{"name": "md"}]}}}}
    ),
    "an old MachineSet without Machines": lambda world: world.cluster.add_set(world.scaled(), "older", 0, revision=0),
    "a mark of a Machine of another group": lambda world: [
        world.cluster.add_group("other", 1),
        world.cluster.alive()[-1]["metadata"]["annotations"].update({MARK: "true"}),
    ],
    "a NodePool of HyperShift with autoscaling": _note(
        "machinedeployments", POOL, **{"hypershift.openshift.io/nodePool": "clusters/p"}
    ),
    "an owner that does not control it": lambda world: world.scaled()["metadata"].update(
        ownerReferences=[{"kind": "Cluster", "name": "c", "uid": "u"}]
    ),
    "another is not healthy, and v1beta2 is served": lambda world: _unhealthy(world, "NodeHealthy"),
    "no limits": lambda world: world.scaled()["metadata"]["annotations"].clear(),
    "deletePolicy": _spec("machinesets", f"{POOL}-1", {"deletePolicy": "Oldest"}),
}


@pytest.mark.parametrize("change", ALLOWED.values(), ids=ALLOWED)
def test_other_machines_are_removed(world: ClusterApiWorld, change: Change) -> None:
    node = world.nodes()[0]
    change(world)
    assert isinstance(one(world, node), Deleted)
    assert (world.runs(node), world.target(), changes(world)) == (False, 2, 2)


DOUBTS: dict[str, tuple[Callable[[NodeRef], NodeRef], str]] = {
    "no Machine": (lambda _: NodeRef("a", "aws:///i-1"), "it has no Machine: Cluster API does not manage it"),
    "no provider ID": (lambda node: NodeRef(node.name), "it has no Machine: Cluster API does not manage it"),
    "another name": (lambda node: NodeRef("a", node.provider_id), "its Machine belongs to node node-"),
    "another ID": (lambda node: NodeRef(node.name, "aws:///i-1", {}, node.annotations), "its Machine has the provider"),
}


@pytest.mark.parametrize(("change", "says"), DOUBTS.values(), ids=DOUBTS)
def test_a_node_of_another_machine_is_not_managed(
    world: ClusterApiWorld, change: Callable[[NodeRef], NodeRef], says: str
) -> None:
    node = change(world.nodes()[0])
    assert refused(world, node).reason is Refusal.NOT_IN_GROUP
    why = world.provider.refusal_without_group(node, deadline=world.clock.monotonic() + MINUTES)
    assert why is not None
    assert why.detail.startswith(says)


def test_the_annotation_of_a_node_names_a_machine_without_provider_id(openshift: ClusterApiWorld) -> None:
    machine = first(openshift)
    del machine["spec"]["providerID"]
    named = {"machine.openshift.io/machine": f"{SPACE}/{machine['metadata']['name']}"}
    node = NodeRef(machine["status"]["nodeRef"]["name"], "bare://1", annotations=named)
    assert isinstance(one(openshift, node), Deleted)
    assert openshift.cluster.ended[0][0] == machine["metadata"]["name"]
    openshift.restart()
    resumed = NodeRef(node.name, node.provider_id, annotations=named, ordered_at=openshift.clock.now())
    assert isinstance(one(openshift, resumed), AlreadyGone)


def test_an_empty_annotation_marks_no_machine_of_openshift(openshift: ClusterApiWorld) -> None:
    node, other = openshift.nodes()[0], openshift.cluster.alive()[1]["metadata"]["name"]
    noted(openshift, "machines", other, **dict.fromkeys(API(openshift), ""))
    assert isinstance(one(openshift, node), Deleted)
    assert [name for name, _ in openshift.cluster.ended] != [other]


def test_the_older_mark_of_others_stays_when_ours_goes(openshift: ClusterApiWorld) -> None:
    name, (newer, older) = first(openshift)["metadata"]["name"], API(openshift)
    noted(openshift, "machines", name, **{newer: new_mark(openshift.clock.now()), older: "person"})
    outcome = one(openshift, openshift.nodes()[0])
    assert isinstance(outcome, Refused)
    assert f"another client has marked Machine {name}" in outcome.detail
    openshift.clock.advance(131)
    openshift.provider.refresh(deadline=openshift.clock.monotonic() + MINUTES)
    assert first(openshift)["metadata"]["annotations"][older] == "person"
    assert newer not in first(openshift)["metadata"]["annotations"]
    assert openshift.target() == 3


def test_groups_of_both_apis_may_have_one_name() -> None:
    found = []
    for api in APIS:
        owner = MachineCluster(StepClock(), api).add("machinesets", POOL, {"replicas": 2})
        found.append(ApiObjects(api, api.versions[0], [], msgspec.convert([owner], list[Scaled])))
    groups = [group.id for group in state_of(found, StepClock().now()).view.groups]
    assert groups == [f"MachineSet/{SPACE}/{POOL}", f"MachineSet.machine.openshift.io/{SPACE}/{POOL}"]


def test_a_group_that_may_not_be_listed_counts_as_not_served_if_the_other_is_read(openshift: ClusterApiWorld) -> None:
    for version in ("v1beta2", "v1beta1"):
        path = f"/apis/cluster.x-k8s.io/{version}/machines"
        openshift.server.faulty_app.inject(Fault(method="GET", path=path, status=403, times=99))
    assert group_of(openshift, openshift.nodes()[0]) == openshift.group
    assert isinstance(one(openshift, openshift.nodes()[0]), Deleted)


class BothApis(ClusterObjects):
    """An API server with both groups; *fails* is raised for lists of Cluster API."""

    def __init__(self, clock: StepClock) -> None:
        self.clusters = {api.group: MachineCluster(clock, api) for api in APIS}
        for cluster in self.clusters.values():
            cluster.add_group(POOL, 2, 0)
        self.fails: Exception | None = None

    def all(self, path: str, shape: type[T], *, seconds: float) -> list[T]:  # noqa: ARG002
        cluster, kind = self.clusters[path.split("/")[2]], path.rpartition("/")[2]
        if self.fails and cluster.api is APIS[0]:
            raise self.fails
        return msgspec.json.decode(json.dumps(cluster.listed(kind)), type=list[shape])  # type: ignore[valid-type]

    def patch(self, version: ObjectVersion, change: Mapping[str, object], *, seconds: float) -> None:  # noqa: ARG002
        raise AssertionError("nothing is changed")

    def delete(self, version: ObjectVersion, *, seconds: float) -> None:  # noqa: ARG002
        raise AssertionError("nothing is deleted")


@pytest.mark.parametrize("error", [AuthError("forbidden"), Unserved("not found")], ids=["forbidden", "not found"])
def test_machines_of_a_group_that_was_served_have_not_gone(error: errors.ReschedulerError) -> None:
    """Otherwise a node whose removal was ordered would count as gone."""
    clock = StepClock()
    provider, objects = ClusterApiProvider(ClusterApiFile(), clock, Path()), BothApis(clock)
    provider.use_cluster(objects)
    assert len({group.id for group in provider.groups(deadline=MINUTES)}) == 2
    node = node_of(objects.clusters[APIS[0].group].alive()[0], ordered_at=clock.now())
    objects.fails = error
    clock.advance(6)
    with pytest.raises(errors.ReschedulerError):
        provider.refresh(deadline=MINUTES)
    [outcome] = provider.delete_nodes(f"MachineDeployment/{SPACE}/{POOL}", [node], deadline=20).values()
    assert not isinstance(outcome, AlreadyGone | Deleted)


def test_a_machine_gets_all_marks_that_its_controller_may_know(openshift: ClusterApiWorld) -> None:
    assert isinstance(one(openshift, openshift.nodes()[0]), Deleted)
    [(_, notes)] = openshift.cluster.ended
    assert {*openshift.cluster.api.marks} <= {*notes}


def test_replicas_are_lowered_after_a_machine_that_others_end_has_gone(world: ClusterApiWorld) -> None:
    """Cluster API counts it as one of the Machines until then, and would end no other."""
    node, other = world.nodes()[0], world.cluster.alive()[1]["metadata"]["name"]
    world.cluster.delete(other)
    assert isinstance(one(world, node), Deleted)
    assert (world.target(), len(world.cluster.alive())) == (2, 2)
    assert [name for name, _ in world.cluster.ended] == [node.annotations["cluster.x-k8s.io/machine"]]


def test_a_group_in_which_machines_come_or_go_is_foretold(world: ClusterApiWorld) -> None:
    node, other = world.nodes()[0], world.cluster.alive()[1]["metadata"]["name"]
    world.cluster.delete(other)
    foretold = world.provider.refusals(world.group, [node], deadline=world.clock.monotonic() + MINUTES)
    text = f"MachineDeployment/{SPACE}/{POOL}: it has 2 Machines and wants 3"
    assert foretold == {node.name: Refused(Refusal.PROTECTED, text)}
    world.clock.advance(16)
    assert world.provider.refusals(world.group, [node], deadline=world.clock.monotonic() + MINUTES) == {}


@pytest.mark.parametrize("restarted", [False, True])
def test_an_order_that_the_controllers_have_not_seen_is_not_sent_again(
    world: ClusterApiWorld, *, restarted: bool
) -> None:
    node, intent = world.nodes()[0], world.clock.now()
    world.cluster.act()
    stop_after_marking(world)
    assert isinstance(one(world, node, within=200.0), Accepted)
    if restarted:
        world.restart()
        node = NodeRef(node.name, node.provider_id, node.labels, node.annotations, ordered_at=intent)
    assert isinstance(one(world, node, within=200.0), Accepted)
    world.provider.refresh(deadline=world.clock.monotonic() + MINUTES)
    assert (world.target(), len(marks(world)), changes(world)) == (2, 1, 2)
    world.cluster.stopped = False
    assert isinstance(one(world, node), AlreadyGone if restarted else Deleted)
    assert world.target() == 2


def stop_after_marking(world: ClusterApiWorld) -> None:
    """Stop the controllers at the first change of a Machine."""
    patch = world.cluster.patch

    def stopping(kind: str, name: str, change: Json) -> tuple[int, str]:
        answer = patch(kind, name, change)
        world.cluster.stopped = True
        return answer

    world.cluster.patch = stopping  # type: ignore[method-assign]


def test_replicas_that_others_raise_again_are_lowered_again_once(world: ClusterApiWorld) -> None:
    node = world.nodes()[0]
    stop_after_marking(world)
    assert isinstance(one(world, node, within=10.0), Accepted)
    world.cluster.scale(POOL, 1)
    world.cluster.stopped = False
    world.cluster.act()
    world.cluster.patch = type(world.cluster).patch.__get__(world.cluster)  # type: ignore[method-assign]
    assert isinstance(one(world, node, within=40.0), Accepted)
    assert isinstance(one(world, node), Deleted)
    assert (world.target(), len(world.cluster.ended)) == (2, 1)


def between(world: ClusterApiWorld, act: Change) -> None:
    """Let another client act right after a Machine has got a mark, once."""
    patch, calls = world.cluster.patch, iter([act])

    def acting(kind: str, name: str, change: Json) -> tuple[int, str]:
        answer = patch(kind, name, change)
        if kind == "machines" and (due := next(calls, None)) is not None:
            due(world)
        return answer

    world.cluster.patch = acting  # type: ignore[method-assign]


def test_a_machine_that_goes_by_the_order_of_others_lowers_no_replicas(world: ClusterApiWorld) -> None:
    node = world.nodes()[0]
    between(world, lambda world: world.cluster.scale(POOL, -1))
    assert isinstance(one(world, node), AlreadyGone | Deleted)
    assert (world.target(), len(world.cluster.ended)) == (2, 1)


def test_a_mark_of_others_that_appears_keeps_the_replicas(world: ClusterApiWorld) -> None:
    node, other = world.nodes()[0], world.cluster.alive()[1]["metadata"]["name"]
    between(world, lambda world: noted(world, "machines", other, **{MARK: "CA"}))
    outcome = one(world, node)
    assert isinstance(outcome, Refused | Failed)
    assert (world.target(), marks(world)) == (3, [other])


def test_replicas_that_others_change_meanwhile_are_read_again(world: ClusterApiWorld) -> None:
    node = world.nodes()[0]
    between(world, lambda world: world.cluster.scale(POOL, 2))
    assert isinstance(one(world, node), Deleted)
    assert world.target() == 4


def test_an_order_that_is_slow_is_asked_for_again(world: ClusterApiWorld) -> None:
    node, asked = world.nodes()[0], list[int]()
    between(world, lambda world: world.clock.advance(11))
    assert isinstance(one(world, node, may_end=lambda _: asked.append(changes(world))), Deleted)
    assert asked == [0, 2]
    assert world.target() == 2


def test_a_machine_that_joins_is_not_given_back(world: ClusterApiWorld) -> None:
    machine = world.cluster.alive()[-1]
    joined = machine["status"].pop("nodeRef")
    between(world, lambda _: machine["status"].update(nodeRef=joined))
    with pytest.raises(BelowMinimum):
        world.provider.decrease_target_size(world.group, -1, deadline=world.clock.monotonic() + MINUTES)
    assert (world.target(), marks(world)) == (3, [])


def test_the_minimum_holds_for_replicas_that_others_lower_meanwhile() -> None:
    with cluster_api_world(3, 2) as world:
        node = world.nodes()[0]
        noted(world, "machinedeployments", POOL, unrelated="")
        between(world, lambda world: world.cluster.scale(POOL, -1))
        one(world, node, within=100.0)
        assert world.target() == 2


#: A fault of the request that lowers the replicas, or of the mark → the outcome.
ANSWERS: dict[str, tuple[dict[str, Any], Callable[[DeleteOutcome], bool]]] = {
    "forbidden": ({"status": 403}, lambda outcome: isinstance(outcome, Failed) and outcome.retryable),
    "invalid": ({"status": 422}, lambda outcome: isinstance(outcome, Failed) and not outcome.retryable),
    "too many requests": ({"status": 429}, lambda outcome: isinstance(outcome, Failed) and outcome.retryable),
    "conflict": ({"status": 409}, lambda outcome: isinstance(outcome, Failed) and outcome.retryable),
}


@pytest.mark.parametrize("at", ["mark", "replicas"])
@pytest.mark.parametrize(("fault", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_no_mark_stays_if_the_replicas_cannot_be_lowered(
    world: ClusterApiWorld, at: str, fault: dict[str, Any], expected: Callable[[DeleteOutcome], bool]
) -> None:
    node = world.nodes()[0]
    path = world.path() if at == "replicas" else machine_path(world, node)
    world.server.faulty_app.inject(Fault(method="PATCH", path=path, times=1 if fault["status"] < 409 else 99, **fault))
    if at == "mark":
        assert expected(one(world, node, within=50.0))
    else:
        one(world, node, within=50.0) if fault["status"] >= 409 else expected(one(world, node, within=50.0))
    assert (world.target(), marks(world)) == (3, [])


def machine_path(world: ClusterApiWorld, node: NodeRef) -> str:
    return world.path().replace(
        f"machinedeployments/{POOL}", f"machines/{node.annotations['cluster.x-k8s.io/machine']}"
    )


def test_a_mark_without_known_effect_stays_until_no_request_can_take_effect(world: ClusterApiWorld) -> None:
    node = world.nodes()[0]
    world.server.faulty_app.inject(Fault(method="PATCH", path=world.path(), status=504, times=99))
    assert isinstance(one(world, node, within=30.0), Accepted)
    for seconds, marked in ((20, 1), (60, 1), (50, 0)):
        world.clock.advance(seconds)
        world.provider.refresh(deadline=world.clock.monotonic() + MINUTES)
        assert len(marks(world)) == marked
    assert world.target() == 3


def test_a_mark_with_a_wrong_time_stays_while_an_order_of_this_process_may_take_effect(world: ClusterApiWorld) -> None:
    node, name = world.nodes()[0], first(world)["metadata"]["name"]
    world.server.faulty_app.inject(Fault(method="PATCH", path=world.path(), status=504, times=99))
    assert isinstance(one(world, node, within=10.0), Accepted)
    noted(world, "machines", name, **{MARK: new_mark(world.clock.now() - dt.timedelta(hours=1))})
    for seconds, marked in ((10, [name]), (60, [])):
        world.clock.advance(seconds)
        world.provider.refresh(deadline=world.clock.monotonic() + MINUTES)
        assert marks(world) == marked


def test_a_mark_that_a_killed_process_left_is_removed(world: ClusterApiWorld) -> None:
    name = first(world)["metadata"]["name"]
    noted(world, "machines", name, **{MARK: f"spot-rescheduler {world.clock.now().isoformat()}"})
    world.clock.advance(131)
    world.restart()
    world.provider.refresh(deadline=world.clock.monotonic() + MINUTES)
    assert (marks(world), world.target()) == ([], 3)


@pytest.mark.parametrize("skew", [-9, 9])
@pytest.mark.parametrize(
    ("lost", "within", "again"),
    [
        (0, 1, 20),
        (0, 1, 61),
        (0, 49, 59),
        (20, 49, 61),
        (20, 49, 119),
        (20, 61, 0),
        (40, 61, 62),
        (100, 1, 110),
        (0, 200, 0),
    ],
)
def test_an_order_that_arrives_late_ends_no_other_machine(
    world: ClusterApiWorld, lost: int, within: int, again: int, skew: int
) -> None:
    """Orders are *lost* at first, then 59 s late. The process is killed; one with another clock tries *again*."""
    node, patch, act = world.nodes()[1], world.cluster.patch, world.cluster.act
    late: list[tuple[float, str, str, Json]] = []

    def delaying(kind: str, name: str, change: Json) -> tuple[int, str]:
        if kind == "machines":
            return patch(kind, name, change)
        if world.clock.monotonic() >= lost:
            late.append((world.clock.monotonic() + 59, kind, name, json.loads(json.dumps(change))))
        return 504, "it arrives later"

    def arriving() -> None:
        while late and late[0][0] <= world.clock.monotonic():
            patch(*late.pop(0)[1:])
        act()

    world.cluster.patch, world.cluster.act = delaying, arriving  # type: ignore[method-assign]
    one(world, node, within=float(within))
    if again:
        world.clock.advance(again - within)
        world.clock.start += dt.timedelta(seconds=skew)
        world.restart()
        ordered_at = world.clock.now()
        one(world, NodeRef(node.name, node.provider_id, node.labels, node.annotations, ordered_at=ordered_at), within=9)
    world.restart()
    for _ in range(40):
        world.clock.advance(5)
        world.provider.refresh(deadline=world.clock.monotonic() + MINUTES)
    assert [name for name, _ in world.cluster.ended] in ([], [node.annotations["cluster.x-k8s.io/machine"]])
    assert marks(world) == []


class Held:
    """The turns of a pool that another process holds."""

    def check(self) -> None:
        return

    @contextlib.contextmanager
    def hold(self, seconds: float, settle: float, in_doubt: Callable[[], bool]) -> Iterator[Callable[[], None]]:  # noqa: ARG002
        self.waited += seconds
        raise NoTurn("another process holds the pool")
        yield

    waited = 0.0


def test_a_mark_waits_while_another_process_holds_the_pool(
    world: ClusterApiWorld, caplog: pytest.LogCaptureFixture
) -> None:
    noted(world, "machines", first(world)["metadata"]["name"], **{MARK: new_mark(world.clock.now())})
    world.clock.advance(131)
    held = Held()
    world.provider.take_turns(held)
    for _ in range(5):
        world.clock.advance(6)
        world.provider.refresh(deadline=world.clock.monotonic() + 60)
    assert held.waited == 2.0
    assert "is not removed yet: another process holds the pool" in caplog.text


def test_lowered_replicas_name_their_order(world: ClusterApiWorld) -> None:
    uid = first(world)["metadata"]["uid"]
    one(world, world.nodes()[0])
    assert world.scaled()["metadata"]["annotations"][REMOVED].startswith(f"{uid} 2024-05-01T12:00:00+00:00 ")


def test_the_older_version_of_the_api_is_used_where_only_it_is_served(world: ClusterApiWorld) -> None:
    world.cluster.version = "v1beta1"
    assert isinstance(one(world, world.nodes()[0]), Deleted)


def test_lists_that_fail_leave_everything_as_it_is(world: ClusterApiWorld) -> None:
    root = world.path().rpartition("/namespaces")[0]
    for plural in ("machines", "machinesets", "machinedeployments", "clusters"):
        for code, kind in ((403, AuthError), (503, errors.Retryable)):
            world.server.faulty_app.inject(Fault(method="GET", path=f"{root}/{plural}", status=code))
            with pytest.raises(kind, match=f"list {plural}: injected"):
                world.provider.refresh(deadline=world.clock.monotonic() + MINUTES)
    world.restart()
    world.cluster.version = "v1alpha4"
    text = "serves neither machines of cluster.x-k8s.io nor of machine.openshift.io"
    with pytest.raises(Permanent, match=text):
        world.provider.refresh(deadline=world.clock.monotonic() + MINUTES)


def test_a_process_that_does_not_lead_changes_nothing(world: ClusterApiWorld) -> None:
    provider = opened(world, ClusterApiFile(), dry_run=True)
    deadline = world.clock.monotonic() + 60
    [outcome] = provider.delete_nodes(world.group, world.nodes()[:1], deadline=deadline).values()
    assert isinstance(outcome, Failed)
    assert "a dry run writes nothing" in outcome.error
    assert (changes(world), world.target()) == (0, 3)


def opened(world: ClusterApiWorld, file: ClusterApiFile, *, dry_run: bool = False) -> ClusterApiProvider:
    provider = ClusterApiProvider(file, world.clock, Path())
    client = Client(Kubeconfig(str(kubeconfig(world.folder, world.server.url))), world.clock)
    provider.use_cluster(MachineObjects(client.guarded(ReadOnly()) if dry_run else client))
    return provider


@pytest.mark.parametrize(("name", "managed"), [("c", True), ("other", False)])
def test_only_machines_of_the_configured_cluster_are_managed(
    world: ClusterApiWorld, name: str, *, managed: bool
) -> None:
    world.cluster.add_group("other", 1)
    provider = opened(world, ClusterApiFile(cluster=name, namespace=SPACE))
    deadline = world.clock.monotonic() + MINUTES
    found = provider.group_for(world.nodes()[0], deadline=deadline)
    assert (found is not None) == managed
    paths = {request.path for request in world.server.faulty_app.requests}
    assert all(f"/namespaces/{SPACE}/" in path for path in paths)


@pytest.mark.parametrize(
    ("file", "which"),
    [
        (ClusterApiFile(cluster="other"), " with the cluster other, as --cloud-config says"),
        (
            ClusterApiFile(namespace=SPACE, cluster="other"),
            f" with the namespace {SPACE} and the cluster other, as --cloud-config says",
        ),
    ],
)
def test_a_configuration_that_selects_no_machine_is_named_in_the_refusal(
    world: ClusterApiWorld, file: ClusterApiFile, which: str
) -> None:
    node, deadline = world.nodes()[0], world.clock.monotonic() + MINUTES
    refusal = opened(world, file).refusal_without_group(node, deadline=deadline)
    assert refusal == Refused(Refusal.NOT_IN_GROUP, f"it has no Machine{which}: Cluster API does not manage it")


def test_replicas_are_raised_and_what_has_not_come_is_given_back(world: ClusterApiWorld) -> None:
    deadline = world.clock.monotonic() + MINUTES
    world.cluster.stopped = True
    world.provider.increase_size(world.group, 2, deadline=deadline)
    assert (world.target(), world.provider.target_size(world.group, deadline=deadline)) == (5, 5)
    states = [each.state for each in world.provider.instances(world.group, deadline=deadline)]
    assert states == [InstanceState.RUNNING] * 3 + [InstanceState.CREATING] * 2
    world.provider.decrease_target_size(world.group, -1, deadline=deadline)
    assert (world.target(), world.cluster.ended) == (4, [])
    world.cluster.stopped = False
    world.cluster.act()
    del world.cluster.alive()[-1]["status"]["nodeRef"]  # it exists, without a node
    with pytest.raises(BelowMinimum):
        world.provider.decrease_target_size(world.group, -2, deadline=world.clock.monotonic() + MINUTES)
    assert (world.target(), len(world.cluster.ended)) == (3, 1)
    assert marks(world) == []


def test_a_paused_group_is_not_raised(world: ClusterApiWorld) -> None:
    noted(world, "machinedeployments", POOL, **PAUSED)
    with pytest.raises(Permanent, match="is paused"):
        world.provider.increase_size(world.group, 1, deadline=MINUTES)
    assert world.target() == 3


def test_a_group_has_no_template(world: ClusterApiWorld) -> None:
    with pytest.raises(NotSupported, match="its first node shows what the next ones are like"):
        world.provider.template(world.group, deadline=MINUTES)


def test_a_group_without_limits_may_be_emptied_and_is_not_raised(world: ClusterApiWorld) -> None:
    world.scaled()["metadata"]["annotations"].clear()
    [group] = world.provider.groups(deadline=MINUTES)
    assert (group.min_size, group.max_size) == (0, 3)


WRONG = {
    "an unknown key": ("kubeConfig: a\n", "unknown field `kubeConfig`"),
    "a namespace": ("namespace: A_b\n", "namespace: expected a name of Kubernetes, got 'A_b'"),
    "a path": ("cluster: ../x\n", "cluster: expected a name of Kubernetes, got '../x'"),
    "no kubeconfig": ("kubeconfig: missing\n", "missing: No such file or directory"),
    "nothing": ("", "it is empty; expected at least one key"),
}


@pytest.mark.parametrize(("text", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_is_an_error(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "cloud-config"
    file.write_text(text)
    with pytest.raises(ConfigError) as raised:
        providers.load("clusterapi", file, StepClock())
    assert str(raised.value).startswith(f"cloud configuration {file}: ")
    assert says in str(raised.value)


def test_the_management_cluster_may_be_another_one(tmp_path: Path) -> None:
    file = tmp_path / "cloud-config"
    file.write_text("kubeconfig: management\nnamespace: fleet\n")
    (tmp_path / "management").touch()
    assert providers.load("clusterapi", file, StepClock()).kubeconfig == str(tmp_path / "management")
    assert providers.load("clusterapi", None, StepClock()).kubeconfig is None


def test_a_node_of_a_machine_is_found_by_its_provider_id_alone(world: ClusterApiWorld) -> None:
    assert group_of(world, node_of(first(world), annotations={})) == world.group
