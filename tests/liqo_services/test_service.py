"""Requests to the node manager, with Liqo in memory and a controllable clock."""

import datetime as dt
from pathlib import Path

import pytest
from msgspec.structs import replace

from rescheduler.errors import Conflict, Forbidden, Permanent, Retryable, UsageError
from rescheduler.liqo.node_manager.due_actions import MachineTimeouts
from rescheduler.liqo.node_manager.groups import amounts
from rescheduler.liqo.node_manager.resources import GROUP_LABEL
from rescheduler.liqo.node_manager.service import BACKOFF, NoCapacity, available
from rescheduler.providers.base import AboveMaximum, Accepted, AlreadyGone, Deleted, Refusal, Refused, UnknownGroup
from tests.liqo_services.builders import NODE, Bench, bench, cluster, group

ROME = cluster("rome")


def test_machines_are_created_and_then_run() -> None:
    with bench(ROME, accepting=5, starting=5) as here:
        names = here.service.increase("STANDARD", 2)
        assert (here.size(), here.states()) == (2, ["creating", "creating"])
        assert here.liqo.names("rome") == names
        piece = here.liqo.pieces[names[0]]
        assert piece.namespace == "tenant-of-rome"
        assert piece.manifest["metadata"]["labels"] == {
            "liqo.io/remote-cluster-id": "rome",
            "liqo.io/remoteID": "rome",
            "liqo.io/replication": "true",
            GROUP_LABEL: "STANDARD",
        }
        assert piece.manifest["metadata"]["annotations"] == {"liqo.io/create-virtual-node": "true"}
        assert piece.manifest["spec"] == {"class": "default", "providerClusterID": "rome", "resources": NODE}
        here.step(6)
        assert here.states() == ["creating", "creating"]
        here.step(4)
        assert here.states() == ["running", "running"]
        assert piece.marked == (f"liqo://{names[0]}", {GROUP_LABEL: "STANDARD"})


def test_names_are_valid_for_nodes_and_labels() -> None:
    with bench(cluster("r" * 63)) as here:
        first, second = here.service.increase("STANDARD", 2)
        assert first != second
        assert len(first) == 63


def test_the_maximum_is_enforced() -> None:
    with bench(cluster("rome", 9), groups=(group(max_size=2),)) as here:
        here.service.increase("STANDARD", 1)
        with pytest.raises(AboveMaximum, match="3 is above its maximum 2"):
            here.service.increase("STANDARD", 2)
        assert here.size() == 1


def test_without_a_cluster_nothing_is_reserved() -> None:
    with bench(cluster("rome", 1)) as here:
        with pytest.raises(NoCapacity, match="no cluster for 1 of 2: rome: insufficient resources: cpu 0 of 2"):
            here.service.increase("STANDARD", 2)
        assert (here.size(), here.liqo.pieces) == (0, {})
        here.catalog.down = True
        with pytest.raises(Retryable, match="discovery"):
            here.service.increase("STANDARD", 1)
        assert here.size() == 0


def test_resources_of_slices_are_not_allocated_twice() -> None:
    with bench(cluster("rome", 3)) as here:
        here.service.increase("STANDARD", 2)
        with pytest.raises(NoCapacity):
            here.service.increase("STANDARD", 2)
        here.service.increase("STANDARD", 1)


def test_free_resources_limit_shared_ones() -> None:
    with bench(cluster("rome", 4, free=amounts({"cpu": "4", "memory": "64Gi", "pods": "500"})), starting=60) as here:
        here.service.increase("STANDARD", 1)
        machines = here.service.view().of_cluster("rome")
        free = available(here.catalog.listed[0], machines)
        assert free == amounts({"cpu": "2", "memory": "6Gi", "pods": "330"})
        here.step(60)
        here.step()
        free = available(here.catalog.listed[0], here.service.view().of_cluster("rome"))
        assert free == amounts({"cpu": "4", "memory": "6Gi", "pods": "330"})


def test_a_released_machine_disappears_after_liqos_drain() -> None:
    with bench(ROME, draining=4) as here:
        here.liqo.add("rome-1", "STANDARD", "rome")
        assert isinstance(here.service.remove("STANDARD", "liqo://rome-1"), Accepted)
        assert (here.size(), here.states()) == (0, ["deleting"])
        assert isinstance(here.service.remove("STANDARD", "rome-1"), Accepted)
        assert here.service.group_of("rome-1") is None
        here.step(4)
        assert here.states() == []
        assert isinstance(here.service.remove("STANDARD", "rome-1"), AlreadyGone)


def test_deletions_are_recorded_across_a_restart(tmp_path: Path) -> None:
    with bench(ROME, database=str(tmp_path / "db")) as here:
        here.liqo.add("rome-1", "STANDARD", "rome")
        here.service.remove("STANDARD", "rome-1")
        here.restart()
        here.step(10)
        assert isinstance(here.service.remove("STANDARD", "rome-1"), AlreadyGone)
        assert isinstance(here.service.remove("STANDARD", "rome-2"), Refused)
        here.step(8 * 24 * 3600)
        assert isinstance(here.service.remove("STANDARD", "rome-1"), Refused)


def test_the_minimum_is_enforced() -> None:
    with bench(ROME, groups=(group(min_size=1),)) as here:
        here.liqo.add("rome-1", "STANDARD", "rome")
        refused = here.service.remove("STANDARD", "rome-1")
        assert refused == Refused(Refusal.BELOW_MINIMUM, "group STANDARD must keep 1, 0 would be left")
        assert here.liqo.remaining() == ["rome-1"]


def test_failed_machines_do_not_count_for_the_minimum() -> None:
    with bench(ROME, cluster("milan", price="0"), groups=(group(min_size=1),)) as here:
        here.liqo.add("rome-1", "STANDARD", "rome")
        here.liqo.denied["milan"] = "Resources"
        here.service.increase("STANDARD", 1)
        here.step()
        refused = here.service.remove("STANDARD", "rome-1")
        assert refused == Refused(Refusal.BELOW_MINIMUM, "group STANDARD must keep 1, 0 would be left")


def test_foreign_nodes_are_not_deleted() -> None:
    with bench(ROME, groups=(group(), group("OTHER"))) as here:
        here.liqo.add("rome-1", "OTHER", "rome")
        here.liqo.strangers["theirs"] = ""
        refused = Refused(Refusal.NOT_IN_GROUP, "rome-1 belongs to group OTHER")
        assert here.service.remove("STANDARD", "rome-1") == refused
        absent = here.service.remove("STANDARD", "theirs")
        assert absent == Refused(Refusal.NOT_IN_GROUP, "group STANDARD has no machine 'theirs'")
        assert here.service.group_of("theirs") is None
        for verb in (here.service.group, lambda name: here.service.remove(name, "rome-1")):
            with pytest.raises(UnknownGroup, match="no group 'NONE'; the groups are STANDARD, OTHER"):
                verb("NONE")


@pytest.mark.parametrize(("kind", "code"), [("Resources", "OUT_OF_RESOURCES"), ("Authentication", "DENIED")])
def test_a_denied_slice_is_listed_and_then_deleted(kind: str, code: str) -> None:
    with bench(ROME, draining=0) as here:
        here.liqo.denied["rome"] = kind
        [name] = here.service.increase("STANDARD", 1)
        here.step()
        [machine] = here.service.view().members("STANDARD")
        assert machine.error is not None
        assert (machine.state.value, machine.error.code) == ("creating", code)
        assert machine.error.message == f"cluster rome denied it ({kind}): Full: no more today"
        assert machine.error.out_of_resources == (kind == "Resources")
        assert here.size() == 1
        here.step(59)
        assert here.size() == 1
        here.step(1)
        here.step()
        assert (here.size(), here.liqo.remaining()) == (0, [])
        assert isinstance(here.service.remove("STANDARD", name), AlreadyGone)


def test_a_failed_machine_can_be_released_below_the_minimum() -> None:
    with bench(ROME, groups=(group(min_size=1),)) as here:
        here.liqo.denied["rome"] = "Resources"
        [name] = here.service.increase("STANDARD", 1)
        assert isinstance(here.service.remove("STANDARD", name), Accepted)


def test_a_failing_cluster_is_avoided_for_longer_each_time() -> None:
    assert [BACKOFF.after(count) for count in (1, 2, 3, 99)] == [
        dt.timedelta(minutes=minutes) for minutes in (1, 2, 4, 30)
    ]
    with bench(ROME, cluster("milan", price="99"), draining=0) as here:
        here.liqo.denied["milan"] = "Resources"
        here.service.increase("STANDARD", 1)
        here.step()
        here.service.increase("STANDARD", 1)
        assert len(here.liqo.names("rome")) == 1
        here.step(61)
        here.catalog.listed = [machine for machine in here.catalog.listed if machine.name == "milan"]
        here.service.increase("STANDARD", 1)
        here.step()
        here.clock.advance(100)
        with pytest.raises(NoCapacity, match="milan: it failed 2 times in a row and is not used until 2024"):
            here.service.increase("STANDARD", 1)


def test_a_success_resets_the_failures_of_a_cluster() -> None:
    with bench(ROME) as here:
        here.store.failed("rome", here.clock.now() - dt.timedelta(hours=1))
        here.service.increase("STANDARD", 1)
        here.step()
        here.step()
        assert (here.states(), here.store.failures()) == (["running"], {})


def test_a_machine_that_does_not_run_in_time_is_released() -> None:
    with bench(ROME, accepting=10_000, draining=0) as here:
        here.service.increase("STANDARD", 1)
        here.step(899)
        assert here.errors() == []
        here.step(1)
        [machine] = here.service.view().members("STANDARD")
        assert machine.error is not None
        assert machine.error.message.endswith("in time: cluster rome has not accepted its slice")
        here.step(60)
        here.step()
        assert (here.size(), here.store.failures()["rome"].count) == (0, 1)


def test_the_creation_of_a_slice_is_retried() -> None:
    with bench(ROME) as here:
        here.liqo.refusing = [Retryable("no connection")]
        [name] = here.service.increase("STANDARD", 1)
        assert (here.size(), here.liqo.names("rome")) == (1, [])
        here.step()
        assert here.liqo.names("rome") == [name]


def test_a_permanently_rejected_slice_is_a_failure() -> None:
    with bench(ROME) as here:
        here.liqo.refusing = [Forbidden("create resourceslice: forbidden (403)"), Permanent("invalid (422)")]
        here.service.increase("STANDARD", 1)
        here.step()
        [machine] = here.service.view().members("STANDARD")
        assert machine.error is not None
        assert (machine.error.code, machine.error.message) == ("REFUSED", "invalid (422)")
        here.step(60)
        assert here.size() == 0


def test_a_reservation_can_be_released_before_its_slice_exists() -> None:
    with bench(ROME) as here:
        here.liqo.peers.clear()
        here.peers = True
        here.catalog.listed = [cluster("rome", kubeconfig="its")]
        here.restart()
        [name] = here.service.increase("STANDARD", 1)
        assert (here.states(), set(here.upkeep.step().awaited)) == (["creating"], {"rome"})
        assert isinstance(here.service.remove("STANDARD", name), Deleted)
        here.liqo.peers.add("rome")
        here.step()
        assert (here.size(), here.liqo.pieces) == (0, {})


def test_a_cluster_without_a_peering_is_used_only_if_one_can_be_established() -> None:
    with bench(ROME) as here:
        here.liqo.peers.clear()
        with pytest.raises(NoCapacity, match="no peering with it, and no --liqoctl to establish one"):
            here.service.increase("STANDARD", 1)
        here.peers = True
        here.restart()
        with pytest.raises(NoCapacity, match="no peering with it, and no kubeconfig to establish one"):
            here.service.increase("STANDARD", 1)


@pytest.mark.parametrize("kept", [True, False], ids=["with its database", "without its database"])
def test_machines_are_recovered_after_a_restart(kept: bool, tmp_path: Path) -> None:
    with bench(ROME, database=str(tmp_path / "db"), accepting=5) as here:
        here.liqo.add("rome-1", "STANDARD", "rome")
        here.service.increase("STANDARD", 2)
        here.service.remove("STANDARD", "rome-1")
        if not kept:
            here.database = str(tmp_path / "another")
        here.restart()
        assert sorted(here.states()) == ["creating", "creating", "deleting"]
        here.step(5)
        here.step()
        assert (here.states(), here.size()) == (["running", "running"], 2)


@pytest.mark.parametrize("answered", [True, False], ids=["created", "not created"])
def test_a_reservation_survives_a_kill(answered: bool, tmp_path: Path) -> None:
    """The process is killed after storing the reservation: before or after the slice is created."""
    with bench(ROME, database=str(tmp_path / "db")) as here:
        here.liqo.refusing = [Retryable("killed")]
        [name] = here.service.increase("STANDARD", 1)
        if answered:
            here.liqo.add(name, "STANDARD", "rome")
        here.restart()
        assert here.size() == 1
        here.step()
        here.step()
        assert (here.states(), here.liqo.names("rome")) == (["running"], [name])


def test_a_slice_deleted_by_another_client_is_no_longer_a_machine() -> None:
    with bench(ROME) as here:
        [name] = here.service.increase("STANDARD", 1)
        del here.liqo.pieces[name]
        assert here.size() == 0
        here.step()
        assert isinstance(here.service.remove("STANDARD", name), AlreadyGone)


def test_a_machine_that_ran_is_kept_when_its_node_is_not_ready(tmp_path: Path) -> None:
    """Liqo's virtual kubelet may register its Node again, which is then not Ready for a moment."""
    with bench(ROME, database=str(tmp_path / "db")) as here:
        [name] = here.service.increase("STANDARD", 1)
        here.step()
        here.step()
        here.liqo.pieces[name].marked = ("", {})
        here.liqo.unready.add(name)
        here.step(24 * 3600)
        here.step(60)
        assert (here.states(), here.errors(), here.liqo.remaining()) == (["running"], [], [name])
        here.liqo.unready.clear()
        here.step()
        assert here.liqo.pieces[name].marked[0] == f"liqo://{name}"


def test_a_node_with_liqos_provider_id_keeps_it_and_gets_our_labels() -> None:
    with bench(ROME) as here:
        [name] = here.service.increase("STANDARD", 1)
        here.liqo.pieces[name].marked = ("liqo-made://1", {})
        here.step()
        assert here.liqo.pieces[name].marked == ("liqo-made://1", {GROUP_LABEL: "STANDARD"})
        assert here.states() == ["running"]


def test_the_timeout_of_an_unrecorded_slice_restarts() -> None:
    with bench(ROME, starting=10_000) as here:
        [name] = here.service.increase("STANDARD", 1)
        here.restart()
        here.step(5000)
        here.step(899)
        assert (here.errors(), here.liqo.remaining()) == ([], [name])
        here.step(1)
        assert here.errors() == ["NOT_READY_IN_TIME"]


def test_a_missing_disk_is_reported(tmp_path: Path) -> None:
    with bench(ROME, database=str(tmp_path / "db")) as here:
        here.store.close()
        with pytest.raises(Retryable, match="database: "):
            here.service.increase("STANDARD", 1)
        assert here.liqo.pieces == {}
        here.start()


def test_groups_are_created_and_destroyed(tmp_path: Path) -> None:
    with bench(ROME, database=str(tmp_path / "db")) as here:
        here.service.create_group(group("NEW", max_size=2))
        with pytest.raises(Conflict, match="group NEW: it already exists"):
            here.service.create_group(group("NEW"))
        here.restart()
        assert list(here.service.groups()) == ["STANDARD", "NEW"]
        [name] = here.service.increase("NEW", 1)
        with pytest.raises(Conflict, match="group NEW: it has 1 machines"):
            here.service.destroy_group("NEW")
        here.service.remove("NEW", name)
        here.step(4)
        here.service.destroy_group("NEW")
        assert list(here.service.groups()) == ["STANDARD"]
        with pytest.raises(Conflict, match="defined in the configuration"):
            here.service.destroy_group("STANDARD")


def test_a_count_of_zero_is_a_usage_error() -> None:
    with bench(ROME) as here, pytest.raises(UsageError, match="count: expected 1 or more, got 0"):
        here.service.increase("STANDARD", 0)


def test_an_unreachable_api_server_is_reported() -> None:
    here = Bench(ROME)
    here.liqo.down = True
    for verb in (here.service.view, lambda: here.service.increase("STANDARD", 1), here.upkeep.step):
        with pytest.raises(Retryable, match="no connection to the API server"):
            verb()
    here.store.close()


def test_timeouts_are_configurable() -> None:
    here = Bench(ROME, accepting=100, draining=0)
    here.patience = MachineTimeouts(provision=dt.timedelta(seconds=5), shown=dt.timedelta(0))
    here.restart()
    here.service.increase("STANDARD", 1)
    here.step(5)
    here.step()
    here.step()
    assert here.size() == 0
    here.store.close()


def test_an_unreachable_cluster_is_not_used() -> None:
    with bench(ROME, cluster("milan", price="99")) as here:
        here.liqo.unreachable = {"rome", "milan"}
        with pytest.raises(NoCapacity, match="rome: its API server is unreachable; milan: its API server"):
            here.service.increase("STANDARD", 1)
        here.liqo.unreachable = {"milan"}
        [name] = here.service.increase("STANDARD", 1)
        assert here.liqo.names("rome") == [name]


def test_a_reservation_waits_for_an_unreachable_cluster_without_a_new_peering() -> None:
    with bench(ROME) as here:
        here.liqo.refusing = [Retryable("no connection")]
        [name] = here.service.increase("STANDARD", 1)
        here.liqo.unreachable = {"rome"}
        assert (here.upkeep.step().awaited, here.liqo.names("rome")) == (frozenset(), [])
        here.liqo.unreachable.clear()
        here.step()
        assert here.liqo.names("rome") == [name]


def test_a_late_machine_loses_its_error() -> None:
    with bench(ROME, accepting=900, starting=30) as here:
        here.service.increase("STANDARD", 1)
        here.step(900)
        assert here.errors() == ["NOT_READY_IN_TIME"]
        here.step(30)  # its Node is Ready and has its labels
        here.step()
        assert (here.states(), here.errors()) == (["running"], [])
        here.step(3600)
        here.restart()
        assert (here.states(), here.errors(), here.store.failures()) == (["running"], [], {})


def test_an_error_kept_by_an_older_version_is_removed() -> None:
    with bench(ROME) as here:
        [name] = here.service.increase("STANDARD", 1)
        here.step()
        here.step()
        record = here.store.record(name)
        assert record is not None
        here.store.save(replace(record, error="DENIED", message="m", failed_at=here.clock.now()))
        assert here.errors() == ["DENIED"]
        here.step()
        assert (here.states(), here.errors()) == (["running"], [])


def test_a_machine_granted_after_a_denial_is_kept() -> None:
    """The provider's tenant was cordoned, and was then uncordoned."""
    with bench(ROME, starting=300) as here:
        [name] = here.service.increase("STANDARD", 1)
        here.liqo.denied["rome"] = "Resources"
        here.step()
        assert here.errors() == ["OUT_OF_RESOURCES"]
        here.liqo.denied.clear()
        here.step(30)
        assert (here.states(), here.errors()) == (["creating"], [])
        here.step(60)
        here.step(210)
        here.step()
        assert (here.states(), here.errors(), here.liqo.remaining()) == (["running"], [], [name])


def test_a_group_sets_the_class_of_its_slices() -> None:
    with bench(ROME, groups=(group(slice_class="gold"),)) as here:
        [name] = here.service.increase("STANDARD", 1)
        assert here.liqo.pieces[name].manifest["spec"]["class"] == "gold"
