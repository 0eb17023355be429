"""Replacement pods that are rejected, never become Ready or lose their target: the drain is rolled back."""

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from devcluster.api import Json
from devcluster.manifests import deployment, namespace
from devcluster.plane import ControlPlane
from devcluster.stages import READY_ON, START_AFTER
from tests.acceptance.proxies import ProxyProgram
from tests.acceptance.site import PoolSite, building
from tests.cluster.daemon import prefers

pytestmark = pytest.mark.cluster

TARGET: Final = "od-1"
NODE: Final = "od-2"  #: the drained node
BOTH: Final = [TARGET, NODE]

TEAMS: Final = ("red", "blue")


@contextlib.contextmanager
def two_machines(plane: ControlPlane, folder: Path, *workloads: Json, pods: int) -> Iterator[PoolSite]:
    """Run a site in which NODE has all *pods* pods of the *workloads*, and TARGET is empty."""
    with building(plane, folder, 2) as site:
        site.join(2)
        plane.apply(workloads)
        site.queries.running(pods)
        assert site.queries.places() == {NODE: pods}
        yield site


def workload(name: str, pods: int, **fields: Any) -> Json:
    return deployment(name, pods, affinity=prefers(NODE), **fields)


def terminated(site: PoolSite, proxy: ProxyProgram) -> tuple[int, str]:
    """Request the termination of NODE's machine and return status and detail of the response."""
    response = proxy.post("/pool/terminate", _body(site))
    return _status_and_detail(response)


def _body(site: PoolSite) -> Json:
    return {"machineId": site.machine(NODE), "decrementDesiredSize": True}


def _status_and_detail(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["detail"] if response.content else ""


def evicted(site: PoolSite) -> Counter[str]:
    """Return the number of evicted pods by namespace."""
    paths = [write.path for write, status in list(site.edge.answers) if write.name == "evict" and status < 300]
    return Counter(path.split("/")[4] for path in paths)


def is_as_before(site: PoolSite) -> bool:
    """Return whether both machines run, no node is marked, and the desired size is unchanged."""
    return site.state() == (BOTH, BOTH, 2, [])


def test_rejected_replacements_cost_one_pod_per_namespace_despite_retries(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    cluster.apply(namespace(team) for team in TEAMS)
    workloads = [workload(app, 2, namespace=team) for team in TEAMS for app in ("web", "api")]
    with two_machines(cluster, tmp_path, *workloads, pods=8) as site, ProxyProgram(site) as proxy:
        quotas = [_no_pods(team) for team in TEAMS]
        cluster.apply(quotas)
        status, why = terminated(site, proxy)
        assert (status, why.startswith(f"node {NODE}: replacement-refused: "), "exceeded quota" in why) == (
            500,
            True,
            True,
        )
        assert is_as_before(site)
        lost = evicted(site)
        assert set(lost.values()) == {1}
        status, why = terminated(site, proxy)
        assert (status, "replacement pods are not running yet" in why, NODE in why) == (503, True, True)
        assert (is_as_before(site), evicted(site)) == (True, lost)
        for item in quotas:
            cluster.api.delete(cluster.api.path(item))
        site.queries.running(8)
        site.queries.eventually(lambda: terminated(site, proxy) == (200, ""), "the termination")
        site.wait_for_state(TARGET, pods=8)


def _no_pods(team: str) -> Json:
    """Return a quota that prevents the creation of pods in the namespace; running pods are unaffected."""
    metadata = {"name": "none", "namespace": team}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": {"pods": "0"}}}


def is_answer(answer: tuple[int, str], status: int, text: str) -> bool:
    return answer[0] == status and text in answer[1]


def test_after_a_kill_the_next_proxy_detects_the_owed_pods(cluster: ControlPlane, tmp_path: Path) -> None:
    with two_machines(cluster, tmp_path, workload("web", 2), pods=2) as site:
        quota = _no_pods("default")
        cluster.apply([quota])
        with ProxyProgram(site) as killed:
            site.edge.hold(0, "after", "evict".__eq__)  # otherwise it may roll back before it is killed
            call = killed.send("/pool/terminate", _body(site))
            site.queries.eventually(site.edge.reached.is_set, "the first eviction")
            killed.kill()
            site.edge.drop()
            with pytest.raises(httpx2.TransportError):
                call.result()
        with ProxyProgram(site) as proxy:
            # The first request may still find the interrupted drain, whose replacement pod is refused.
            owed = 503, "default/Deployment/web lacks 1 since the drain of od-2"
            site.queries.eventually(lambda: is_answer(terminated(site, proxy), *owed), "the owed pod")
            assert (is_as_before(site), evicted(site)) == (True, {"default": 1})
            cluster.api.delete(cluster.api.path(quota))
            site.queries.running(2)
            site.queries.eventually(lambda: terminated(site, proxy) == (200, ""), "the termination")


def test_a_restarted_proxy_keeps_the_machine_that_owed_pods_left(cluster: ControlPlane, tmp_path: Path) -> None:
    """Also after the landing timeout, when only the owner waits; the pod is never Ready elsewhere."""
    timeout = {"landingTimeout": "4s"}
    web = workload("web", 1, annotations={READY_ON: NODE})
    with two_machines(cluster, tmp_path, web, pods=1) as site:
        with ProxyProgram(site, drain=timeout) as proxy:
            assert terminated(site, proxy)[0] == 504
            proxy.kill()
        with ProxyProgram(site, drain=timeout) as proxy:
            answers = []

            def kept() -> bool:
                answers.append(terminated(site, proxy))
                return answers[-1][0] == 500 and "Deployment/web" in answers[-1][1]

            site.queries.eventually(kept, "the machine kept")
            assert is_as_before(site)
            assert evicted(site) == {"default": 1}
            cluster.api.delete(cluster.api.path(web), propagationPolicy="Foreground")
            site.queries.eventually(lambda: terminated(site, proxy) == (200, ""), "the termination")


def test_replacements_that_never_become_ready_cost_one_pod(cluster: ControlPlane, tmp_path: Path) -> None:
    with (
        two_machines(cluster, tmp_path, workload("web", 1, annotations={READY_ON: NODE}), pods=1) as site,
        ProxyProgram(site, drain={"landingTimeout": "3s"}) as proxy,
    ):
        status, why = terminated(site, proxy)
        assert (status, why.startswith(f"node {NODE}: landing-timeout: "), "Deployment/web" in why) == (504, True, True)
        assert (is_as_before(site), evicted(site)) == (True, {"default": 1})


def test_cordoning_the_only_target_during_a_drain_rolls_the_drain_back(cluster: ControlPlane, tmp_path: Path) -> None:
    slow = workload("web", 6, annotations={START_AFTER: "2s"})
    with two_machines(cluster, tmp_path, slow, pods=6) as site, ProxyProgram(site) as proxy:
        call = proxy.send("/pool/terminate", _body(site))
        site.queries.eventually(lambda: evicted(site).total() >= 2, "the second eviction")
        site.cordon(TARGET)
        before = evicted(site).total()
        status, why = _status_and_detail(call.result())
        assert (status, why.startswith(f"node {NODE}: target-lost: ")) == (500, True)
        assert evicted(site).total() - before in (0, 1)
        assert before < 5, "the drain did not go in steps"
        assert is_as_before(site)
        site.queries.running(6)
