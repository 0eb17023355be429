"""The local control plane behaves like a cluster and cleans up after itself."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from devcluster import components, manifests, stages
from devcluster.api import Api, Json
from devcluster.errors import ApiError, PlaneError
from devcluster.plane import ControlPlane
from tests.cluster.waiting import alive, children, eventually

PODS = "/api/v1/namespaces/default/pods"

#: Runs a control plane in the given folder, prints its processes, and waits.
OWNER = """
import pathlib, sys, time
from devcluster.plane import ControlPlane
with ControlPlane(pathlib.Path(sys.argv[1])) as plane:
    print(*plane.processes.values(), flush=True)
    time.sleep(600)
"""


def pods(cluster: ControlPlane, app: str) -> list[Json]:
    return cluster.api.items(PODS, labelSelector=f"app={app}")


def running(cluster: ControlPlane, app: str, count: int = 1) -> list[Json]:
    """Wait until *app* has *count* pods, all Running, and return them."""

    def all_running() -> list[Json]:
        items = pods(cluster, app)
        phases = [item["status"]["phase"] for item in items]
        return items if phases == ["Running"] * count else []

    return cluster.wait_for(all_running, f"{count} running pods of {app}")


def evict(cluster: ControlPlane, pod: Json) -> Json:
    name = pod["metadata"]["name"]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return cluster.api.post(f"{PODS}/{name}/eviction", eviction)


def account(namespace: str, name: str) -> Json:
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def allowed(api: Api, path: str) -> bool:
    try:
        api.get(path)
    except ApiError as error:
        if error.status != 403:
            raise
        return False
    return True


def read_kubeconfig(path: Path) -> tuple[str, str]:
    """Return the server and the token."""
    config = json.loads(path.read_text())
    return config["clusters"][0]["cluster"]["server"], config["users"][0]["user"]["token"]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m devcluster ARGUMENTS…`."""
    return subprocess.run(
        [sys.executable, "-m", "devcluster", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )


def test_workloads_run_where_the_scheduler_puts_them(cluster: ControlPlane) -> None:
    """All kinds of workloads run on the only nodes that their constraints allow."""
    tainted = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}
    cluster.apply(
        [
            manifests.on_demand("plain", allocatable={"cpu": "1"}),
            manifests.spot("big", allocatable={"cpu": "8"}, images=["example.org/app:1"]),
            manifests.spot("batch", taints=[tainted], labels={"pool": "batch"}),
            manifests.node("dead", labels={"pool": "dead"}, ready=False),
            manifests.deployment("web", 2, cpu="2", nodeSelector={manifests.SPOT: "true"}),
            manifests.statefulset("db", nodeSelector={manifests.ON_DEMAND: "true"}),
            manifests.daemonset("agent"),
            manifests.pod(
                "bare", nodeSelector={"pool": "batch"}, tolerations=[{"key": "dedicated", "operator": "Exists"}]
            ),
            manifests.pod("mirror", nodeName="plain", mirror=True),
            manifests.pod("stuck", nodeSelector={"pool": "dead"}),
        ]
    )
    landed = {
        app: {pod["spec"]["nodeName"] for pod in running(cluster, app, count)}
        for app, count in [("web", 2), ("db", 1), ("agent", 2), ("bare", 1), ("mirror", 1)]
    }
    assert landed == {
        "web": {"big"},
        "db": {"plain"},
        "agent": {"plain", "big"},
        "bare": {"batch"},
        "mirror": {"plain"},
    }
    conditions = cluster.wait_for(lambda: pods(cluster, "stuck")[0]["status"].get("conditions"), "the blocker")
    assert conditions[0]["reason"] == "Unschedulable"
    status = cluster.api.get("/api/v1/nodes/big")["status"]
    assert status["allocatable"] == {"cpu": "8", "memory": "16Gi", "pods": "110"}
    assert status["images"] == [{"names": ["example.org/app:1"], "sizeBytes": 100_000_000}]


def test_annotations_hold_pods_in_a_phase(cluster: ControlPlane) -> None:
    """Of two similar workloads, the one with `never` stays in its phase while the other proceeds."""
    grace = {stages.TERMINATE_AFTER: stages.GRACE}
    cluster.apply(
        [
            manifests.spot("n1"),
            manifests.deployment("slow", annotations={stages.START_AFTER: stages.NEVER}),
            manifests.deployment("quick"),
            manifests.job("endless", annotations={stages.COMPLETE_AFTER: stages.NEVER}),
            manifests.job("short"),
            manifests.pod("stays", annotations={stages.TERMINATE_AFTER: stages.NEVER}),
            manifests.pod("polite", annotations=grace, terminationGracePeriodSeconds=3600),
            manifests.pod("brief", annotations=grace, terminationGracePeriodSeconds=1),
            manifests.pod("goes"),
        ]
    )
    running(cluster, "quick")
    job = "/apis/batch/v1/namespaces/default/jobs/"
    cluster.wait_for(lambda: cluster.api.get(job + "short")["status"].get("succeeded") == 1)
    running(cluster, "endless")
    (slow,) = pods(cluster, "slow")
    assert (slow["spec"]["nodeName"], slow["status"]["phase"]) == ("n1", "Pending")

    for name in ("stays", "polite", "brief", "goes"):
        evict(cluster, running(cluster, name)[0])
    cluster.wait_for(lambda: not pods(cluster, "goes") and not pods(cluster, "brief"))
    remaining = [*pods(cluster, "stays"), *pods(cluster, "polite")]
    assert ["deletionTimestamp" in pod["metadata"] for pod in remaining] == [True, True]


def test_a_timeout_names_the_condition(cluster: ControlPlane) -> None:
    with pytest.raises(PlaneError, match=r"^timed out after 0\.2 s waiting for a miracle$"):
        cluster.wait_for(lambda: False, "a miracle", seconds=0.2)


def test_a_folder_with_other_files_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(PlaneError, match="is not empty"):
        ControlPlane(tmp_path).start()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_no_process_outlives_a_killed_owner(tmp_path: Path) -> None:
    owner = [sys.executable, "-c", OWNER, str(tmp_path / "plane")]
    with subprocess.Popen(owner, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            guards = [int(word) for word in process.stdout.readline().split()]
            assert len(guards) == len(components.ALL)
            started = [eventually(functools.partial(children, pid))[0] for pid in guards]
            assert all(alive(pid) for pid in started)
        finally:
            process.kill()
    assert eventually(lambda: not any(alive(pid) for pid in [*guards, *started]))


def test_a_plane_in_the_background_runs_beside_another_plane(cluster: ControlPlane, tmp_path: Path) -> None:
    """A plane in the background has its own cluster and ports, and `down` removes it completely."""
    folder = tmp_path / "second"
    first = command("up", "--dir", str(folder), "--on-demand", "1", "--spot", "2")
    try:
        again = command("up", "--dir", str(folder))
        config = folder / "plane" / "kubeconfig"
        assert (first.returncode, first.stdout) == (0, f"export KUBECONFIG={config}\n")
        assert (again.returncode, again.stdout) == (0, first.stdout)
        server, token = read_kubeconfig(config)
        assert server != cluster.server
        with Api(server, ca=folder / "plane" / "certificates" / "apiserver.crt", token=token) as api:
            names = [node["metadata"]["name"] for node in api.items("/api/v1/nodes")]
        assert names == ["on-demand-1", "spot-1", "spot-2"]
        assert cluster.api.items("/api/v1/nodes") == []
    finally:
        down = command("down", "--dir", str(folder))
    assert (down.returncode, down.stderr) == (0, "")
    with pytest.raises(httpx2.TransportError):
        httpx2.get(server, verify=False)
    assert not folder.exists()


def test_down_without_a_plane_succeeds(tmp_path: Path) -> None:
    done = command("down", "--dir", str(tmp_path / "none"))
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"no control plane runs in {tmp_path / 'none'}\n"
