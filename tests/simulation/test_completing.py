"""A dump has only what plans read. What it lacks is completed, so that workloads create the same pods again."""

from typing import Any

import msgspec
import pytest

from rescheduler.kube import consistent_reads
from rescheduler.kube.client import Client
from rescheduler.simulation.completing import completed
from rescheduler.simulation.engine import Process
from rescheduler.simulation.store import Json
from rescheduler.simulation.transport import PoolTransport, SimulatedSource
from tests.simulation.worlds import Scene, node, workload


def dump(scene: Scene) -> list[Json]:
    """Return the objects of the cluster as ``rescheduler snapshot`` reads them."""
    world = scene.world
    process = Process(world.engine, "dump")
    pool = PoolTransport(world.engine, world.server, world.network, process)
    client = Client(SimulatedSource(pool), process.clock)
    left_out: list[str] = []
    items = [msgspec.json.decode(item) for item in consistent_reads.items(client, process.clock, left_out.append)]
    assert left_out == []
    return items


def with_claims(kind: str, name: str) -> Json:
    item = workload(kind, name, 2)
    item["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": {"storageClassName": "fast"}}]
    return item


@pytest.mark.parametrize(
    "item",
    [
        workload("Deployment", "web", 3),
        workload("StatefulSet", "web", 3),
        with_claims("StatefulSet", "web"),
        workload("ReplicaSet", "web", 2),
        workload("DaemonSet", "web", 0),
    ],
    ids=["Deployment", "StatefulSet", "StatefulSet with claims", "ReplicaSet", "DaemonSet"],
)
def test_the_workloads_of_a_dump_create_the_same_pods_again(item: Json) -> None:
    storage: Json = {"kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": "ebs.csi.aws.com"}
    storage["volumeBindingMode"] = "WaitForFirstConsumer"
    first = Scene([node("od-1"), node("spot-1", spot=True), storage, item]).run(60)
    before = shapes(first)
    assert before
    dumped = dump(first)
    first.world.close()
    second = Scene(dumped).run(60)
    assert shapes(second) == before
    for pod in second.pods(app="web"):
        second.world.server.deletion.delete_pod(pod)
    second.run(120)
    assert shapes(second) == before
    assert second.world.engine.crashes == []
    second.world.close()


def shapes(scene: Scene) -> list[Any]:
    """Return what the pods of a workload have in common before and after they are created again."""
    return sorted(
        [
            [each["resources"]["requests"] for each in pod["spec"]["containers"]],
            [volume["persistentVolumeClaim"]["claimName"] for volume in pod["spec"].get("volumes") or ()],
            pod["spec"]["terminationGracePeriodSeconds"],
            {name: value for name, value in pod["metadata"]["labels"].items() if name == "app"},
            pod["status"]["phase"],
        ]
        for pod in scene.pods(app="web")
    )


def test_a_daemon_drains_the_nodes_of_a_dump() -> None:
    first = Scene([node("od-1"), node("spot-1", spot=True), node("spot-2", spot=True)])
    first.world.store.create("deployments", workload("Deployment", "web", 3))
    dumped = dump(first.run(60))
    first.world.close()
    second = Scene(dumped).begin().run(300)
    assert [(drain.node.name, drain.failure) for drain in second.drains] == [("od-1", None)]
    second.world.close()


def test_the_newest_replica_set_has_the_template_of_a_deployment() -> None:
    def replica_set(revision: str, cpu: str) -> Json:
        item = workload("ReplicaSet", "web", 1, cpu)
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": True}
        annotations = {"deployment.kubernetes.io/revision": revision}
        item["metadata"] |= {
            "name": f"web-{revision}",
            "uid": revision,
            "ownerReferences": [owner],
            "annotations": annotations,
        }
        item["spec"]["template"]["metadata"]["labels"] |= {"pod-template-hash": revision}
        return item

    bare: Json = {"kind": "Deployment", "metadata": {"name": "web", "namespace": "default", "uid": "d"}, "spec": {}}
    found = completed([bare, replica_set("9", "1"), replica_set("10", "2")])[0]
    [container] = found["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"]["cpu"] == "2"
    assert found["spec"]["template"]["metadata"]["labels"] == {"app": "web"}
    assert found["spec"]["selector"] == {"matchLabels": {"app": "web"}}


def test_workloads_whose_template_is_not_known_are_left_out() -> None:
    bare: Json = {"kind": "Deployment", "metadata": {"name": "web", "namespace": "default", "uid": "d"}, "spec": {}}
    claim: Json = {"kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": {"volumeName": None}}
    assert completed([bare, claim]) == [{**claim, "spec": {}}]


@pytest.mark.parametrize("field", ["apiVersion", "kind", "name", "uid"])
def test_owner_references_of_a_dump_may_lack_fields(field: str) -> None:
    first = Scene([node("od-1"), workload("Deployment", "web", 2)]).run(60)
    dumped = dump(first)
    first.world.close()
    for item in dumped:
        for owner in item["metadata"].get("ownerReferences") or ():
            del owner[field]
    second = Scene(dumped).run(60)
    assert second.pods(app="web")
    assert second.world.engine.crashes == []
    second.world.close()
