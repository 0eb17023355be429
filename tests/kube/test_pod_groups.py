"""Reading the groups of pods: only where pods name one, in the version that is served, and rarely."""

from typing import Any

import pytest

from predicates.objects.pods import NODE_POOL
from predicates.snapshot import Snapshot
from rescheduler.clock import SystemClock
from rescheduler.kube.client import Client
from rescheduler.kube.unwatched import REREAD_SECONDS, GroupsOfAutoscaler, PodGroups, read_autoscaler_groups
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from rescheduler.planning.rules.candidates import static_capacity
from tests.kube.edge import Reply, ScriptedApiServer, status
from tests.planning.builders import CIRCUMSTANCES, NOW, ON_DEMAND, node, pod, short, snapshot

NODES = [node("od", ON_DEMAND), node("s")]
CORE, VOLCANO, BUFFERS = "/apis/scheduling.k8s.io", "/apis/scheduling.volcano.sh", "/apis/autoscaling.x-k8s.io"
STATUS = "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status"
IN_SPEC: dict[str, Any] = {"schedulingGroup": {"podGroupName": "g"}}
OF_1_35: dict[str, Any] = {"workloadRef": {"name": "g", "podGroup": "workers"}}
IN_ANNOTATION: dict[str, Any] = {"annotations": {"scheduling.k8s.io/group-name": "g"}}


def versions(group: str, *names: str) -> Reply:
    return Reply({"kind": "APIGroup", "versions": [{"groupVersion": f"{group}/{name}"} for name in names]})


def listed(*specs: dict[str, Any]) -> Reply:
    """Return a list as the API server writes it: without apiVersion and kind of the items."""
    items = [{"metadata": {"name": "g", "namespace": "default"}, "spec": spec} for spec in specs]
    return Reply({"metadata": {"resourceVersion": "1"}, "items": items})


def gang(minimum: int) -> dict[str, Any]:
    return {"schedulingPolicy": {"gang": {"minCount": minimum}}}


def cluster(fields: dict[str, Any]) -> Snapshot:
    """Return two pods of a group on two nodes."""
    return snapshot([*NODES, pod("m-0", "od", **fields), pod("m-1", "s", **fields)])


def verdict(clustered: Snapshot) -> Any:
    return short(Planner(clustered, Policy()).plan_node("od", CIRCUMSTANCES))


class SkippingClock(SystemClock):
    """A clock that shows a later time."""

    passed = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.passed


@pytest.fixture
def clock() -> SkippingClock:
    return SkippingClock()


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def groups(client: Client, clock: SkippingClock, warnings: list[str]) -> PodGroups:
    return PodGroups(client, clock, warnings.append, buffers=False)


@pytest.fixture
def with_buffers(client: Client, clock: SkippingClock, warnings: list[str], edge: ScriptedApiServer) -> PodGroups:
    edge.on("GET", STATUS, status(404, "not found"))
    return PodGroups(client, clock, warnings.append)


def test_only_buffers_are_looked_for_while_no_pod_belongs_to_a_group(
    groups: PodGroups, with_buffers: PodGroups, edge: ScriptedApiServer, warnings: list[str]
) -> None:
    groups.refresh(cluster({}))
    assert edge.seen() == []
    edge.on("GET", BUFFERS, status(404, "not found"))
    with_buffers.refresh(cluster({}))
    assert ([request.path for request in edge.seen()], warnings) == ([STATUS, BUFFERS], [])


@pytest.mark.parametrize(
    ("served", "has"), [(("v1", "v1beta1"), "v1beta1"), (("v1", "v1alpha2"), "v1alpha2"), (("v1alpha9",), "v1alpha9")]
)
def test_the_version_that_has_groups_is_read(
    served: tuple[str, ...], has: str, groups: PodGroups, edge: ScriptedApiServer
) -> None:
    edge.on("GET", CORE, versions("scheduling.k8s.io", *served))
    for version in served:
        reply = listed(gang(1)) if version == has else status(404, "the server could not find the requested resource")
        edge.on("GET", f"{CORE}/{version}/podgroups", reply)
    watched = cluster(IN_SPEC)
    assert verdict(watched) == ["gang-member"]
    groups.refresh(watched)
    assert verdict(watched) == {"m-0": "s"}


@pytest.mark.parametrize(("mode", "found"), [("single", {"m-0": "s"}), ("all", ["gang-member"])])
def test_the_groups_of_groups_are_read_with_them(
    mode: str, found: object, groups: PodGroups, edge: ScriptedApiServer, clock: SkippingClock
) -> None:
    """They are not requested unless a group names one."""
    edge.on("GET", CORE, versions("scheduling.k8s.io", "v1beta1"))
    edge.on("GET", f"{CORE}/v1beta1/podgroups", listed(gang(1) | {"parentCompositePodGroupName": "g"}))
    composite: dict[str, Any] = {"schedulingPolicy": {"basic": {}}, "disruptionMode": {mode: {}}}
    edge.on("GET", f"{CORE}/v1beta1/compositepodgroups", listed(composite))
    watched = cluster(IN_SPEC)
    groups.refresh(watched)
    assert verdict(watched) == found
    clock.passed = REREAD_SECONDS
    groups.refresh(watched)
    assert verdict(watched) == found
    assert len(edge.seen(path=f"{CORE}/v1beta1/compositepodgroups")) == 2


@pytest.mark.parametrize(("minimum", "found"), [(1, {"m-0": "s"}), (2, ["gang-member"])])
def test_the_workloads_of_1_35_are_read(
    minimum: int, found: object, groups: PodGroups, edge: ScriptedApiServer
) -> None:
    """PodGroups, which that version does not have, are not requested."""
    edge.on("GET", CORE, versions("scheduling.k8s.io", "v1", "v1alpha1"))
    edge.on("GET", f"{CORE}/v1/workloads", status(404, "the server could not find the requested resource"))
    policy = {"gang": {"minCount": minimum}}
    edge.on("GET", f"{CORE}/v1alpha1/workloads", listed({"podGroups": [{"name": "workers", "policy": policy}]}))
    watched = cluster(OF_1_35)
    groups.refresh(watched)
    assert verdict(watched) == found
    assert not [request for request in edge.seen() if request.path.endswith("podgroups")]


def test_pods_whose_workload_may_not_be_read_stay(
    groups: PodGroups, edge: ScriptedApiServer, warnings: list[str]
) -> None:
    edge.on("GET", CORE, versions("scheduling.k8s.io", "v1alpha1"))
    edge.on("GET", f"{CORE}/v1alpha1/workloads", status(403, "workloads is forbidden"))
    watched = cluster(OF_1_35)
    groups.refresh(watched)
    assert verdict(watched) == ["gang-member"]
    why = "pods of these groups stay: the scheduler binds none without the object"
    assert warnings == [f"list workloads: workloads is forbidden (403); {why}"]


def test_groups_are_read_again_after_a_minute(groups: PodGroups, edge: ScriptedApiServer, clock: SkippingClock) -> None:
    edge.on("GET", VOLCANO, versions("scheduling.volcano.sh", "v1beta1"))
    edge.on("GET", f"{VOLCANO}/v1beta1/podgroups", listed({"minMember": 2}), listed({"minMember": 1}))
    watched = cluster(IN_ANNOTATION)
    groups.refresh(watched)
    groups.refresh(watched)
    assert verdict(watched) == ["gang-member"]
    clock.passed = REREAD_SECONDS
    groups.refresh(watched)
    assert verdict(watched) == {"m-0": "s"}
    assert len(edge.seen(path=f"{VOLCANO}/v1beta1/podgroups")) == 2


def test_groups_that_may_not_be_read_need_all_of_their_pods(
    groups: PodGroups, edge: ScriptedApiServer, clock: SkippingClock, warnings: list[str]
) -> None:
    """The same warning is not repeated."""
    edge.on("GET", VOLCANO, versions("scheduling.volcano.sh", "v1beta1"))
    edge.on("GET", f"{VOLCANO}/v1beta1/podgroups", status(403, "podgroups is forbidden"))
    watched = cluster(IN_ANNOTATION)
    groups.refresh(watched)
    clock.passed = REREAD_SECONDS
    groups.refresh(watched)
    assert verdict(watched) == ["gang-member"]
    assert warnings == [
        "list podgroups: podgroups is forbidden (403); planning assumes that a group of pods needs all of them"
    ]


def test_an_api_that_is_not_served_has_no_groups(
    groups: PodGroups, edge: ScriptedApiServer, warnings: list[str]
) -> None:
    edge.on("GET", VOLCANO, status(404, "not found"))
    watched = cluster(IN_ANNOTATION)
    groups.refresh(watched)
    assert (verdict(watched), warnings) == (["gang-member"], [])


def test_a_broken_list_of_versions_is_reported(groups: PodGroups, edge: ScriptedApiServer, warnings: list[str]) -> None:
    edge.on("GET", VOLCANO, Reply({"versions": 3}))
    groups.refresh(cluster(IN_ANNOTATION))
    assert warnings[0].startswith("get group scheduling.volcano.sh: unexpected response: ")


KARPENTER = "/apis/karpenter.sh"


def pooled() -> Snapshot:
    """Return an on-demand node of a NodePool, and a spot node of another one."""
    nodes = [node("od", ON_DEMAND, labels={NODE_POOL: "base"}), node("s", labels={NODE_POOL: "spot"})]
    return snapshot([*nodes, pod("m-0", "od")])


def test_a_static_node_pool_keeps_its_nodes(groups: PodGroups, edge: ScriptedApiServer, clock: SkippingClock) -> None:
    edge.on("GET", KARPENTER, versions("karpenter.sh", "v1"))
    pools = [{"metadata": {"name": "base"}, "spec": {"replicas": 3}}, {"metadata": {"name": "spot"}, "spec": {}}]
    dynamic = [{"metadata": {"name": "base"}, "spec": {"limits": {"cpu": "10"}}}]
    replies = [Reply({"metadata": {"resourceVersion": "1"}, "items": items}) for items in (pools, dynamic)]
    edge.on("GET", f"{KARPENTER}/v1/nodepools", *replies)
    watched = pooled()
    groups.refresh(watched)
    [blocker] = static_capacity(watched)["od"]
    assert blocker.reason == "static-capacity"
    assert blocker.detail == "it would be bought again: NodePool 'base' keeps 3 nodes (spec.replicas)"
    assert static_capacity(watched).keys() == {"od"}  # not those of a pool with as many nodes as pods need
    clock.passed = REREAD_SECONDS
    groups.refresh(watched)
    assert static_capacity(watched) == {}


def test_what_creates_nodes_is_read_if_it_is_asked_for(
    client: Client, clock: SkippingClock, edge: ScriptedApiServer, warnings: list[str]
) -> None:
    """Only OpenShift's MachineSets and Karpenter's NodePools are served, and the latter may not be read."""
    edge.on("GET", KARPENTER, versions("karpenter.sh", "v1"))
    edge.on("GET", f"{KARPENTER}/v1/nodepools", status(403, "nodepools is forbidden"))
    edge.on("GET", "/apis/cluster.x-k8s.io", status(404, "not found"))
    edge.on("GET", "/apis/machine.openshift.io", versions("machine.openshift.io", "v1beta1"))
    edge.on("GET", "/apis/machine.openshift.io/v1beta1/machinesets", listed({"replicas": 2}))
    watched = cluster({})
    PodGroups(client, clock, warnings.append, buffers=False, creators=True).refresh(watched)
    assert {kind: [*watched.of(kind)] for kind in ("MachineSet", "NodePool")} == {
        "MachineSet": ["default/g"],
        "NodePool": [],
    }
    assert [warning.partition(":")[0] for warning in warnings] == ["list nodepools"]


def test_node_pools_that_may_not_be_read_are_reported_once(
    groups: PodGroups, edge: ScriptedApiServer, clock: SkippingClock, warnings: list[str]
) -> None:
    edge.on("GET", KARPENTER, versions("karpenter.sh", "v1"))
    edge.on("GET", f"{KARPENTER}/v1/nodepools", status(403, "nodepools is forbidden"))
    for clock.passed in (0.0, REREAD_SECONDS):
        groups.refresh(pooled())
    assert warnings == [
        "list nodepools: nodepools is forbidden (403); planning assumes that no NodePool has static capacity"
    ]


def buffer(name: str, spec: dict[str, Any], **status: Any) -> dict[str, Any]:
    """Return a CapacityBuffer for one pod, which its controller has accepted."""
    accepted = {"replicas": 1, "conditions": [{"type": "ReadyForProvisioning", "status": "True"}]}
    return {"metadata": {"name": name, "namespace": "shop"}, "spec": spec, "status": accepted | status}


TEMPLATE = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}}
OF_POD_TEMPLATE = "/api/v1/namespaces/shop/podtemplates/chunk"
OF_DEPLOYMENT = "/apis/apps/v1/namespaces/shop/deployments/web"


@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1"])
def test_buffers_are_read_with_their_templates(version: str, with_buffers: PodGroups, edge: ScriptedApiServer) -> None:
    """Only those that keep room: the templates of the others are not read."""
    edge.on("GET", BUFFERS, versions("autoscaling.x-k8s.io", version))
    items = [
        buffer("by-status", {}, podTemplateRef={"name": "chunk"}),
        buffer("by-spec", {"podTemplateRef": {"name": "chunk"}}),
        buffer("scaled", {"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}}),
        buffer("gone", {"podTemplateRef": {"name": "gone"}}),
        buffer("empty", {"podTemplateRef": {"name": "unread"}}, replicas=0),
        buffer("hostile", {"podTemplateRef": {"name": "../secrets/s"}}),
        buffer("neither", {"scalableRef": {"kind": "Secret", "name": "s"}}),
    ]
    edge.on("GET", f"{BUFFERS}/{version}/capacitybuffers", Reply({"metadata": {}, "items": items}))
    edge.on("GET", OF_POD_TEMPLATE, Reply({"metadata": {"name": "chunk"}, "template": TEMPLATE}))
    edge.on("GET", OF_DEPLOYMENT, Reply({"metadata": {"name": "web"}, "spec": {"template": TEMPLATE}}))
    edge.on("GET", "/api/v1/namespaces/shop/podtemplates/gone", status(404, "not found"))
    watched = cluster({})
    with_buffers.refresh(watched)
    assert watched.of("CapacityBuffer").keys() == {"shop/by-status", "shop/by-spec", "shop/scaled"}
    assert Planner(watched, Policy()).pending(CIRCUMSTANCES).buffered == 1  # the spot node has no room for more
    assert not any("unread" in request.path or "secrets" in request.path for request in edge.seen())


def test_the_templates_of_twenty_buffers_of_a_namespace_are_read(
    with_buffers: PodGroups, edge: ScriptedApiServer
) -> None:
    edge.on("GET", BUFFERS, versions("autoscaling.x-k8s.io", "v1beta1"))
    items = [buffer(f"b-{number}", {"podTemplateRef": {"name": "chunk"}}) for number in range(30)]
    edge.on("GET", f"{BUFFERS}/v1beta1/capacitybuffers", Reply({"metadata": {}, "items": items}))
    edge.on("GET", OF_POD_TEMPLATE, Reply({"metadata": {"name": "chunk"}, "template": TEMPLATE}))
    with_buffers.refresh(cluster({}))
    assert len(edge.seen(path=OF_POD_TEMPLATE)) == 20


@pytest.mark.parametrize("forbidden", [f"{BUFFERS}/v1beta1/capacitybuffers", OF_POD_TEMPLATE])
def test_buffers_that_may_not_be_read_are_reported_once(
    forbidden: str, with_buffers: PodGroups, edge: ScriptedApiServer, clock: SkippingClock, warnings: list[str]
) -> None:
    edge.on("GET", BUFFERS, versions("autoscaling.x-k8s.io", "v1beta1"))
    items = [buffer("spare", {"podTemplateRef": {"name": "chunk"}})]
    listed = {f"{BUFFERS}/v1beta1/capacitybuffers": Reply({"metadata": {}, "items": items})}
    for path, reply in (listed | {forbidden: status(403, "it is forbidden")}).items():
        edge.on("GET", path, reply)
    for clock.passed in (0.0, REREAD_SECONDS):
        with_buffers.refresh(cluster({}))
    [warning] = warnings
    assert warning.endswith("it is forbidden (403); planning assumes that no CapacityBuffer keeps room")


WRITTEN = """\
time: {time}
autoscalerStatus: Running
clusterWide:
  health: {{status: Healthy, lastProbeTime: "2026-01-01T12:00:00.1Z"}}
nodeGroups:
- name: base
  health:
    status: Healthy
    nodeCounts: {{registered: {{total: 3, ready: 3, notStarted: 0}}, longUnregistered: 0, unregistered: 0}}
    cloudProviderTarget: 3
    minSize: 2
    maxSize: 10
    lastProbeTime: 2026-01-01T12:00:00.1Z
  scaleUp: {{status: NoActivity}}
"""


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        (WRITTEN.format(time="2026-01-01 12:00:00.123456789 +0000 UTC m=+3.1"), [("base", 3, 2, 10)]),
        (WRITTEN.format(time="2026-01-01 11:49:00.1 +0000 UTC"), []),  # Cluster Autoscaler does not run any more
        (WRITTEN.format(time="never"), []),
        ("Cluster-autoscaler status at 2023-01-01 12:00:00 +0000 UTC:\nCluster-wide:\n  Health: Healthy\n", []),
        ("nodeGroups: 3", []),
        ("[", []),
    ],
    ids=["a status", "an old one", "no time", "a text of an old version", "another form", "no YAML"],
)
def test_the_groups_are_those_of_a_recent_status(
    text: str, groups: list[tuple[str, int, int, int]], client: Client, edge: ScriptedApiServer
) -> None:
    edge.on("GET", STATUS, Reply({"metadata": {"name": "cluster-autoscaler-status"}, "data": {"status": text}}))
    found = [group for each in read_autoscaler_groups(client, NOW) for group in each.groups]
    assert [(group.name, group.target, group.minimum, group.maximum) for group in found] == groups


def test_a_status_that_may_not_be_read_is_reported_once(
    client: Client, edge: ScriptedApiServer, warnings: list[str]
) -> None:
    edge.on("GET", STATUS, status(403, "it is forbidden"))
    reader = GroupsOfAutoscaler(client, SystemClock(), warnings.append)
    assert (reader.read(), reader.read()) == ([], [])
    [warning] = warnings
    assert warning.startswith(
        "get the status of Cluster Autoscaler: it is forbidden (403); planning assumes that no group"
    )
