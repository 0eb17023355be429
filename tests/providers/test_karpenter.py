"""What the provider for Karpenter does beyond the table of `conformance`: which NodeClaims it deletes, and how."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devcluster.standin.faults import Fault
from rescheduler import errors, providers
from rescheduler.errors import AuthError, ConfigError, Permanent
from rescheduler.execution.machine_objects import MachineObjects
from rescheduler.kube.client import Client
from rescheduler.kube.connection import Kubeconfig
from rescheduler.kube.responses import ReadOnly
from rescheduler.providers.base import Accepted, AlreadyGone, Deleted, DeleteOutcome, Failed, NodeRef, Refusal, Refused
from rescheduler.providers.fleet import UNLIMITED
from rescheduler.providers.karpenter import KarpenterProvider
from rescheduler.providers.karpenter.claims import NODE_CLAIMS, NODE_POOLS
from tests.kube.conftest import kubeconfig
from tests.providers.clocks import StepClock
from tests.providers.karpenters import POOL, KarpenterWorld, karpenter_world, node_of
from tests.providers.worlds import MINUTES, delete, group_of

SPOT = "spot"


@pytest.fixture
def world() -> Iterator[KarpenterWorld]:
    with karpenter_world(2, 0) as world:
        yield world


def one(world: KarpenterWorld, node: NodeRef, **options: Any) -> DeleteOutcome:
    [outcome] = delete(world, node, **options)
    return outcome


def refused(world: KarpenterWorld, node: NodeRef) -> Refused:
    """Return the refusal of a deletion, which was foretold; nothing is deleted."""
    before = world.target()
    outcome = one(world, node)
    assert isinstance(outcome, Refused)
    deadline = world.clock.monotonic() + MINUTES
    assert world.provider.refusals(world.group, [node], deadline=deadline) == {node.name: outcome}
    assert world.target() == before
    return outcome


def deletions(world: KarpenterWorld) -> int:
    return sum(request.method == "DELETE" for request in world.server.faulty_app.requests)


def kept(world: KarpenterWorld, node: NodeRef) -> str:
    """Return why the node, which has no group, is not drained."""
    why = world.provider.refusal_without_group(node, deadline=world.clock.monotonic() + MINUTES)
    assert group_of(world, node) is None
    assert why is not None
    return why.detail


def test_a_node_of_no_node_claim_is_not_managed(world: KarpenterWorld) -> None:
    stranger = NodeRef("elsewhere", "aws:///eu-north-1a/i-1", {"karpenter.sh/nodepool": POOL})
    assert kept(world, stranger) == "it has no NodeClaim: Karpenter does not manage it"
    assert refused(world, stranger).reason is Refusal.NOT_IN_GROUP


def test_the_control_plane_is_left_to_the_rules_about_it(world: KarpenterWorld) -> None:
    node = NodeRef("master", labels={"node-role.kubernetes.io/control-plane": ""})
    assert world.provider.refusal_without_group(node, deadline=MINUTES) is None


def test_a_node_without_provider_id_is_not_managed_even_if_a_node_claim_names_it(world: KarpenterWorld) -> None:
    node = NodeRef(world.nodes()[0].name)
    assert group_of(world, node) is None
    assert refused(world, node).reason is Refusal.NOT_IN_GROUP


def test_the_node_claim_of_another_node_with_the_same_provider_id_stays(world: KarpenterWorld) -> None:
    impostor = NodeRef("impostor", world.nodes()[0].provider_id)
    assert kept(world, impostor) == "its NodeClaim belongs to node node-1"
    assert refused(world, impostor) == Refused(Refusal.NOT_IN_GROUP, "its NodeClaim belongs to node node-1")


def test_a_node_claim_whose_node_pool_does_not_exist_any_more_has_no_group(world: KarpenterWorld) -> None:
    node = node_of(world.cluster.add("removed"))
    assert kept(world, node) == "NodeClaim removed-3 belongs to no NodePool"
    assert refused(world, node).reason is Refusal.NOT_IN_GROUP


def test_a_node_claim_of_no_node_pool_has_no_group(world: KarpenterWorld) -> None:
    node = node_of(world.cluster.add(""))
    assert kept(world, node) == "NodeClaim alone-3 belongs to no NodePool"
    assert refused(world, node).reason is Refusal.NOT_IN_GROUP


PROTECTED = {
    "no finalizer": (
        {"finalizers": ["foregroundDeletion"]},
        Refused(
            Refusal.PROTECTED,
            "NodeClaim on-demand-3 has no finalizer karpenter.sh/termination: Karpenter would not end the machine",
        ),
    ),
    "do-not-disrupt": (
        {"annotations": {"karpenter.sh/do-not-disrupt": "true"}},
        Refused(Refusal.PROTECTED, 'NodeClaim on-demand-3 has the annotation karpenter.sh/do-not-disrupt: "true"'),
    ),
}


@pytest.mark.parametrize(("meta", "why"), PROTECTED.values(), ids=PROTECTED)
def test_a_protected_node_claim_stays(world: KarpenterWorld, meta: dict[str, Any], why: Refused) -> None:
    node = node_of(world.cluster.add(**meta))
    assert kept(world, node) == why.detail
    assert refused(world, node) == why


def test_another_value_of_do_not_disrupt_protects_nothing(world: KarpenterWorld) -> None:
    node = node_of(world.cluster.add(annotations={"karpenter.sh/do-not-disrupt": "false"}))
    assert group_of(world, node) == POOL
    assert isinstance(one(world, node), Deleted)


def test_node_claims_that_share_a_provider_id_stay(world: KarpenterWorld) -> None:
    shared = {"nodeName": "node-1", "providerID": "kwok://node-1"}
    node = node_of(world.cluster.add(status=shared))
    assert refused(world, node) == Refused(
        Refusal.AMBIGUOUS, "several NodeClaims have its provider ID: on-demand-1, on-demand-3"
    )


def test_a_node_pool_with_static_capacity_keeps_its_number_of_nodes() -> None:
    with karpenter_world(3, 2) as world:
        first, *others = world.nodes()
        assert isinstance(one(world, first), Deleted)
        for node in others:
            assert refused(world, node).reason is Refusal.BELOW_MINIMUM


@pytest.mark.parametrize(
    ("spec", "most"),
    [
        ({}, UNLIMITED),
        ({"limits": {"cpu": "100"}}, UNLIMITED),
        ({"limits": {"nodes": 7}}, 7),
        ({"limits": {"nodes": "5G"}}, UNLIMITED),
        ({"limits": {"nodes": "many"}}, 0),
        ({"limits": {"nodes": -1}}, 0),
    ],
)
def test_the_largest_size_of_a_node_pool_is_its_limit_of_nodes(
    world: KarpenterWorld, spec: dict[str, Any], most: int
) -> None:
    world.cluster.add_pool(SPOT, **spec)
    groups = {group.id: group for group in world.provider.groups(deadline=MINUTES)}
    assert (groups[SPOT].min_size, groups[SPOT].max_size) == (0, most)


def test_a_node_claim_that_changed_since_it_was_listed_is_read_again_before_it_is_deleted(
    world: KarpenterWorld,
) -> None:
    node, left = world.nodes()[0], 3

    def may_end(_: NodeRef) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            world.cluster.change("on-demand-1")

    assert isinstance(one(world, node, may_end=may_end), Deleted)
    assert (deletions(world), left) == (4, -1)


def test_a_node_claim_that_changes_all_the_time_is_not_deleted(world: KarpenterWorld) -> None:
    node = world.nodes()[0]
    outcome = one(world, node, within=60.0, may_end=lambda _: world.cluster.change("on-demand-1"))
    assert outcome == Failed("delete nodeclaims on-demand-1: the preconditions failed (409)", retryable=True)
    assert world.target() == 2


def test_a_machine_that_karpenter_already_ends_is_awaited_and_not_ended_again(world: KarpenterWorld) -> None:
    node = world.nodes()[0]
    assert world.provider.has_instance(node, deadline=MINUTES) is True
    world.cluster.delete("on-demand-1", {})
    world.restart()
    assert world.provider.has_instance(node, deadline=MINUTES) is False
    assert isinstance(one(world, node, within=5.0), Accepted)
    assert isinstance(one(world, node), AlreadyGone)
    assert deletions(world) == 0


def test_a_slow_end_is_confirmed_by_a_later_call_without_another_order(world: KarpenterWorld) -> None:
    node = world.nodes()[0]
    assert isinstance(one(world, node, within=10.0), Accepted)
    assert isinstance(one(world, node), Deleted)
    assert deletions(world) == 1


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("meta", [meta for meta, _ in PROTECTED.values()], ids=PROTECTED)
def test_protection_that_appears_after_an_accepted_order_takes_nothing_back(
    world: KarpenterWorld, meta: dict[str, Any], *, restarted: bool
) -> None:
    node = world.nodes()[0]
    assert isinstance(one(world, node, within=5.0), Accepted)
    world.cluster.claim("on-demand-1")["metadata"].update(meta)
    if restarted:
        world.restart()
        node = NodeRef(node.name, node.provider_id, node.labels, ordered_at=world.clock.now())
    assert isinstance(one(world, node, within=5.0), Accepted)
    assert isinstance(one(world, node), AlreadyGone if restarted else Deleted)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_node_pool_that_is_deleted_after_an_accepted_order_takes_nothing_back(
    world: KarpenterWorld, *, restarted: bool
) -> None:
    node = world.nodes()[0]
    assert isinstance(one(world, node, within=5.0), Accepted)
    world.cluster.pools.clear()
    if restarted:
        world.restart()
        node = NodeRef(node.name, node.provider_id, node.labels, ordered_at=world.clock.now())
    assert isinstance(one(world, node, within=1.0), Accepted | Failed)


#: What changes between the first read and the one right before the order → the reason against the order.
CHANGES: dict[str, tuple[Callable[[KarpenterWorld], Any], Refusal]] = {
    "static capacity": (lambda world: world.cluster.add_pool(replicas=2), Refusal.BELOW_MINIMUM),
    "no finalizer": (
        lambda world: world.cluster.claim("on-demand-1")["metadata"].update(finalizers=[]),
        Refusal.PROTECTED,
    ),
    "do-not-disrupt": (
        lambda world: world.cluster.claim("on-demand-1")["metadata"].update(PROTECTED["do-not-disrupt"][0]),
        Refusal.PROTECTED,
    ),
    "another NodePool": (
        lambda world: world.cluster.claim("on-demand-1")["metadata"].update(labels={}),
        Refusal.NOT_IN_GROUP,
    ),
    "another node": (
        lambda world: world.cluster.claim("on-demand-1")["status"].update(nodeName="other"),
        Refusal.NOT_IN_GROUP,
    ),
}


@pytest.mark.parametrize(("change", "reason"), CHANGES.values(), ids=CHANGES)
def test_what_is_read_right_before_the_order_decides(
    world: KarpenterWorld, change: Callable[[KarpenterWorld], Any], reason: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, listed, reads = world.nodes()[0], world.cluster.listed, 0

    def counted() -> list[Any]:
        nonlocal reads
        result, reads = listed(), reads + 1
        if reads == 1:
            change(world)
        return result

    monkeypatch.setattr(world.cluster, "listed", counted)
    outcome = one(world, node)
    assert isinstance(outcome, Refused)
    assert (outcome.reason, deletions(world)) == (reason, 0)


def test_a_node_claim_without_a_node_belongs_to_no_node(world: KarpenterWorld) -> None:
    claim = world.cluster.add(status={"providerID": "kwok://new"})
    node = NodeRef("new", "kwok://new", claim["metadata"]["labels"])
    assert kept(world, node) == "its NodeClaim has no node yet"
    assert refused(world, node).reason is Refusal.NOT_IN_GROUP


def test_after_a_restart_a_missing_node_claim_means_that_the_machine_is_gone_only_if_it_was_ordered(
    world: KarpenterWorld,
) -> None:
    node = world.nodes()[0]
    assert isinstance(one(world, node), Deleted)
    world.restart()
    assert refused(world, node).reason is Refusal.NOT_IN_GROUP
    resumed = NodeRef(node.name, node.provider_id, node.labels, ordered_at=world.clock.now())
    assert isinstance(one(world, resumed), AlreadyGone)


ANSWERS: dict[str, tuple[dict[str, Any], Callable[[DeleteOutcome], bool]]] = {
    "forbidden, as by an admission policy": (
        {"status": 403},
        lambda outcome: outcome == Failed("delete nodeclaims on-demand-1: injected (403)", retryable=True),
    ),
    "rejected credentials": (
        {"status": 401},
        lambda outcome: isinstance(outcome, Failed) and "credentials were rejected" in outcome.error,
    ),
    "invalid": (
        {"status": 422},
        lambda outcome: outcome == Failed("delete nodeclaims on-demand-1: injected (422)", retryable=False),
    ),
    "an error of the API server, which may have acted": (
        {"status": 500},
        lambda outcome: isinstance(outcome, Accepted),
    ),
    "a timeout": ({"status": 504}, lambda outcome: isinstance(outcome, Accepted)),
    "too many requests": (
        {"status": 429, "headers": {"Retry-After": "1"}},
        lambda outcome: outcome == Failed("delete nodeclaims on-demand-1: injected (429)", retryable=True),
    ),
}


@pytest.mark.parametrize(("fault", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_answers_of_the_api_server(
    world: KarpenterWorld, fault: dict[str, Any], expected: Callable[[DeleteOutcome], bool]
) -> None:
    path = f"{NODE_CLAIMS}/on-demand-1"
    world.server.faulty_app.inject(Fault(method="DELETE", path=path, times=1000, **fault))
    assert expected(one(world, world.nodes()[0], within=50.0))
    assert world.target() == 2


@pytest.mark.parametrize("path", [NODE_POOLS, NODE_CLAIMS])
def test_lists_that_fail_leave_everything_as_it_is(world: KarpenterWorld, path: str) -> None:
    plural = path.rpartition("/")[2]
    expected: dict[int, tuple[type[errors.ReschedulerError], str]] = {
        404: (Permanent, f"the API server does not serve {plural} of karpenter.sh/v1"),
        403: (AuthError, f"list {plural}: injected (403)"),
        503: (errors.Retryable, f"list {plural}: injected (503)"),
    }
    for code, (kind, text) in expected.items():
        world.server.faulty_app.inject(Fault(method="GET", path=path, status=code))
        with pytest.raises(kind) as raised:
            world.provider.refresh(deadline=world.clock.monotonic() + MINUTES)
        assert str(raised.value) == text
    world.server.faulty_app.inject(Fault(method="GET", path=path, status=403, times=9))
    assert one(world, world.nodes()[0]) == Failed(f"list {plural}: injected (403)", retryable=True)
    assert world.target() == 2


def test_a_process_that_does_not_lead_sends_no_deletion(world: KarpenterWorld) -> None:
    with guarded(world) as provider:
        outcomes = provider.delete_nodes(POOL, world.nodes()[:1], deadline=world.clock.monotonic() + 60)
    [outcome] = outcomes.values()
    assert isinstance(outcome, Failed)
    assert "a dry run writes nothing" in outcome.error
    assert (deletions(world), world.target()) == (0, 2)


@contextlib.contextmanager
def guarded(world: KarpenterWorld) -> Iterator[KarpenterProvider]:
    """Return a provider whose client permits no write."""
    provider = KarpenterProvider(world.clock)
    file = str(kubeconfig(world.folder, world.server.url))
    provider.use_cluster(MachineObjects(Client(Kubeconfig(file), world.clock).guarded(ReadOnly())))
    yield provider
    provider.close()


def test_nothing_is_configured() -> None:
    with pytest.raises(ConfigError, match="the cloud provider 'karpenter' has nothing to configure"):
        providers.load("karpenter", Path("file"), StepClock())


def test_without_a_cluster_every_call_fails() -> None:
    provider = providers.load("karpenter", None, StepClock())
    with pytest.raises(Permanent, match="the cluster whose nodes are drained is not known"):
        provider.groups(deadline=MINUTES)
