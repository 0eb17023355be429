"""A plan with what the cluster's daemon remembers: why nothing is drained now, cooldowns, owners that are set aside."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from predicates.kubelet import digest
from predicates.snapshot import Snapshot
from rescheduler import cli
from rescheduler.cli.console import rendered
from rescheduler.cli.plan_data import FromDaemon, daemon_of, of_the_named, read_and_plan
from rescheduler.cli.plan_page import glance
from rescheduler.clock import SystemClock
from rescheduler.draining.actions import ANNOTATION, Intent, Step
from rescheduler.errors import NotFound
from rescheduler.housekeeping.command_reads import Installation, InstallationStatus
from rescheduler.planning.debts import Debt, OpenDebt
from rescheduler.planning.memory import Memory, StoredSettings
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.movements import ControllerMoves, Move, Movements, NotRecovered, OwnerWait
from rescheduler.planning.pauses import PAUSE_REASON, PAUSED
from rescheduler.planning.policy import Policy
from rescheduler.planning.pools import PoolLosses
from rescheduler.planning.refusals import KindLabels, KubeletRefusal, KubeletRefusals, refusing_nodes
from rescheduler.planning.waits import Waits
from rescheduler.settings import ApiServerConnection, NamedInstallation, Provider
from tests.cli.test_installations import Installations, edge, run
from tests.housekeeping.test_landings import WEB
from tests.planning.builders import NOW, ON_DEMAND, Manifest, node, pod, snapshot

__all__ = ["edge", "run"]

OURS = InstallationStatus(NOW, Installation("spot-rescheduler", "lease", "memory"))


def waiting(**memory: Any) -> InstallationStatus:
    return replace(OURS, memory=Memory(**memory))


HELD: dict[str, tuple[InstallationStatus, str]] = {
    "nothing": (waiting(), ""),
    "no memory": (OURS, ""),
    "the drain delay": (
        waiting(drained_at=NOW - timedelta(minutes=4), settings=StoredSettings(600.0)),
        "drain-delay: the drain delay runs until 2026-01-01T12:06:00Z",
    ),
    "another drain delay": (waiting(drained_at=NOW - timedelta(minutes=4), settings=StoredSettings(180.0)), ""),
    "a drain delay that is not known": (waiting(drained_at=NOW - timedelta(minutes=4)), ""),
    "a delay that is over": (waiting(drained_at=NOW - timedelta(minutes=11), settings=StoredSettings(600.0)), ""),
    "a closed window": (
        waiting(settings=StoredSettings(drain_windows=("Sat 01:00-02:00",))),
        "outside-drain-window: no drain window is open; the next one opens at",
    ),
    "an open window": (waiting(settings=StoredSettings(drain_windows=("Sat 01:00-02:00", "11:00-13:00"))), ""),
    "a window of a newer version": (waiting(settings=StoredSettings(drain_windows=("cron 5 4",))), ""),
    "owed pods for longer than the landing timeout": (
        waiting(
            debts=(OpenDebt("od", NOW - timedelta(minutes=3), Debt(WEB, 1, 1)),),
            settings=StoredSettings(landing_timeout=60.0),
        ),
        "",
    ),
    "owed pods": (
        waiting(debts=(OpenDebt("od", NOW, Debt(WEB, 1, 1)),)),
        "landing-pending: replacement pods are owed to",
    ),
    "a drain": (replace(OURS, drains={"od-1": None}), "node od-1 is being drained"),
}


@pytest.mark.parametrize(("status", "why"), HELD.values(), ids=HELD)
def test_the_state_says_why_nothing_is_drained(status: InstallationStatus, why: str) -> None:
    said = status.why_nothing_is_drained()
    assert (said.startswith(why), bool(said)) == (True, bool(why))


class Source:
    """A source of the cluster, in memory."""

    creators = False

    def __init__(self, cluster: Snapshot) -> None:
        self._cluster = cluster

    def read(self) -> Snapshot:
        return self._cluster

    def assumptions(self, *_: object) -> tuple[str, ...]:
        return ()

    def of_replacements(self, _: Snapshot) -> tuple[str, ...]:
        return ()

    def incomplete(self, _: Snapshot) -> str:
        return ""


def planned(daemon: InstallationStatus | None, *objects: Manifest, **fields: Any) -> Any:
    cluster = snapshot([node("od", ON_DEMAND, **fields), node("spot"), pod("web-1", "od"), *objects])
    source: Any = Source(cluster)
    return read_and_plan(source, Policy(), PriceList(), Provider(), SystemClock(), daemon=daemon)


def reasons(cluster: Any) -> list[str]:
    return [str(blocker.reason) for verdict in cluster.planning.rejected for blocker in verdict.blockers]


DEPLOYMENT: list[Manifest] = [
    {
        "kind": "ReplicaSet",
        "metadata": {
            "name": "web",
            "namespace": "default",
            "uid": "uid-of-web",
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop", "uid": "d", "controller": True}
            ],
        },
    },
    {"kind": "Deployment", "metadata": {"name": "shop", "namespace": "default", "uid": "d"}, "spec": {"replicas": 1}},
]


@pytest.mark.parametrize(
    ("moved", "limit", "expected"),
    [
        pytest.param({"returns": 1, "until": timedelta(hours=1)}, 3.0, ["moved-recently"], id="pods that returned"),
        pytest.param({"returns": 1, "until": timedelta(hours=-1)}, 3.0, [], id="a wait that is over"),
        pytest.param({}, 1.0, ["moved-recently"], id="as often as is allowed in a day"),
        pytest.param({}, 3.0, [], id="less often than is allowed"),
        pytest.param({}, None, [], id="a limit that is not known"),
    ],
)
def test_controllers_that_were_moved_recently_are_those_of_the_daemon(
    moved: dict[str, Any], limit: float | None, expected: list[str]
) -> None:
    now = SystemClock().now()
    until = now + moved["until"] if "until" in moved else None
    record = ControllerMoves((Move(now - timedelta(hours=1), 1),), returns=moved.get("returns", 0), until=until)
    daemon = waiting(movements=Movements({"default/d": record}), settings=StoredSettings(moves_per_pod=limit))
    assert reasons(planned(daemon, *DEPLOYMENT)) == expected


@pytest.mark.parametrize(("elsewhere", "expected"), [("spot", []), ("", []), (None, ["moved-recently"])])
def test_the_pods_of_a_controller_on_other_nodes_count_as_its_replicas(
    elsewhere: str | None, expected: list[str]
) -> None:
    """How many pods a Job wants is not known. The daemon counts those that there are."""
    job = {"kind": "Job", "metadata": {"name": "run", "namespace": "default", "uid": "uid-of-run"}}
    pods = [pod(name, on, owner="Job") for name, on in (("run-1", "od"), ("run-2", elsewhere)) if on is not None]
    record = ControllerMoves((Move(SystemClock().now() - timedelta(hours=1), 1),))
    daemon = waiting(movements=Movements({"default/uid-of-run": record}), settings=StoredSettings(moves_per_pod=1.0))
    assert reasons(planned(daemon, job, *pods)) == expected


def test_the_pods_of_all_replica_sets_of_a_deployment_count() -> None:
    """Two of its pods are on the node, so a move last hour leaves no room for both within a limit of one a day."""
    replica_set, shop = DEPLOYMENT
    second = {**replica_set, "metadata": {**replica_set["metadata"], "name": "new", "uid": "uid-of-new"}}
    cluster = [replica_set, second, {**shop, "spec": {"replicas": 2}}, pod("new-1", "od")]
    record = ControllerMoves((Move(SystemClock().now() - timedelta(hours=1), 1),))
    daemon = waiting(movements=Movements({"default/d": record}), settings=StoredSettings(moves_per_pod=1.0))
    assert reasons(planned(daemon, *cluster)) == ["moved-recently"]


def test_nodes_that_a_daemon_drains_are_known() -> None:
    def marked(step: Step, identity: str = OURS.installation.identity) -> dict[str, str]:
        return {ANNOTATION: Intent("pod-1", step, NOW, identity=identity).dump()}

    found = {
        (daemon is not None, step): reasons(planned(daemon, annotations=marked(step)))
        for daemon in (None, waiting())
        for step in (Step.DRAINING, Step.REMOVING)
    }
    assert found == {
        (False, Step.DRAINING): ["other-installation"],
        (False, Step.REMOVING): ["being-drained-by-another", "other-installation"],
        (True, Step.DRAINING): ["being-drained-by-another"],
        (True, Step.REMOVING): ["being-drained-by-another"],
    }
    assert reasons(planned(waiting(), annotations=marked(Step.DRAINING, "other/lease"))) == ["other-installation"]


def test_cooldowns_and_owners_that_are_set_aside_are_those_of_the_daemon() -> None:
    later = SystemClock().now() + timedelta(hours=1)
    aside = NotRecovered({"default/ReplicaSet/web": OwnerWait(1, later)})
    pools = PoolLosses().observed({}, {"a/no-instance-type": 1}, SystemClock().now(), Waits().pool)
    found = [
        reasons(planned(daemon)) for daemon in (None, waiting(), waiting(not_recovered=aside), waiting(pools=pools))
    ]
    assert found == [[], [], ["not-recovered"], ["spot-pool-settling"]]


def test_what_kubelets_have_refused_is_that_of_the_daemon() -> None:
    """The daemon remembers it for a day, of pods of this template and such nodes. Of one full node, for minutes."""
    web = digest(snapshot([pod("web-1", "od")]).pods["default/web-1"].cls)
    kind = refusing_nodes(node("spot")["metadata"]["labels"], Policy(), "SysctlForbidden")
    now, day = SystemClock().now(), timedelta(hours=24)

    def refused(
        pods: str = web, labels: KindLabels = kind, ago: timedelta = timedelta(), why: str = "SysctlForbidden"
    ) -> list[str]:
        refusal = KubeletRefusal(WEB, pods, labels, "spot", why, now - ago)
        return reasons(planned(waiting(refusals=KubeletRefusals().noted(refusal))))

    assert refused() == ["kubelet-refused"]
    assert refused(ago=day) == refused("another template") == refused(labels=(("pool", "another"),)) == []
    without_name = kind, timedelta(hours=23), "OutOfpods"
    assert refused(web, *without_name) == ["kubelet-refused"]
    named = (*kind, ("kubernetes.io/hostname", "spot"))
    assert refused(web, named, timedelta(minutes=9), "OutOfpods") == ["kubelet-refused"]
    assert refused(web, named, timedelta(minutes=10), "OutOfpods") == []


def test_the_first_line_says_that_nothing_is_drained_now() -> None:
    cluster = planned(waiting(drained_at=NOW, settings=StoredSettings(600.0)))
    page = glance(cluster.overview(PriceList()), 80)
    assert rendered(page, 80).startswith("Nothing is drained now: drain-delay: the drain delay runs until")


@pytest.mark.parametrize("namespace", ["spot-rescheduler", "team-a"])
def test_a_daemon_that_holds_a_lease_is_asked(run: Installations, tmp_path: Path, namespace: str) -> None:
    run.lease(namespace, annotations={PAUSED: "true", PAUSE_REASON: "an upgrade"})
    connection = ApiServerConnection(kubeconfig=str(tmp_path / "kubeconfig"))
    for choice in (FromDaemon.IF_THERE, FromDaemon.YES):
        status = daemon_of(connection, choice, SystemClock())
        assert status is not None
        assert "an upgrade" in status.why_nothing_is_drained()
    assert daemon_of(connection, FromDaemon.NO, SystemClock()) is None


def test_without_a_daemon_only_a_demand_fails(run: Installations, tmp_path: Path) -> None:
    run.lease("spot-rescheduler", holder="")
    connection = ApiServerConnection(kubeconfig=str(tmp_path / "kubeconfig"))
    assert daemon_of(connection, FromDaemon.IF_THERE, SystemClock()) is None
    with pytest.raises(NotFound, match="no daemon holds Lease"):
        daemon_of(connection, FromDaemon.YES, SystemClock())


def test_a_named_daemon_is_required(run: Installations, tmp_path: Path) -> None:
    run.lease("spot-rescheduler")
    run.lease("team-a", annotations={PAUSED: "true", PAUSE_REASON: "an upgrade"})
    connection = ApiServerConnection(kubeconfig=str(tmp_path / "kubeconfig"))
    of_team = NamedInstallation("team-a")
    assert of_the_named(NamedInstallation(), FromDaemon.NO) is FromDaemon.NO
    assert of_the_named(of_team, FromDaemon.IF_THERE) is FromDaemon.YES
    status = daemon_of(connection, FromDaemon.YES, SystemClock(), of_team)
    assert status is not None
    assert "an upgrade" in status.why_nothing_is_drained()
    run.absent("shop")
    with pytest.raises(NotFound, match=r"shop.*; --namespace is that of the daemon: a plan covers all namespaces"):
        daemon_of(connection, FromDaemon.YES, SystemClock(), NamedInstallation("shop"))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("-n", "shop", "plan", "-f", "docs/sample.json.gz"), "expected a live cluster, because a file has no daemon"),
        (("plan", "-n", "shop", "--from-daemon=false"), "expected no --from-daemon=false"),
        (("-n", "shop", "explain", "web"), "-n: the command explain has no such flag"),
        (("--snapshot", "x", "status"), "--snapshot: the command status has no such flag"),
        (("--no-such", "plan"), "--no-such: the command plan has no such flag"),
    ],
)
def test_a_namespace_is_never_ignored(
    arguments: tuple[str, ...], says: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    error = capfd.readouterr().err
    assert (ended.value.code, error.count("\n"), says in error) == (2, 1, True)


def test_a_file_has_no_daemon(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["plan", "-f", "docs/sample.json.gz", "--from-daemon"])
    assert (ended.value.code, "expected a live cluster" in capfd.readouterr().err) == (2, True)
