"""``--eviction=request`` on a control plane that serves EvictionRequests, which is Kubernetes 1.37 with its gate on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from devcluster import build, cleaning
from devcluster.api import Json
from devcluster.manifests import deployment, pdb
from devcluster.plane import INSTALLATION, ControlPlane
from tests.cluster.daemon import ClusterQueries, Daemon
from tests.cluster.eviction_responders import MIGRATOR, ROOT, EvictionController, requests
from tests.cluster.rendering import chart, composed
from tests.cluster.rights import ACCESS

OLDEST: Final = 37  #: the minor version that has the types
COMPONENT: Final[Json] = {"resources": ["../base"], "components": ["../components/eviction-request"]}
FLAGS: Final = (f"--namespace={INSTALLATION}", "--eviction=request", "--landing-timeout=90s")
EVICT: Final = "/eviction"

needs_the_api = pytest.mark.skipif(
    build.minor_version() < OLDEST, reason=f"EvictionRequests need Kubernetes 1.{OLDEST} or later"
)


@pytest.fixture(scope="module")
def serving(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Run a second control plane, which serves the API."""
    with ControlPlane(alpha=["EvictionRequestAPI"]) as plane:
        yield plane


@pytest.fixture
def account(serving: ControlPlane, tmp_path: Path) -> Iterator[Path]:
    """Install the permissions and the limits. Return the kubeconfig of the ServiceAccount."""
    objects = [each for each in composed(tmp_path, ours=COMPONENT) if each["kind"] in ACCESS or "Adm" in each["kind"]]
    serving.apply(objects)
    yield serving.service_account_kubeconfig(INSTALLATION, "spot-rescheduler")
    for each in objects:
        serving.api.delete(serving.api.path(each))
    for each in [*requests(serving), *serving.api.items(f"{ROOT}/evictions")]:
        plural = "evictionrequests" if "requester" in each["spec"] else "evictions"
        serving.api.delete(f"{ROOT}/namespaces/{each['metadata']['namespace']}/{plural}/{each['metadata']['name']}")
    cleaning.empty(serving)


def with_responder(workload: Json) -> Json:
    workload["spec"]["template"]["spec"]["evictionResponders"] = [{"name": MIGRATOR, "priority": 10000}]
    return workload


def drainable(plane: ControlPlane, *workloads: Json, pods: int) -> ClusterQueries:
    queries = ClusterQueries(plane)
    queries.nodes(1, 2)
    plane.apply(workloads)
    queries.running(pods)
    queries.open_spot()
    return queries


@needs_the_api
def test_the_controller_evicts_what_the_budgets_allow_and_a_responder_moves_its_pods(
    serving: ControlPlane, account: Path
) -> None:
    """The responder deletes its pod, as one that has moved the work elsewhere."""

    def migrate(pod: Json) -> None:
        serving.api.delete(f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}")

    queries = drainable(
        serving, deployment("web", 3), pdb("web", max_unavailable=1), with_responder(deployment("vm", 1)), pods=4
    )
    with EvictionController(serving, migrate) as controller:
        with Daemon(serving, *FLAGS, kubeconfig=account) as daemon:
            queries.eventually(lambda: queries.kinds() == {"spot": 4}, "the pods on spot")
            queries.eventually(lambda: not queries.marks(), "the node released")
        assert len(daemon.logged("eviction requested")) == 4
        assert len(daemon.logged("eviction evicted")) == 4
    assert (len(controller.moved), len(controller.evicted), controller.errors) == (1, 3, [])
    assert requests(serving) == []


@needs_the_api
def test_where_nobody_takes_requests_the_eviction_api_is_used_and_a_responder_is_not_bypassed(
    serving: ControlPlane, account: Path
) -> None:
    queries = drainable(serving, deployment("web", 2), pods=2)
    with Daemon(serving, *FLAGS, kubeconfig=account) as daemon:
        queries.eventually(lambda: queries.kinds() == {"spot": 2}, "the pods on spot")
        queries.eventually(lambda: not queries.marks(), "the node released")
    assert len(daemon.logged("eviction requested")) == 1  # the others are evicted without a request
    assert requests(serving) == []


@needs_the_api
def test_a_rollback_withdraws_and_so_does_the_next_process_after_a_kill(serving: ControlPlane, account: Path) -> None:
    queries = drainable(serving, with_responder(deployment("vm", 1)), pods=1)
    with EvictionController(serving) as controller:
        with Daemon(serving, *FLAGS, kubeconfig=account) as daemon:
            queries.eventually(lambda: controller.moved, "the request")
            [request] = requests(serving)
            controller.report(request["spec"]["target"]["pod"]["uid"], "copying memory")
            daemon.kill()
        [left] = requests(serving)
        assert left["metadata"]["uid"] == request["metadata"]["uid"]
        assert left["spec"]["requester"] == "spot-rescheduler/drain"
        with Daemon(serving, *FLAGS, kubeconfig=account) as daemon:
            queries.eventually(lambda: daemon.logged("eviction requested"), "the request is taken over")
            assert [each["metadata"]["uid"] for each in requests(serving)] == [request["metadata"]["uid"]]
            daemon.terminate()
            assert daemon.end() == 0
        assert (requests(serving), queries.marks()) == ([], {})
    assert (queries.kinds(), controller.errors) == ({"on-demand": 1}, [])


def test_the_chart_grants_what_the_component_grants(tmp_path: Path) -> None:
    name = "spot-rescheduler-eviction-request"
    ours = [each for each in composed(tmp_path, ours=COMPONENT) if each["metadata"]["name"] == name]
    rules = next(each for each in ours if each["kind"] == "ClusterRole")["rules"]
    objects = chart({"eviction": {"mode": "request"}})
    granted = [rule for each in objects if each["kind"] == "ClusterRole" for rule in each["rules"]]
    assert all(rule in granted for rule in rules)
    template = next(each for each in objects if each["kind"] == "Deployment")["spec"]["template"]
    assert "--eviction=request" in template["spec"]["containers"][0]["args"]
    assert not any(rule in each["rules"] for each in chart({}) if each["kind"] == "ClusterRole" for rule in rules)
