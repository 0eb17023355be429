"""Missing rights are detected before they are needed."""

import logging
from typing import Any

import pytest

from rescheduler.kube import api_server
from rescheduler.kube.api_server import AccessRight, RightsReview, rights_of_a_dry_run, rights_of_the_daemon
from rescheduler.kube.client import Client
from tests.cluster.rendering import kustomization
from tests.kube.conftest import HastyClock
from tests.kube.edge import Reply, ScriptedApiServer, status

pytestmark = pytest.mark.cluster  # the manifests are rendered by a program that is built once

NODES = AccessRight("patch", "nodes")
LEASE = AccessRight("get", "leases", "coordination.k8s.io", "ops", "mover")
EVICTION = AccessRight("create", "pods/eviction")
MEMORY = AccessRight("get", "configmaps", "", "ops", "memory")

#: A right → its text, and the access review.
RIGHTS: dict[str, tuple[AccessRight, str, dict[str, str]]] = {
    "a kind": (NODES, "patch nodes", {"verb": "patch", "resource": "nodes"}),
    "a subresource": (
        EVICTION,
        "create pods/eviction",
        {"verb": "create", "resource": "pods", "subresource": "eviction"},
    ),
    "an object": (
        LEASE,
        "get leases.coordination.k8s.io mover in namespace ops",
        {"verb": "get", "group": "coordination.k8s.io", "resource": "leases", "namespace": "ops", "name": "mover"},
    ),
}


def answer(*, allowed: bool) -> Reply:
    return Reply({"kind": "SelfSubjectAccessReview", "status": {"allowed": allowed}}, 201)


@pytest.mark.parametrize(("right", "text", "attributes"), RIGHTS.values(), ids=RIGHTS)
def test_a_right_has_a_text_and_an_access_review(
    right: AccessRight, text: str, attributes: dict[str, str], edge: ScriptedApiServer, client: Client
) -> None:
    edge.on("POST", api_server.PATH, answer(allowed=False))
    review = RightsReview(client, HastyClock(), [right])
    assert review.why() == f"missing permissions: {text}"
    [request] = edge.seen("POST")
    assert request.body["spec"] == {"resourceAttributes": attributes}


def test_each_missing_right_is_logged_once(
    edge: ScriptedApiServer, client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_server, "REVIEW_SECONDS", 0.0)
    edge.on("POST", api_server.PATH, *(answer(allowed=allowed) for allowed in (False, True, False, True, True, True)))
    review = RightsReview(client, HastyClock(), [NODES, EVICTION])
    with caplog.at_level(logging.WARNING):
        assert [review.why() for _ in range(3)] == [
            "missing permissions: patch nodes",
            "missing permissions: patch nodes",
            "",
        ]
    assert [record.getMessage() for record in caplog.records] == ["missing permission: patch nodes"]


def test_no_review_before_a_request_was_forbidden(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("POST", api_server.PATH, answer(allowed=False))
    refused = iter([False, True])
    review = RightsReview(client, HastyClock(), [NODES], lambda: next(refused))
    assert [review.why(), review.why()] == ["", "missing permissions: patch nodes"]
    assert len(edge.seen("POST")) == 1


def test_rights_to_the_memory_are_not_reported(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("POST", api_server.PATH, answer(allowed=False))
    review = RightsReview(client, HastyClock(), [MEMORY])
    assert (review.why(), review.missing) == ("", (MEMORY,))


@pytest.mark.parametrize("reply", [status(403, "no"), Reply({"status": 5}, 201)], ids=["forbidden", "not a review"])
def test_a_right_that_cannot_be_reviewed_is_not_missing(reply: Reply, edge: ScriptedApiServer, client: Client) -> None:
    edge.on("POST", api_server.PATH, reply)
    assert RightsReview(client, HastyClock(), [NODES]).why() == ""


def shipped(kind: str) -> set[tuple[str, str, str, str]]:
    """Return verb, group, resource and name of all rules in the manifests."""
    rules: list[dict[str, Any]] = [
        rule for each in kustomization("base") if each["kind"] == kind for rule in each["rules"]
    ]
    return {
        (verb, group, resource, name)
        for rule in rules
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
    }


def needed(*rights: AccessRight) -> set[tuple[str, str, str, str]]:
    return {(right.verb, right.group, right.resource, right.name) for right in rights}


def test_the_manifests_grant_the_required_rights() -> None:
    names = ("kube-system", "spot-rescheduler-memory", "k8s-spot-rescheduler")
    asked = rights_of_the_daemon(*names, removes_nodes=False, savings="spot-rescheduler-savings")
    assert needed(*asked) <= shipped("ClusterRole") | shipped("Role")
    assert needed(*rights_of_a_dry_run()) <= needed(*asked)
    assert shipped("Role") <= needed(*asked)


def test_removing_machines_needs_the_right_to_delete_nodes() -> None:
    asked = rights_of_the_daemon("ns", "memory", removes_nodes=True)
    assert AccessRight("delete", "nodes") in asked
    assert not [right for right in asked if right.resource == "leases" and right.namespace != "kube-node-lease"]
