"""Names of calls, derived from requests."""

import json

import pytest

from devcluster.faults.calls import http_call, kubernetes_call, object_name
from rescheduler.draining.actions import ANNOTATION

EVICTION = "/api/v1/namespaces/a/pods/p/eviction"

KUBERNETES = {
    ("GET", "/api/v1/nodes"): "list nodes",
    ("GET", "/api/v1/nodes?limit=500"): "list nodes",
    ("GET", "/api/v1/nodes?watch=true&resourceVersion=1"): "watch nodes",
    ("GET", "/api/v1/nodes?watch=false"): "list nodes",
    ("GET", "/api/v1/nodes/n"): "get nodes",
    ("PATCH", "/api/v1/nodes/n"): "patch nodes",
    ("PATCH", "/api/v1/nodes/n/status"): "patch nodes/status",
    ("DELETE", "/api/v1/nodes/n"): "delete nodes",
    ("DELETE", "/api/v1/nodes"): "deletecollection nodes",
    ("GET", "/api/v1/namespaces"): "list namespaces",
    ("GET", "/api/v1/namespaces/a"): "get namespaces",
    ("PUT", "/api/v1/namespaces/a/finalize"): "update namespaces/finalize",
    ("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn"): "list pods by spec.nodeName",
    ("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3D%2Cstatus.phase%21%3DFailed"): (
        "list pods by spec.nodeName,status.phase"
    ),
    ("GET", "/apis/policy/v1/namespaces/a/poddisruptionbudgets"): "list poddisruptionbudgets by metadata.namespace",
    ("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/l"): "update leases",
    ("POST", EVICTION): "create pods/eviction",
    ("POST", f"{EVICTION}?dryRun=All"): "create pods/eviction (dry run)",
    ("GET", "/readyz"): "get /readyz",
    ("GET", "/version"): "get /version",
}


def mark(written: str | None) -> bytes:
    return json.dumps({"metadata": {"annotations": {ANNOTATION: written}}}).encode()


@pytest.mark.parametrize(("method", "target"), KUBERNETES)
def test_calls_of_the_api_server(method: str, target: str) -> None:
    assert str(kubernetes_call(method, target)) == KUBERNETES[method, target]


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"deleteOptions": {"dryRun": ["All"]}}', "create pods/eviction (dry run)"),
        (b'{"deleteOptions": {}}', "create pods/eviction"),
        (b"{}", "create pods/eviction"),
        (b"no JSON", "create pods/eviction"),
        (b"[]", "create pods/eviction"),
    ],
)
def test_dry_run_in_an_eviction_body_is_named(body: bytes, name: str) -> None:
    assert str(kubernetes_call("POST", EVICTION, body)) == name


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (mark('{"step": "draining"}'), "patch nodes (draining)"),
        (mark('{"step": "draining", "debts": []}'), "patch nodes (owing)"),
        (mark('{"step": "draining", "debts": [], "surge": {}}'), "patch nodes (surging)"),
        (mark('{"step": "removing", "debts": []}'), "patch nodes (removing)"),
        (mark(None), "patch nodes (release)"),
        (b'{"metadata": {"annotations": {"a": "b"}}}', "patch nodes"),
        (b'{"spec": {}}', "patch nodes"),
        (b"no JSON", "patch nodes"),
        (b"[]", "patch nodes"),
    ],
)
def test_the_step_of_a_mark_is_named(body: bytes, name: str) -> None:
    assert str(kubernetes_call("PATCH", "/api/v1/nodes/n", body)) == name


def test_calls_of_other_servers() -> None:
    assert str(http_call("POST", "/pool/terminate?x=1", b"")) == "POST /pool/terminate"


@pytest.mark.parametrize(
    ("target", "name"), [(EVICTION, "a/p"), ("/api/v1/nodes/n?x=1", "n"), ("/api/v1/nodes", ""), ("/version", "")]
)
def test_names_of_objects(target: str, name: str) -> None:
    assert object_name(target) == name


@pytest.mark.parametrize(
    ("method", "target", "writes"),
    [
        ("GET", "/api/v1/nodes", False),
        ("GET", "/api/v1/nodes?watch=true", False),
        ("PATCH", "/api/v1/nodes/n", True),
        ("POST", EVICTION, True),
        ("POST", f"{EVICTION}?dryRun=All", False),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", False),
    ],
)
def test_only_calls_that_change_state_are_writes(method: str, target: str, writes: bool) -> None:
    assert kubernetes_call(method, target).writes is writes
