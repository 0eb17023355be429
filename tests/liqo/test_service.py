"""What the node manager does when it is asked, over Liqo in memory and a clock in hand."""

import datetime as dt
from pathlib import Path

import pytest
from msgspec.structs import replace

from rescheduler.backends.base import (
    AboveMaximum,
    Accepted,
    AlreadyGone,
    Deleted,
    Refusal,
    Refused,
    UnknownGroup,
)
from rescheduler.errors import Conflict, Forbidden, Permanent, Retryable, UsageError
from rescheduler.liqo.nodemanager.amounts import amounts
from rescheduler.liqo.nodemanager.offers import available, rest
from rescheduler.liqo.nodemanager.resources import GROUP_LABEL
from rescheduler.liqo.nodemanager.service import NoCapacity
from rescheduler.liqo.nodemanager.upkeep import Patience
from tests.liqo.builders import NODE, Bench, bench, cluster, group

ROME = cluster("rome")


def test_machines_come_through_creating_to_running() -> None:
    with bench(ROME, accepting=5, starting=5) as found:
        names = found.service.increase("STANDARD", 2)
        assert (found.size(), found.states()) == (2, ["creating", "creating"])
        assert found.liqo.names("rome") == names
        piece = found.liqo.pieces[names[0]]
        assert piece.namespace == "tenant-of-rome"
        assert piece.manifest["metadata"]["labels"] == {
            "liqo.io/remote-cluster-id": "rome",
            "liqo.io/remoteID": "rome",
            "liqo.io/replication": "true",
            GROUP_LABEL: "STANDARD",
        }
        assert piece.manifest["metadata"]["annotations"] == {"liqo.io/create-virtual-node": "true"}
        assert piece.manifest["spec"] == {"class": "default", "providerClusterID": "rome", "resources": NODE}
        found.step(6)
        assert found.states() == ["creating", "creating"]
        found.step(4)
        assert found.states() == ["running", "running"]
        assert piece.marked == (f"liqo://{names[0]}", {GROUP_LABEL: "STANDARD"})


def test_names_are_good_for_nodes_and_labels() -> None:
    with bench(cluster("r" * 63)) as found:
        first, second = found.service.increase("STANDARD", 2)
        assert first != second
        assert len(first) == 63


def test_the_maximum_is_kept() -> None:
    with bench(cluster("rome", 9), groups=(group(max_size=2),)) as found:
        found.service.increase("STANDARD", 1)
        with pytest.raises(AboveMaximum, match="3 is above its maximum 2"):
            found.service.increase("STANDARD", 2)
        assert found.size() == 1


def test_without_a_cluster_nothing_is_reserved() -> None:
    with bench(cluster("rome", 1)) as found:
        with pytest.raises(NoCapacity, match="no cluster for 1 of 2: rome: too little is free: cpu 0 of 2"):
            found.service.increase("STANDARD", 2)
        assert (found.size(), found.liqo.pieces) == (0, {})
        found.catalog.down = True
        with pytest.raises(Retryable, match="discovery"):
            found.service.increase("STANDARD", 1)
        assert found.size() == 0


def test_what_slices_hold_is_not_promised_twice() -> None:
    with bench(cluster("rome", 3)) as found:
        found.service.increase("STANDARD", 2)
        with pytest.raises(NoCapacity):
            found.service.increase("STANDARD", 2)
        found.service.increase("STANDARD", 1)


def test_what_is_free_bounds_what_is_shared() -> None:
    with bench(cluster("rome", 4, free=amounts({"cpu": "4", "memory": "64Gi", "pods": "500"})), starting=60) as found:
        found.service.increase("STANDARD", 1)
        machines = found.service.view().of_cluster("rome")
        left = available(found.catalog.listed[0], machines)
        assert left == amounts({"cpu": "2", "memory": "6Gi", "pods": "330"})
        found.step(60)
        found.step()
        left = available(found.catalog.listed[0], found.service.view().of_cluster("rome"))
        assert left == amounts({"cpu": "4", "memory": "6Gi", "pods": "330"})


def test_a_machine_is_given_back_and_leaves_when_liqo_has_drained_it() -> None:
    with bench(ROME, draining=4) as found:
        found.liqo.add("rome-1", "STANDARD", "rome")
        assert isinstance(found.service.remove("STANDARD", "liqo://rome-1"), Accepted)
        assert (found.size(), found.states()) == (0, ["deleting"])
        assert isinstance(found.service.remove("STANDARD", "rome-1"), Accepted)
        assert found.service.group_of("rome-1") is None
        found.step(4)
        assert found.states() == []
        assert isinstance(found.service.remove("STANDARD", "rome-1"), AlreadyGone)


def test_what_has_gone_is_remembered_over_a_restart(tmp_path: Path) -> None:
    with bench(ROME, database=str(tmp_path / "db")) as found:
        found.liqo.add("rome-1", "STANDARD", "rome")
        found.service.remove("STANDARD", "rome-1")
        found.restart()
        found.step(10)
        assert isinstance(found.service.remove("STANDARD", "rome-1"), AlreadyGone)
        assert isinstance(found.service.remove("STANDARD", "rome-2"), Refused)
        found.step(8 * 24 * 3600)
        assert isinstance(found.service.remove("STANDARD", "rome-1"), Refused)


def test_the_minimum_is_kept() -> None:
    with bench(ROME, groups=(group(min_size=1),)) as found:
        found.liqo.add("rome-1", "STANDARD", "rome")
        refused = found.service.remove("STANDARD", "rome-1")
        assert refused == Refused(Refusal.BELOW_MINIMUM, "group STANDARD must keep 1, 0 would be left")
        assert found.liqo.remaining() == ["rome-1"]


def test_a_machine_that_failed_does_not_keep_the_minimum() -> None:
    with bench(ROME, cluster("milan", price="0"), groups=(group(min_size=1),)) as found:
        found.liqo.add("rome-1", "STANDARD", "rome")
        found.liqo.denied["milan"] = "Resources"
        found.service.increase("STANDARD", 1)
        found.step()
        refused = found.service.remove("STANDARD", "rome-1")
        assert refused == Refused(Refusal.BELOW_MINIMUM, "group STANDARD must keep 1, 0 would be left")


def test_nodes_of_others_are_not_touched() -> None:
    with bench(ROME, groups=(group(), group("OTHER"))) as found:
        found.liqo.add("rome-1", "OTHER", "rome")
        found.liqo.strangers["theirs"] = ""
        refused = Refused(Refusal.NOT_IN_GROUP, "rome-1 is of group OTHER")
        assert found.service.remove("STANDARD", "rome-1") == refused
        absent = found.service.remove("STANDARD", "theirs")
        assert absent == Refused(Refusal.NOT_IN_GROUP, "no machine of group STANDARD is called 'theirs'")
        assert found.service.group_of("theirs") is None
        for verb in (found.service.group, lambda name: found.service.remove(name, "rome-1")):
            with pytest.raises(UnknownGroup, match="no group 'NONE'; the groups are STANDARD, OTHER"):
                verb("NONE")


@pytest.mark.parametrize(("kind", "code"), [("Resources", "OUT_OF_RESOURCES"), ("Authentication", "DENIED")])
def test_a_denied_slice_is_shown_and_then_given_back(kind: str, code: str) -> None:
    with bench(ROME, draining=0) as found:
        found.liqo.denied["rome"] = kind
        [name] = found.service.increase("STANDARD", 1)
        found.step()
        [machine] = found.service.view().members("STANDARD")
        assert machine.error is not None
        assert (machine.state.value, machine.error.code) == ("creating", code)
        assert machine.error.message == f"cluster rome denied it ({kind}): Full: no more today"
        assert machine.error.out_of_resources == (kind == "Resources")
        assert found.size() == 1
        found.step(59)
        assert found.size() == 1
        found.step(1)
        found.step()
        assert (found.size(), found.liqo.remaining()) == (0, [])
        assert isinstance(found.service.remove("STANDARD", name), AlreadyGone)


def test_a_failed_machine_can_be_given_back_below_the_minimum() -> None:
    with bench(ROME, groups=(group(min_size=1),)) as found:
        found.liqo.denied["rome"] = "Resources"
        [name] = found.service.increase("STANDARD", 1)
        assert isinstance(found.service.remove("STANDARD", name), Accepted)


def test_a_cluster_that_fails_is_left_alone_for_longer_each_time() -> None:
    assert [rest(count) for count in (1, 2, 3, 99)] == [dt.timedelta(minutes=one) for one in (1, 2, 4, 30)]
    with bench(ROME, cluster("milan", price="99"), draining=0) as found:
        found.liqo.denied["milan"] = "Resources"
        found.service.increase("STANDARD", 1)
        found.step()
        found.service.increase("STANDARD", 1)
        assert len(found.liqo.names("rome")) == 1
        found.step(61)
        found.catalog.listed = [one for one in found.catalog.listed if one.name == "milan"]
        found.service.increase("STANDARD", 1)
        found.step()
        found.clock.advance(100)
        with pytest.raises(NoCapacity, match="milan: it failed 2 times in a row and is left alone until 2024"):
            found.service.increase("STANDARD", 1)


def test_a_cluster_that_delivers_is_trusted_again() -> None:
    with bench(ROME) as found:
        found.store.failed("rome", found.clock.now() - dt.timedelta(hours=1))
        found.service.increase("STANDARD", 1)
        found.step()
        found.step()
        assert (found.states(), found.store.failures()) == (["running"], {})


def test_what_does_not_run_in_time_is_given_back() -> None:
    with bench(ROME, accepting=10_000, draining=0) as found:
        found.service.increase("STANDARD", 1)
        found.step(899)
        assert found.errors() == []
        found.step(1)
        [machine] = found.service.view().members("STANDARD")
        assert machine.error is not None
        assert machine.error.message.endswith("in time: cluster rome has not accepted its slice")
        found.step(60)
        found.step()
        assert (found.size(), found.store.failures()["rome"].count) == (0, 1)


def test_a_slice_that_cannot_be_made_now_is_made_later() -> None:
    with bench(ROME) as found:
        found.liqo.refusing = [Retryable("no connection")]
        [name] = found.service.increase("STANDARD", 1)
        assert (found.size(), found.liqo.names("rome")) == (1, [])
        found.step()
        assert found.liqo.names("rome") == [name]


def test_a_slice_that_is_refused_for_good_is_a_failure() -> None:
    with bench(ROME) as found:
        found.liqo.refusing = [Forbidden("create resourceslice: forbidden (403)"), Permanent("invalid (422)")]
        found.service.increase("STANDARD", 1)
        found.step()
        [machine] = found.service.view().members("STANDARD")
        assert machine.error is not None
        assert (machine.error.code, machine.error.message) == ("REFUSED", "invalid (422)")
        found.step(60)
        assert found.size() == 0


def test_a_reservation_is_given_back_before_its_slice_is_there() -> None:
    with bench(ROME) as found:
        found.liqo.peers.clear()
        found.peers = True
        found.catalog.listed = [cluster("rome", kubeconfig="its")]
        found.restart()
        [name] = found.service.increase("STANDARD", 1)
        assert (found.states(), set(found.upkeep.step().awaited)) == (["creating"], {"rome"})
        assert isinstance(found.service.remove("STANDARD", name), Deleted)
        found.liqo.peers.add("rome")
        found.step()
        assert (found.size(), found.liqo.pieces) == (0, {})


def test_without_a_peering_a_cluster_is_of_use_only_where_one_can_be_made() -> None:
    with bench(ROME) as found:
        found.liqo.peers.clear()
        with pytest.raises(NoCapacity, match="no peering with it, and no --liqoctl to make one"):
            found.service.increase("STANDARD", 1)
        found.peers = True
        found.restart()
        with pytest.raises(NoCapacity, match="no peering with it, and no kubeconfig to make one"):
            found.service.increase("STANDARD", 1)


@pytest.mark.parametrize("kept", [True, False], ids=["with its database", "without it"])
def test_everything_is_found_again_after_a_restart(kept: bool, tmp_path: Path) -> None:
    with bench(ROME, database=str(tmp_path / "db"), accepting=5) as found:
        found.liqo.add("rome-1", "STANDARD", "rome")
        found.service.increase("STANDARD", 2)
        found.service.remove("STANDARD", "rome-1")
        if not kept:
            found.database = str(tmp_path / "another")
        found.restart()
        assert sorted(found.states()) == ["creating", "creating", "deleting"]
        found.step(5)
        found.step()
        assert (found.states(), found.size()) == (["running", "running"], 2)


@pytest.mark.parametrize("answered", [True, False], ids=["made", "not made"])
def test_a_reservation_outlives_the_process(answered: bool, tmp_path: Path) -> None:
    """The process was killed after it wrote the reservation: before the slice was made, or before that was written."""
    with bench(ROME, database=str(tmp_path / "db")) as found:
        found.liqo.refusing = [Retryable("killed")]
        [name] = found.service.increase("STANDARD", 1)
        if answered:
            found.liqo.add(name, "STANDARD", "rome")
        found.restart()
        assert found.size() == 1
        found.step()
        found.step()
        assert (found.states(), found.liqo.names("rome")) == (["running"], [name])


def test_a_slice_that_somebody_else_deletes_is_no_machine_any_more() -> None:
    with bench(ROME) as found:
        [name] = found.service.increase("STANDARD", 1)
        del found.liqo.pieces[name]
        assert found.size() == 0
        found.step()
        assert isinstance(found.service.remove("STANDARD", name), AlreadyGone)


def test_a_machine_that_ran_is_kept_whatever_becomes_of_its_node(tmp_path: Path) -> None:
    """Liqo's virtual kubelet may register its Node anew, which is then not Ready for a moment."""
    with bench(ROME, database=str(tmp_path / "db")) as found:
        [name] = found.service.increase("STANDARD", 1)
        found.step()
        found.step()
        found.liqo.pieces[name].marked = ("", {})
        found.liqo.unready.add(name)
        found.step(24 * 3600)
        found.step(60)
        assert (found.states(), found.errors(), found.liqo.remaining()) == (["running"], [], [name])
        found.liqo.unready.clear()
        found.step()
        assert found.liqo.pieces[name].marked[0] == f"liqo://{name}"


def test_a_node_to_which_liqo_gave_a_provider_id_keeps_it_and_gets_our_labels() -> None:
    with bench(ROME) as found:
        [name] = found.service.increase("STANDARD", 1)
        found.liqo.pieces[name].marked = ("liqo-made://1", {})
        found.step()
        assert found.liqo.pieces[name].marked == ("liqo-made://1", {GROUP_LABEL: "STANDARD"})
        assert found.states() == ["running"]


def test_an_old_slice_that_nothing_is_written_of_has_its_time_begin_anew() -> None:
    with bench(ROME, starting=10_000) as found:
        [name] = found.service.increase("STANDARD", 1)
        found.restart()
        found.step(5000)
        found.step(899)
        assert (found.errors(), found.liqo.remaining()) == ([], [name])
        found.step(1)
        assert found.errors() == ["NOT_READY_IN_TIME"]


def test_a_disk_that_is_gone_is_told_of(tmp_path: Path) -> None:
    with bench(ROME, database=str(tmp_path / "db")) as found:
        found.store.close()
        with pytest.raises(Retryable, match="database: "):
            found.service.increase("STANDARD", 1)
        assert found.liqo.pieces == {}
        found.start()


def test_groups_are_made_and_destroyed(tmp_path: Path) -> None:
    with bench(ROME, database=str(tmp_path / "db")) as found:
        found.service.create_group(group("NEW", max_size=2))
        with pytest.raises(Conflict, match="group NEW: there is one already"):
            found.service.create_group(group("NEW"))
        found.restart()
        assert list(found.service.groups()) == ["STANDARD", "NEW"]
        [name] = found.service.increase("NEW", 1)
        with pytest.raises(Conflict, match="group NEW: it has 1 machines"):
            found.service.destroy_group("NEW")
        found.service.remove("NEW", name)
        found.step(4)
        found.service.destroy_group("NEW")
        assert list(found.service.groups()) == ["STANDARD"]
        with pytest.raises(Conflict, match="defined in the configuration"):
            found.service.destroy_group("STANDARD")


def test_a_count_of_nothing_is_wrong_use() -> None:
    with bench(ROME) as found, pytest.raises(UsageError, match="count: expected 1 or more, got 0"):
        found.service.increase("STANDARD", 0)


def test_an_api_server_that_is_away_is_told_of() -> None:
    found = Bench(ROME)
    found.liqo.down = True
    for verb in (found.service.view, lambda: found.service.increase("STANDARD", 1), found.upkeep.step):
        with pytest.raises(Retryable, match="no connection to the API server"):
            verb()
    found.store.close()


def test_patience_is_configured() -> None:
    found = Bench(ROME, accepting=100, draining=0)
    found.patience = Patience(provision=dt.timedelta(seconds=5), shown=dt.timedelta(0))
    found.restart()
    found.service.increase("STANDARD", 1)
    found.step(5)
    found.step()
    found.step()
    assert found.size() == 0
    found.store.close()


def test_a_cluster_that_cannot_be_reached_is_not_ordered_from() -> None:
    with bench(ROME, cluster("milan", price="99")) as found:
        found.liqo.unreachable = {"rome", "milan"}
        with pytest.raises(NoCapacity, match="rome: its API server cannot be reached; milan: its API server"):
            found.service.increase("STANDARD", 1)
        found.liqo.unreachable = {"milan"}
        [name] = found.service.increase("STANDARD", 1)
        assert found.liqo.names("rome") == [name]


def test_a_reservation_waits_for_a_cluster_that_cannot_be_reached_and_no_peering_is_made_for_it() -> None:
    with bench(ROME) as found:
        found.liqo.refusing = [Retryable("no connection")]
        [name] = found.service.increase("STANDARD", 1)
        found.liqo.unreachable = {"rome"}
        assert (found.upkeep.step().awaited, found.liqo.names("rome")) == (frozenset(), [])
        found.liqo.unreachable.clear()
        found.step()
        assert found.liqo.names("rome") == [name]


def test_a_machine_that_comes_after_its_time_loses_its_error() -> None:
    with bench(ROME, accepting=900, starting=30) as found:
        found.service.increase("STANDARD", 1)
        found.step(900)
        assert found.errors() == ["NOT_READY_IN_TIME"]
        found.step(30)  # its Node is Ready, and marked
        found.step()
        assert (found.states(), found.errors()) == (["running"], [])
        found.step(3600)
        found.restart()
        assert (found.states(), found.errors(), found.store.failures()) == (["running"], [], {})


def test_a_machine_whose_error_an_older_version_kept_loses_it() -> None:
    with bench(ROME) as found:
        [name] = found.service.increase("STANDARD", 1)
        found.step()
        found.step()
        record = found.store.record(name)
        assert record is not None
        found.store.save(replace(record, error="DENIED", message="m", failed_at=found.clock.now()))
        assert found.errors() == ["DENIED"]
        found.step()
        assert (found.states(), found.errors()) == (["running"], [])


def test_a_machine_that_is_granted_after_a_denial_is_kept() -> None:
    """The provider's tenant was cordoned, and is not any more."""
    with bench(ROME, starting=300) as found:
        [name] = found.service.increase("STANDARD", 1)
        found.liqo.denied["rome"] = "Resources"
        found.step()
        assert found.errors() == ["OUT_OF_RESOURCES"]
        found.liqo.denied.clear()
        found.step(30)
        assert (found.states(), found.errors()) == (["creating"], [])
        found.step(60)
        found.step(210)
        found.step()
        assert (found.states(), found.errors(), found.liqo.remaining()) == (["running"], [], [name])


def test_a_group_names_the_class_of_its_slices() -> None:
    with bench(ROME, groups=(group(slice_class="gold"),)) as found:
        [name] = found.service.increase("STANDARD", 1)
        assert found.liqo.pieces[name].manifest["spec"]["class"] == "gold"
