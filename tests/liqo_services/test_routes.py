"""The node manager's routes: those of Liqo's cluster autoscaler and our own, over mutual TLS."""

import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from rescheduler.liqo.node_manager.app import node_manager
from rescheduler.liqo.node_manager.groups import DEFAULT_GROUPS, GPU, amounts
from rescheduler.liqo.serving import HttpsListener, serving
from rescheduler.settings import ListenAddress
from tests.liqo_services.builders import Bench, bench, cluster, group

LOOPBACK = ListenAddress("127.0.0.1", 0)
LABELS = {
    "liqo.io/type": "virtual-node",
    "kubernetes.io/role": "agent",
    "kubernetes.io/os": "linux",
    "kubernetes.io/arch": "amd64",
    "node.kubernetes.io/exclude-from-external-load-balancers": "true",
}


@pytest.fixture
def here() -> Iterator[Bench]:
    shared = amounts({"cpu": "64", "memory": "256Gi", "pods": "500", GPU: "4"})
    graphics = cluster("gpu", gpu=True, shared=shared)
    with bench(cluster("rome"), graphics, groups=DEFAULT_GROUPS, draining=4) as created:
        yield created


@pytest.fixture
def client(here: Bench) -> Iterator[httpx2.Client]:
    with (
        serving(node_manager(here.service), HttpsListener(LOOPBACK, plaintext=True), "test") as address,
        httpx2.Client(base_url=f"http://{address}", timeout=60) as started,
    ):
        yield started


def get(client: httpx2.Client, path: str, **params: str) -> Any:
    response = client.get(path, params=params)
    assert response.status_code == 200, response.text
    return response.json()


def error(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]


def test_the_old_routes_create_and_delete_a_machine(client: httpx2.Client, here: Bench) -> None:
    """All requests are GET, as from the gRPC server of Liqo's cluster autoscaler."""
    assert get(client, "/nodegroup") == [
        {"id": "STANDARD", "maxSize": 3, "minSize": 0},
        {"id": "GPU", "maxSize": 1, "minSize": 0},
    ]
    assert get(client, "/nodegroup/current-size", id="STANDARD") == {"currentSize": 0}
    assert get(client, "/nodegroup/nodes", id="STANDARD") == []
    assert get(client, "/nodegroup/scaleup", id="STANDARD", count="2") is True
    here.step()
    first, second = get(client, "/nodegroup/nodes", id="STANDARD")
    assert first == {"id": first["id"], "--": {"InstanceState": 1, "InstanceErrorInfo": ""}}
    assert get(client, "/nodegroup/current-size", id="STANDARD") == {"currentSize": 2}
    standard = {"id": "STANDARD", "maxSize": 3, "minSize": 0}
    for name in (first["id"], f"liqo://{first['id']}"):
        assert get(client, "/nodegroup/ownership", id=name) == standard
    assert get(client, "/nodegroup/ownership", id="aws:///i-1") == {"id": "", "maxSize": 0, "minSize": 0}
    down = client.get("/nodegroup/scaledown", params={"id": f"liqo://{second['id']}", "nodegroupid": "STANDARD"})
    assert (down.status_code, down.content) == (200, b"")
    assert get(client, "/nodegroup/current-size", id="STANDARD") == {"currentSize": 1}
    states = {node["id"]: node["--"]["InstanceState"] for node in get(client, "/nodegroup/nodes", id="STANDARD")}
    assert states == {first["id"]: 1, second["id"]: 3}
    here.step(4)
    assert len(get(client, "/nodegroup/nodes", id="STANDARD")) == 1


def test_the_old_routes_return_template_and_gpus(client: httpx2.Client) -> None:
    assert get(client, "/nodegroup/template", id="GPU") == {
        "nodegroupId": "GPU",
        "resources": {
            "min": {"cpu": "3500m", "memory": "4Gi", "pods": "110", GPU: "1", "ephemeral-storage": "20Gi"},
            "max": {"cpu": "3500m", "memory": "8Gi", "pods": "110", GPU: "4", "ephemeral-storage": "20Gi"},
        },
        "labels": {**LABELS, "provider": "liqo", "spot-rescheduler/node-group": "GPU"},
        "cost": 25.0,
    }
    assert (get(client, "/gpu/label"), get(client, "/gpu/types")) == (GPU, [GPU])


def test_failures_have_a_status_and_a_line(client: httpx2.Client, here: Bench) -> None:
    for path, more in {
        "current-size": {},
        "nodes": {},
        "template": {},
        "scaleup": {"count": "1"},
        "scaledown": {"nodegroupid": "NONE"},
    }.items():
        assert error(client.get(f"/nodegroup/{path}", params={"id": "NONE", **more})) == (
            404,
            "no group 'NONE'; the groups are STANDARD, GPU",
        )
    assert error(client.get("/nodegroup/current-size")) == (400, "id: missing")
    for count in ("", "0", "-1", "many", "1e9"):
        status, _ = error(client.get("/nodegroup/scaleup", params={"id": "STANDARD", "count": count}))
        assert status == 400
    above = client.get("/nodegroup/scaleup", params={"id": "STANDARD", "count": "4"})
    assert error(above) == (409, "group STANDARD: 4 is above its maximum 3")
    here.catalog.listed = []
    none = client.post("/nodegroup/scaleup", params={"id": "STANDARD", "count": "1"})
    assert error(none) == (503, "group STANDARD: no cluster for 1 of 1: discovery lists no cluster")
    here.liqo.down = True
    assert error(client.get("/nodegroup/nodes", params={"id": "GPU"})) == (503, "no connection to the API server")
    assert client.get("/nowhere").status_code == 404


def test_a_deletion_without_an_effect_is_an_error(client: httpx2.Client, here: Bench) -> None:
    here.liqo.add("gpu-1", "GPU", "gpu")
    wrong = client.get("/nodegroup/scaledown", params={"id": "liqo://gpu-1", "nodegroupid": "STANDARD"})
    assert error(wrong) == (404, "node liqo://gpu-1: gpu-1 belongs to group GPU")
    unknown = client.get("/nodegroup/scaledown", params={"id": "liqo://x", "nodegroupid": "GPU"})
    assert unknown.status_code == 404
    assert here.liqo.remaining() == ["gpu-1"]


def test_the_old_routes_return_prices_of_nodes_and_pods(client: httpx2.Client, here: Bench) -> None:
    here.liqo.add("gpu-1", "GPU", "gpu")
    window = {"start": "2024-05-01T12:00:00Z", "end": "2024-05-01T12:30:00+00:00"}
    for name in ("gpu-1", "liqo://gpu-1", "GPU", "template-node-for-GPU-123", "template-node-for-GPU-1-upcoming-0"):
        assert get(client, "/nodegroup/nodeprice", id=name) == 25.0
        assert get(client, "/nodegroup/nodeprice", id=name, **window) == 12.5
    assert client.get("/nodegroup/nodeprice", params={"id": "ip-10-0-0-1"}).status_code == 404
    assert get(client, "/nodegroup/podprice") == 1.0
    assert get(client, "/nodegroup/podprice", requests='{"cpu": "500m", "memory": "1Gi"}') == 0.5
    assert get(client, "/nodegroup/podprice", requests=json.dumps({GPU: "1"}), **window) == 12.5
    for requests in ('{"amd.com/gpu": "1"}', '{"cpu": "1e999"}'):
        rejected = client.get("/nodegroup/podprice", params={"requests": requests})
        assert error(rejected) == (400, "no group has all the resources that the pod requests")
    for params in ({"start": "now"}, {"start": window["start"]}, {"requests": "cpu"}, {"requests": '{"cpu": "much"}'}):
        assert client.get("/nodegroup/podprice", params=params).status_code == 400


def test_groups_are_created_and_deleted(client: httpx2.Client, here: Bench) -> None:
    body = {"id": "NEW", "currentSize": 0, "maxSize": 2, "minSize": 0, "nodes": []}
    assert client.post("/nodegroup/create", json=body).json() is True
    assert error(client.post("/nodegroup/create", json=body)) == (409, "group NEW: it already exists")
    assert [entry["id"] for entry in get(client, "/nodegroup")] == ["STANDARD", "GPU", "NEW"]
    assert get(client, "/nodegroup/scaleup", id="NEW", count="1") is True
    assert client.get("/nodegroup/destroy", params={"id": "NEW"}).status_code == 409
    for name in [node["id"] for node in get(client, "/nodegroup/nodes", id="NEW")]:
        assert client.get("/nodegroup/scaledown", params={"id": name, "nodegroupid": "NEW"}).status_code == 200
    here.step(4)
    assert get(client, "/nodegroup/destroy", id="NEW") is True
    assert error(client.get("/nodegroup/destroy", params={"id": "NEW"}))[0] == 404
    assert error(client.get("/nodegroup/destroy", params={"id": "GPU"}))[0] == 409


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"currentSize": 1}, "currentSize and nodes: expected 0 and none"),
        ({"minSize": 2}, "body.maxSize: expected minSize or more"),
        ({"maxSize": -1}, "Expected `int` >= 0 - at `$.maxSize`"),
        ({"nodes": [{"id": "n"}]}, "currentSize and nodes: expected 0 and none"),
        ({"cost": -1}, "Expected `float` >= 0"),
        ({"maxSize": "two"}, "Expected `int`, got `str`"),
        ({"id": "not a label"}, "body.id: expected at most 63"),
        ({"cost": "dear"}, "Expected `float`"),
        ({"surprise": 1}, "unknown field `surprise`"),
        ({"resources": {"min": {"cpu": 1, "memory": "1Gi"}}}, "body.resources.min.pods: expected more than 0"),
    ],
)
def test_invalid_groups_are_rejected(client: httpx2.Client, change: dict[str, Any], message: str) -> None:
    status, line = error(client.post("/nodegroup/create", json={"id": "NEW", "maxSize": 1, **change}))
    assert status == 400
    assert message in line


def test_with_post_only_a_get_request_changes_nothing(here: Bench) -> None:
    app = node_manager(here.service, post_only=True)
    with (
        serving(app, HttpsListener(LOOPBACK, plaintext=True), "test") as address,
        httpx2.Client(base_url=f"http://{address}", timeout=60) as client,
    ):
        up = {"id": "STANDARD", "count": "1"}
        assert client.get("/nodegroup/scaleup", params=up).status_code == 405
        assert client.get("/nodegroup/destroy", params={"id": "GPU"}).status_code == 405
        assert here.size() == 0
        assert client.post("/nodegroup/scaleup", params=up).json() is True


def test_our_own_routes_create_list_and_delete_machines(client: httpx2.Client, here: Bench) -> None:
    version = get(client, "/version")
    assert (version["server"], version["routes"]) == ("spot-rescheduler", ["v1"])
    ordered = client.post("/v1/groups/STANDARD/machines", json={"count": 2})
    assert ordered.status_code == 202
    names = ordered.json()["names"]
    here.liqo.strangers["theirs"] = "liqo://theirs"
    fleet = get(client, "/v1/fleet")
    assert [entry["id"] for entry in fleet["groups"]] == ["STANDARD", "GPU"]
    assert fleet["groups"][0]["debug"] == "Liqo group STANDARD: clusters with hasGPU=false; 1 per node and hour"
    assert {entry["name"]: (entry["group"], entry["state"]) for entry in fleet["machines"]} == {
        names[0]: ("STANDARD", "creating"),
        names[1]: ("STANDARD", "creating"),
        "theirs": ("", "unknown"),
    }
    gone = client.delete(f"/v1/groups/STANDARD/machines/{names[0]}")
    assert (gone.status_code, gone.json()) == (202, {"detail": "its slice is being deleted; Liqo drains it"})
    assert client.delete(f"/v1/groups/STANDARD/machines/{names[0]}").status_code == 202
    here.step(4)
    assert error(client.delete(f"/v1/groups/STANDARD/machines/{names[0]}")) == (404, f"node {names[0]}: it is gone")
    assert client.delete("/v1/groups/STANDARD/machines/theirs").status_code == 404
    assert client.post("/v1/groups/STANDARD/machines", json={"count": 9}).status_code == 409
    assert client.post("/v1/groups/STANDARD/machines", json={"count": 0}).status_code == 400
    assert client.post("/v1/groups/NONE/machines", json={"count": 1}).status_code == 404


def test_a_machine_of_a_removed_group_has_no_group(client: httpx2.Client, here: Bench) -> None:
    here.liqo.add("old-1", "OLD", "rome")
    [machine] = get(client, "/v1/fleet")["machines"]
    assert (machine["name"], machine["group"], machine["state"]) == ("old-1", "", "running")
    assert get(client, "/nodegroup/ownership", id="old-1")["id"] == ""


def test_errors_of_machines_are_reported(client: httpx2.Client, here: Bench) -> None:
    here.liqo.denied["rome"] = "Resources"
    here.service.increase("STANDARD", 1)
    [machine] = get(client, "/v1/fleet")["machines"]
    assert machine["error"] == {
        "code": "OUT_OF_RESOURCES",
        "message": "cluster rome denied it (Resources): Full: no more today",
        "outOfResources": True,
    }
    [old] = get(client, "/nodegroup/nodes", id="STANDARD")
    assert old["--"] == {
        "InstanceState": 2,
        "InstanceErrorInfo": "OUT_OF_RESOURCES: cluster rome denied it (Resources): Full: no more today",
    }


def test_our_own_routes_return_template_and_prices(client: httpx2.Client, here: Bench) -> None:
    amounts = {"cpu": "2", "memory": "2Gi", "pods": "110", "ephemeral-storage": "20Gi"}
    assert get(client, "/v1/groups/STANDARD/template") == {
        "labels": {**LABELS, "provider": "liqo", "spot-rescheduler/node-group": "STANDARD"},
        "taints": [{"key": "virtual-node.liqo.io/not-allowed", "value": "true", "effect": "NoExecute"}],
        "capacity": amounts,
        "allocatable": amounts,
    }
    here.liqo.add("gpu-1", "GPU", "gpu")
    window = {"start": "2024-05-01T12:00:00Z", "end": "2024-05-01T14:00:00Z"}
    assert get(client, "/v1/machines/gpu-1/price", **window) == {"price": 50.0}
    assert client.get("/v1/machines/gpu-1/price").status_code == 400
    share = {"requests": {"cpu": 1.0, "memory": float(1 << 29)}, **window}
    assert client.post("/v1/podprice", json=share).json() == {"price": 1.0}


def test_clients_without_a_certificate_are_rejected(here: Bench, pems: Path) -> None:
    listener = HttpsListener(LOOPBACK, cert=pems / "server.crt", key=pems / "server.key", client_ca=pems / "ca.pem")
    trusting = ssl.create_default_context(cafile=pems / "ca.pem")
    with serving(node_manager(here.service), listener, "test") as address:
        with httpx2.Client(verify=trusting, timeout=60) as stranger, pytest.raises(httpx2.TransportError):
            stranger.get(f"https://{address}/nodegroup/scaleup", params={"id": "STANDARD", "count": "1"})
        known = ssl.create_default_context(cafile=pems / "ca.pem")
        known.load_cert_chain(pems / "client.pem", pems / "client.key")
        with httpx2.Client(verify=known, timeout=60) as trusted:
            assert trusted.get(f"https://{address}/nodegroup").status_code == 200
    assert here.size() == 0


def test_a_deletion_below_the_minimum_is_a_conflict(pems: Path) -> None:
    with bench(cluster("rome"), groups=(group(min_size=1),)) as here:
        here.liqo.add("rome-1", "STANDARD", "rome")
        with (
            serving(node_manager(here.service), HttpsListener(LOOPBACK, plaintext=True), "test") as address,
            httpx2.Client(base_url=f"http://{address}", timeout=60) as client,
        ):
            line = "node rome-1: group STANDARD must keep 1, 0 would be left"
            assert error(client.delete("/v1/groups/STANDARD/machines/rome-1")) == (409, line)
            down = client.post("/nodegroup/scaledown", params={"id": "rome-1", "nodegroupid": "STANDARD"})
            assert error(down) == (409, line)
