"""Reported failures after the scheduler: the kubelet refuses the pod, or cannot start it."""

from typing import Any

import pytest

from rescheduler.planning.planner import Planner
from tests.field.test_plans import ON_DELETE, PLAN, Case, container, db_pod, stateful
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, Manifest, node, pod, short, snapshot

NO: dict[str, Any] = {"userNamespaces": False, "recursiveReadOnlyMounts": False}
YES: dict[str, Any] = {"userNamespaces": True, "recursiveReadOnlyMounts": True}
REFUSED = ["kubelet-refuses"]

POD_OS = "kubernetes/enhancements#2802, CybercentreCanada/assemblyline#38"
HANDLER = "NVIDIA/gpu-operator#730"
USERS = "kubernetes/kubernetes#126484"
MOUNTS = "kubernetes/enhancements#3857"
GROUPS = "kubernetes/enhancements#3619"
POD_LEVEL = "kubernetes/enhancements#2837"
DECLARED = "kubernetes/enhancements#5328"
OS_LABEL = "kubernetes/kubernetes, kubelet/lifecycle/predicate.go: rejectPodAdmissionBasedOnOSSelector"


def reports(*spot: Manifest, objects: list[Manifest]) -> list[Manifest]:
    """Return *objects* and spot nodes with these fields of the status, named ``s-1``, ``s-2`` and so on."""
    nodes = [node("od", ON_DEMAND)]
    for number, status in enumerate(spot, 1):
        made = node(f"s-{number}")
        nodes.append(made | {"status": made["status"] | status})
    return [*nodes, *objects]


def system(name: str, version: str = "v1.36.1", **fields: Any) -> Manifest:
    return {"nodeInfo": {"operatingSystem": name, "kubeletVersion": version}, **fields}


def handlers(features: Manifest | None, *names: str) -> Manifest:
    return {
        "runtimeHandlers": [{"name": name} | ({"features": features} if features is not None else {}) for name in names]
    }


def runtime_class(name: str, handler: str) -> Manifest:
    return {"kind": "RuntimeClass", "metadata": {"name": name}, "handler": handler}


def mounts(mode: str) -> list[Manifest]:
    mount = {"name": "v", "mountPath": "/x", "readOnly": True, "recursiveReadOnly": mode}
    return [container("main") | {"volumeMounts": [mount]}]


WINDOWS, LINUX = system("windows"), system("linux")
SANDBOX: dict[str, Any] = {"runtimeClassName": "gvisor"}
STRICT: dict[str, Any] = {"securityContext": {"supplementalGroupsPolicy": "Strict"}}
OWN_USERS: dict[str, Any] = {"hostUsers": False}
TOGETHER: dict[str, Any] = {"resources": {"requests": {"cpu": "1"}}}
RESTARTS = [container("main") | {"restartPolicyRules": [{"action": "RestartAllContainers"}]}]


def asks(*spot: Manifest, extra: tuple[Manifest, ...] = (), **spec: Any) -> list[Manifest]:
    return reports(*spot, objects=[pod("a-1", "od", **spec), *extra])


GVISOR = runtime_class("gvisor", "runsc")

CASES: dict[str, Case] = {
    "another operating system": Case(asks(LINUX, LINUX, os={"name": "windows"}), REFUSED, POD_OS),
    "another operating system, of a StatefulSet's new revision": Case(
        reports(WINDOWS, objects=[db_pod("db-0"), stateful(**ON_DELETE, os={"name": "linux"})]),
        REFUSED,
        POD_OS,
    ),
    "one node of that operating system": Case(asks(LINUX, WINDOWS, os={"name": "windows"}), {"a-1": "s-2"}, POD_OS),
    "a node that does not report its operating system": Case(asks({}, os={"name": "windows"}), {"a-1": "s-1"}, POD_OS),
    "a label of the pod with another operating system": Case(
        asks(LINUX, labels={"app": "a", "kubernetes.io/os": "windows"}), REFUSED, OS_LABEL
    ),
    "no such handler": Case(asks(handlers(YES, "", "runc"), extra=(GVISOR,), **SANDBOX), REFUSED, HANDLER),
    "one node with the handler": Case(
        asks(handlers(YES, "", "runc"), handlers(YES, "", "runsc"), extra=(GVISOR,), **SANDBOX), {"a-1": "s-2"}, HANDLER
    ),
    "a handler of which no features are reported": Case(
        asks(handlers(None, "", "runsc"), extra=(GVISOR,), **SANDBOX, **OWN_USERS), {"a-1": "s-1"}, HANDLER
    ),
    "a RuntimeClass that is not in the file": Case(asks(handlers(NO, ""), **SANDBOX), {"a-1": "s-1"}, HANDLER),
    "user namespaces that only another handler has": Case(
        asks(
            {"runtimeHandlers": [*handlers(YES, "")["runtimeHandlers"], *handlers(NO, "runsc")["runtimeHandlers"]]},
            extra=(GVISOR,),
            **SANDBOX,
            **OWN_USERS,
        ),
        REFUSED,
        USERS,
    ),
    "no user namespaces": Case(asks(handlers(NO, "", "runc"), **OWN_USERS), REFUSED, USERS),
    "hostUsers: true": Case(asks(handlers(NO, ""), hostUsers=True), {"a-1": "s-1"}, USERS),
    "no recursive read-only mounts, in an init container": Case(
        asks(handlers(NO, ""), initContainers=mounts("Enabled")), REFUSED, MOUNTS
    ),
    "no recursive read-only mounts, in a sidecar": Case(
        asks(handlers(NO, ""), initContainers=[mounts("Enabled")[0] | {"restartPolicy": "Always"}]), REFUSED, MOUNTS
    ),
    "recursive read-only mounts if possible": Case(
        asks(handlers(NO, ""), containers=mounts("IfPossible")), {"a-1": "s-1"}, MOUNTS
    ),
    "no strict groups": Case(asks({"features": {"supplementalGroupsPolicy": False}}, **STRICT), REFUSED, GROUPS),
    "features without the field": Case(asks({"features": {}}, **STRICT), {"a-1": "s-1"}, GROUPS),
    "pod-level resources on kubelet 1.33": Case(asks(system("linux", "v1.33.4"), **TOGETHER), REFUSED, POD_LEVEL),
    "pod-level resources on kubelet 1.34": Case(
        asks(system("linux", "v1.34.0-gke.1"), **TOGETHER), {"a-1": "s-1"}, POD_LEVEL
    ),
    "a limit of the whole pod on kubelet 1.33": Case(
        asks(system("linux", "v1.33.1+k3s1"), resources={"limits": {"cpu": "1"}}), REFUSED, POD_LEVEL
    ),
    "pod-level resources on Windows": Case(asks(system("windows", "v1.36.0"), **TOGETHER), REFUSED, POD_LEVEL),
    "a declared feature, on a node that declares others": Case(
        asks({"declaredFeatures": ["Other"]}, containers=RESTARTS), REFUSED, DECLARED
    ),
    "a handler that only the new template of a StatefulSet needs": Case(
        reports(handlers(YES, ""), objects=[GVISOR, db_pod("db-0"), stateful(**ON_DELETE, runtimeClassName="gvisor")]),
        REFUSED,
        HANDLER,
    ),
    "two demands, each met by another node": Case(
        asks(
            {**handlers(YES, ""), "features": {"supplementalGroupsPolicy": False}},
            {**handlers(NO, ""), "features": {"supplementalGroupsPolicy": True}},
            **STRICT,
            **OWN_USERS,
        ),
        REFUSED,
        f"{USERS}, {GROUPS}",
    ),
    "the only node that can run it is full": Case(
        asks(LINUX, WINDOWS, extra=(pod("b-1", "s-2", cpu="4"),), os={"name": "windows"}), ["no-room-on-spot"], POD_OS
    ),
    "a label selects the nodes that can run it": Case(
        asks(LINUX, WINDOWS, os={"name": "windows"}, nodeSelector={"kubernetes.io/hostname": "s-2"}),
        {"a-1": "s-2"},
        POD_OS,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_verdict_is_the_right_one(case: Case) -> None:
    planner = Planner(snapshot(case.objects), PLAN)
    assert short(planner.plan_node("od", CIRCUMSTANCES)) == case.right
    [found] = [each for each in planner.plan_all(CIRCUMSTANCES).verdicts if each.node == "od"]
    assert short(found) == case.right, "all nodes in sequence"


@pytest.mark.parametrize(
    ("selector", "right"),
    [({}, ["fragile-plan"]), ({"kubernetes.io/hostname": "s-2"}, {"a-1": "s-2"})],
    ids=["the scheduler may choose the other node", "a nodeSelector keeps it away from the other node"],
)
def test_a_drain_begins_only_if_the_scheduler_cannot_choose_a_node_that_refuses(selector: Manifest, right: Any) -> None:
    objects = asks(LINUX, WINDOWS, os={"name": "windows"}, nodeSelector=selector)
    [found] = Planner(snapshot(objects), PLAN).first_plan(CIRCUMSTANCES).verdicts
    assert short(found) == right
