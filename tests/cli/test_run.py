"""Tests of ``rescheduler run``: how options become settings, and errors."""

import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rescheduler import cli
from rescheduler.housekeeping import composition
from rescheduler.planning.node_labels import NodeLabels
from rescheduler.planning.pauses import parse_window
from rescheduler.planning.policy import (
    DrainOrder,
    FallbackHeadroom,
    Leftovers,
    MoveJobs,
    Policy,
    Surging,
    namespace_scope,
)
from rescheduler.settings import (
    ApiServerConnection,
    ListenAddress,
    LogFormat,
    Logging,
    MakeRoom,
    Provider,
    RoomSettings,
    Running,
    Timing,
)

Given = tuple[ApiServerConnection, Policy, Running, Logging]


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove kubeconfigs, cluster credentials and options from the environment."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")


@pytest.fixture
def started_with(monkeypatch: pytest.MonkeyPatch) -> list[Given]:
    """Return the settings with which the daemon would be started."""
    settings: list[Given] = []

    def run(*arguments: Any) -> int:
        connection, policy, running, logs = arguments[:4]  # the prices have a test of their own, and so has the command
        settings.append((connection, policy, replace(running, plan_command=Running().plan_command), logs))
        return 0

    monkeypatch.setattr(composition, "run", run)
    return settings


def status(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    return int(caught.value.code or 0)


DEFAULT: Given = (ApiServerConnection(in_cluster=True), Policy(), Running(), Logging())


def test_the_defaults_are_the_documented_ones(started_with: list[Given]) -> None:
    assert status("run") == 0
    assert started_with == [DEFAULT]
    assert DEFAULT[2].timing == Timing(
        housekeeping_interval=timedelta(seconds=10),
        node_drain_delay=timedelta(minutes=10),
        pod_eviction_timeout=timedelta(minutes=2),
        pending_patience=timedelta(minutes=10),
        spot_settle=timedelta(minutes=10),
        spot_pool_cooldown=timedelta(minutes=10),
    )
    assert str(DEFAULT[2].listen) == "localhost:9235"
    assert str(DEFAULT[1].on_demand_label) == "node-role.kubernetes.io/worker"
    assert str(DEFAULT[1].spot_label) == "node-role.kubernetes.io/spot-worker"


#: The arguments of k8s-spot-rescheduler's own Deployment, and of old installations.
OLD_ARGUMENTS = (
    "-v=2 --running-in-cluster=true --namespace=kube-system --housekeeping-interval=10s --node-drain-delay=10m "
    "--pod-eviction-timeout=2m --max-graceful-termination=2m --listen-address=0.0.0.0:9235 "
    "--on-demand-node-label=node-role.kubernetes.io/worker --spot-node-label=node-role.kubernetes.io/spot-worker "
    "--delete-non-replicated-pods=false --logtostderr=true -stderrthreshold=INFO "
    "--kube-api-content-type=application/vnd.kubernetes.protobuf"
)


def test_old_argument_lists_work_unchanged(started_with: list[Given]) -> None:
    assert status(*OLD_ARGUMENTS.split()) == 0
    assert started_with == [
        (ApiServerConnection(in_cluster=True), Policy(), Running(listen=ListenAddress("0.0.0.0", 9235)), Logging(2))
    ]


CASES: dict[str, tuple[str, int, Any]] = {
    "labels": (
        "--on-demand-node-label=a/b=c --spot-node-label spot",
        1,
        Policy(on_demand_label=NodeLabels.parse("a/b=c"), spot_label=NodeLabels.parse("spot")),
    ),
    "a label with an empty value": ("--spot-node-label=spot=", 1, Policy(spot_label=NodeLabels.parse("spot="))),
    "disabled guards": (
        "--skip-nodes-with-local-storage=false --skip-nodes-with-system-pods=false --delete-non-replicated-pods",
        1,
        Policy(
            skip_nodes_with_local_storage=False, skip_nodes_with_system_pods=False, delete_non_replicated_pods=True
        ),
    ),
    "planning": (
        "--planning-timeout=500ms --min-on-demand-nodes=3 --allow-fragile-plans",
        1,
        Policy(planning_timeout=0.5, min_on_demand_nodes=3, allow_fragile_plans=True),
    ),
    "an order": (
        "--drain-order=cost --max-node-age=720h",
        1,
        Policy(drain_order=DrainOrder.COST, max_node_age=30 * 24 * 3600.0),
    ),
    "Jobs": ("--move-jobs=never", 1, Policy(move_jobs=MoveJobs.NEVER)),
    "the control plane": ("--allow-control-plane", 1, Policy(allow_control_plane=True)),
    "pods that return": ("--allow-returning-plans", 1, Policy(allow_returning_plans=True)),
    "all schedulers": ("--scheduler-name=*", 1, Policy(scheduler_names=())),
    "schedulers": (
        "--scheduler-name=default-scheduler --scheduler-name=mine",
        1,
        Policy(scheduler_names=("default-scheduler", "mine")),
    ),
    "one other scheduler": ("--scheduler-name=mine", 1, Policy(scheduler_names=("mine",))),
    "namespaces": (
        "--namespaces=web,shop --namespaces=ci --exclude-namespaces=data --namespace-selector=team,!critical",
        1,
        Policy(namespaces=namespace_scope(["web", "shop", "ci"], ["data"], "team,!critical")),
    ),
    "pools by default": (
        "", 1, Policy(spot_pool_labels=("topology.kubernetes.io/zone", "node.kubernetes.io/instance-type"))
    ),
    "leftovers": (
        "--leftovers=move --leftover-rest=12h",
        1,
        Policy(leftovers=Leftovers.MOVE, leftover_rest=12 * 3600),
    ),
    "headroom": ("--fallback-headroom=25%", 1, Policy(fallback_headroom=FallbackHeadroom(25))),
    "headroom for a pool": (
        "--fallback-headroom=largest-pool",
        1,
        Policy(fallback_headroom=FallbackHeadroom(largest_pool=True)),
    ),
    "a share per pool": ("--max-share-per-spot-pool=33%", 1, Policy(max_share_per_spot_pool=33)),
    "pools": (
        "--spot-pool-label=example.com/pool --spot-pool-label=zone --spot-pool-label=zone",
        1,
        Policy(spot_pool_labels=("example.com/pool", "zone")),
    ),
    "single replicas": ("--skip-single-replicas", 1, Policy(skip_single_replicas=True)),
    "grace periods": (
        "--max-graceful-termination=1h --shorten-grace-periods",
        1,
        Policy(max_graceful_termination=3600, shorten_grace_periods=True),
    ),
    "rolling updates": (
        "--surge=blocked --surge-max-replicas=5",
        1,
        Policy(surge=Surging.BLOCKED, surge_max_replicas=5),
    ),
    "windows": (
        "--drain-window=22:00-06:00 --drain-window=10:00-11:00",
        1,
        Policy(drain_windows=(parse_window("22:00-06:00"), parse_window("10:00-11:00"))),
    ),
    "a kubeconfig": ("--kubeconfig=k --context=c", 0, ApiServerConnection("k", "c", in_cluster=False)),
    "a context alone": ("--context=c", 0, ApiServerConnection(None, "c", in_cluster=False)),
    "a kubeconfig wins": ("--running-in-cluster --kubeconfig=k", 0, ApiServerConnection("k", in_cluster=False)),
    "the kubeconfig of kubectl": ("--running-in-cluster=false", 0, ApiServerConnection(in_cluster=False)),
    "the content type": ("--kube-api-content-type=application/json", 0, ApiServerConnection(in_cluster=True)),
    "a single dry-run round": ("--once --dry-run", 2, Running(once=True, dry_run=True)),
    "another namespace and Lease": (
        "--leader-elect --namespace=ops --lease-name=mover.eu --pod-name=mover-0",
        2,
        Running(namespace="ops", lease_name="mover.eu", pod_name="mover-0"),
    ),
    "no election": ("--leader-elect=false", 2, Running(leader_elect=False)),
    "the soft taint": ("--manage-soft-taint", 2, Running(manage_soft_taint=True)),
    "a provider": (
        "--cloud-provider=cloudpool --cloud-config=/c.json",
        2,
        Running(provider=Provider("cloudpool", Path("/c.json"))),
    ),
    "a provider's groups": (
        "--cloud-provider=spc --nodes=0:1:a --nodes=0:2:b --cluster-name=c",
        2,
        Running(provider=Provider("spc", None, ("0:1:a", "0:2:b"), "c")),
    ),
    "StackPointCloud by its first name": (
        "--cloud-provider=stackpointio",
        2,
        Running(provider=Provider("stackpointio")),
    ),
    "an IPv6 address": ("--listen-address=[::1]:80", 2, Running(listen=ListenAddress("::1", 80))),
    "every interface": ("--listen-address=:9235", 2, Running(listen=ListenAddress("", 9235))),
    "times": (
        "--housekeeping-interval=1m --node-drain-delay=0 --pending-patience=0 --spot-settle=0",
        2,
        Running(
            timing=Timing(timedelta(minutes=1), timedelta(), pending_patience=timedelta(), spot_settle=timedelta())
        ),
    ),
    "waits": (
        (
            "--landing-timeout=1s --failure-pause=1s --failure-pause-max=2s --node-cooldown=0 --node-cooldown-max=3s "
            "--return-wait=4s --return-wait-max=4s --max-moves-per-pod-per-day=0.5"
        ),
        2,
        Running(
            timing=Timing(
                landing_timeout=timedelta(seconds=1),
                failure_pause=timedelta(seconds=1),
                failure_pause_max=timedelta(seconds=2),
                node_cooldown=timedelta(),
                node_cooldown_max=timedelta(seconds=3),
                return_wait=timedelta(seconds=4),
                return_wait_max=timedelta(seconds=4),
                max_moves_per_pod_per_day=0.5,
            )
        ),
    ),
    "spot room": (
        "--make-room=placeholders --max-placeholders=7 --room-timeout=1m --placeholder-image=mirror.local/pause:1",
        2,
        Running(room=RoomSettings(MakeRoom.PLACEHOLDERS, 7, timedelta(minutes=1), "mirror.local/pause:1")),
    ),
    "the memory's name": ("--memory-name=mine", 2, Running(memory_name="mine")),
    "logs": ("-v=4 --log-format=json", 3, Logging(4, LogFormat.JSON)),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "part", "expected"), CASES.values(), ids=CASES)
def test_each_option_changes_only_its_setting(
    started_with: list[Given], arguments: str, part: int, expected: Any
) -> None:
    assert status("run", *arguments.split()) == 0
    assert started_with[0][part] == expected
    assert [value for n, value in enumerate(started_with[0]) if n != part] == [
        value for n, value in enumerate(DEFAULT) if n != part
    ]


def test_an_installation_is_identified_by_namespace_and_lease() -> None:
    assert Running().identity == "kube-system/k8s-spot-rescheduler"
    assert Running(namespace="ops", lease_name="mover").identity == "ops/mover"


def test_the_daemon_plans_with_its_timeouts() -> None:
    timing = Timing(pod_eviction_timeout=timedelta(minutes=5))
    assert composition.daemon_policy(Policy(min_on_demand_nodes=3), timing) == Policy(
        min_on_demand_nodes=3,
        budgets_in_steps=True,
        pod_eviction_timeout=300,
    )


def test_flags_take_precedence_over_the_environment(started_with: list[Given], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESCHEDULER_NODE_DRAIN_DELAY", "1h")
    monkeypatch.setenv("RESCHEDULER_DRY_RUN", "true")
    monkeypatch.setenv("RESCHEDULER_V", "3")
    monkeypatch.setenv("RESCHEDULER_ON_DEMAND_NODE_LABEL", "od=yes")
    monkeypatch.setenv("RESCHEDULER_POD_NAME", "mover-0")
    assert status("run", "-v=1") == 0
    _, policy, running, logs = started_with[0]
    assert running.pod_name == "mover-0"
    assert (running.timing.node_drain_delay, running.dry_run, logs) == (timedelta(hours=1), True, Logging(1))
    assert policy.on_demand_label == NodeLabels.parse("od=yes")


def test_several_labels_are_read_from_flags_and_from_the_environment(
    started_with: list[Given], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESCHEDULER_ON_DEMAND_NODE_LABEL", "a in (b, c); d=e,!f")
    flags = ("--spot-node-label=x", "--spot-node-label", "y notin (z)")
    assert status("run", *flags) == 0
    policy = started_with[0][1]
    assert policy.on_demand_label == NodeLabels.any_of(map(NodeLabels.parse, ("a in (b,c)", "d=e,!f")))
    assert policy.spot_label == NodeLabels.any_of(map(NodeLabels.parse, ("x", "y notin (z)")))


def test_windows_and_namespaces_are_read_from_the_environment(
    started_with: list[Given], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESCHEDULER_DRAIN_WINDOW", "Mon-Fri 09:00-17:00 Europe/Stockholm; Sat 10:00-12:00")
    monkeypatch.setenv("RESCHEDULER_EXCLUDE_NAMESPACES", "web,shop ci")
    assert status("run") == 0
    policy = started_with[0][1]
    assert [window.text for window in policy.drain_windows] == [
        "Mon-Fri 09:00-17:00 Europe/Stockholm",
        "Sat 10:00-12:00",
    ]
    assert policy.namespaces == namespace_scope((), ["web", "shop", "ci"])


WRONG: dict[str, tuple[str, str]] = {
    "an unknown flag": ("--nonsense", "--nonsense"),
    "an unknown flag with a single dash": ("-nonsense=1", "-n"),
    "a duration": ("--node-drain-delay=10", "'10': expected a duration such as 10s, 2m30s, 1h or 500ms"),
    "a negative duration": ("--node-drain-delay=-10s", "'-10s': expected a duration"),
    "an interval below the minimum": ("--housekeeping-interval=0", "'0': expected at least 100ms"),
    "a landing timeout below the minimum": ("--landing-timeout=999ms", "'999ms': expected at least 1s"),
    "a maximum below the first pause": (
        "--failure-pause-max=5m",
        "--failure-pause-max=5m is shorter than --failure-pause=10m",
    ),
    "a maximum below the first cooldown": (
        "--node-cooldown=3h",
        "--node-cooldown-max=2h is shorter than --node-cooldown=3h",
    ),
    "a maximum below the first wait": (
        "--return-wait=2s --return-wait-max=1s",
        "--return-wait-max=1s is shorter than --return-wait=2s",
    ),
    "a way to make room": ("--make-room=beds", "'beds' is not one of 'off', 'placeholders', 'provider'"),
    "no placeholders": ("--max-placeholders=0", "0 is not in the range 1<=x<=1000"),
    "too short a time for room": ("--room-timeout=0", "'0': expected at least 1s"),
    "no image": ("--placeholder-image=", "'': expected an image, such as registry.k8s.io/pause:3.10"),
    "room in one round": ("--once --make-room=placeholders", "--once --make-room=placeholders: expected a daemon"),
    "leftovers": ("--leftovers=all", "'all' is not one of 'off', 'plan', 'move'"),
    "too long a rest": ("--leftover-rest=721h", "'721h': expected at most 720h"),
    "moves": ("--max-moves-per-pod-per-day=often", "'often': expected a number such as 3 or 0.5"),
    "a negative number of moves": ("--max-moves-per-pod-per-day=-1", "'-1': expected a number such as 3 or 0.5"),
    "an infinite number of moves": ("--max-moves-per-pod-per-day=inf", "'inf': expected a number such as 3 or 0.5"),
    "a grace period below the minimum": ("--max-graceful-termination=0", "'0': expected at least 1s"),
    "a label": (
        "--spot-node-label=a=b=c",
        "node label 'a=b=c': expected key, key=value, key!=value or !key in label syntax, or several",
    ),
    "an empty label": (
        "--on-demand-node-label=",
        "node label '': expected key, key=value, key!=value or !key in label syntax, or several",
    ),
    "a boolean": ("--dry-run=maybe", "'maybe': expected true or false"),
    "the name of a Lease": ("--lease-name=Ours", "name 'Ours': expected lower-case letters, digits, '-' and '.'"),
    "the name of a Lease, with a namespace": ("--lease-name=a/b", "name 'a/b': expected lower-case letters"),
    "a name that is too long": (f"--lease-name={'a' * 254}", "expected lower-case letters"),
    "no name": ("--lease-name=", "name '': expected lower-case letters"),
    "a number": ("--min-on-demand-nodes=x", "'x' is not a valid integer"),
    "a negative number": ("--min-on-demand-nodes=-1", "-1 is not in the range x>=0"),
    "a verbosity": ("-v=high", "'high': expected an integer"),
    "equal labels": ("--on-demand-node-label=a=b --spot-node-label=a=b", "are both a=b: expected two labels"),
    "no scheduler": ("--scheduler-name=", "--scheduler-name: expected a name"),
    "another tool": ("--compat=descheduler", "is not 'k8s-spot-rescheduler'"),
    "an address": ("--listen-address=9235", "address '9235': expected host:port"),
    "a port": ("--listen-address=localhost:99999", "address 'localhost:99999': expected host:port"),
    "an address without brackets": ("--listen-address=::1:80", "address '::1:80': expected host:port"),
    "a provider": ("--cloud-provider=nowhere", "'nowhere' is not one of 'none'"),
    "a configuration file without a provider": ("--cloud-config=/x", "has nothing to configure"),
    "a missing value": ("--node-drain-delay", "requires an argument"),
    "an unexpected argument": ("extra", "unexpected extra argument"),
    "a missing kubeconfig": ("--kubeconfig=/no/such/file", "kubeconfig /no/such/file: no such file"),
    "not in a cluster": ("", "not in a cluster"),
    "neither cluster nor kubeconfig": ("--running-in-cluster=false", "no such file"),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG.values(), ids=WRONG)
def test_usage_errors_are_one_line_and_exit_code_2(
    arguments: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert status("run", *arguments.split()) == 2
    out, error = capfd.readouterr()
    assert out == ""
    assert error.startswith("rescheduler")
    assert message in error
    assert error.count("\n") == 1


def test_an_unreadable_kubeconfig_is_a_usage_error_without_secrets(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "config"
    broken.write_text("users: [{name: me, user: {token: very-secret")
    assert status("run", f"--kubeconfig={broken}") == 2
    error = capfd.readouterr().err
    assert error.startswith(f"rescheduler: kubeconfig {broken}: not YAML")
    assert error.count("\n") == 1
    assert "very-secret" not in error


def test_every_option_has_help(capfd: pytest.CaptureFixture[str]) -> None:
    """The help of every visible option has a description, the default and the environment variable."""
    assert status("run", "--help-all") == 0
    page = " ".join(capfd.readouterr().out.split())
    for name in ("NODE_DRAIN_DELAY", "SKIP_NODES_WITH_LOCAL_STORAGE", "V", "KUBECONFIG"):
        assert f"env var: RESCHEDULER_{name}" in page
    assert "default: 10m" in page
    assert "--logtostderr" not in page


def test_version_prints_the_version(capfd: pytest.CaptureFixture[str]) -> None:
    assert status("version") == 0
    version = capfd.readouterr().out
    assert version.startswith("rescheduler ")
    assert status("--version") == 0
    assert capfd.readouterr().out == version


#: The policy of k8s-spot-rescheduler.
COMPAT = Policy(
    skip_nodes_with_local_storage=False,
    skip_nodes_with_system_pods=False,
    allow_fragile_plans=True,
    allow_returning_plans=True,
    move_jobs=MoveJobs.ALWAYS,
    shorten_grace_periods=True,
    scheduler_names=(),
)
COMPAT_TIMING = Timing(wait_for_pending_pods=True, return_wait=timedelta(), max_moves_per_pod_per_day=0)
COMPATIBLE: Given = (ApiServerConnection(in_cluster=True), COMPAT, Running(timing=COMPAT_TIMING), Logging())


def test_no_argument_starts_the_daemon(started_with: list[Given]) -> None:
    assert status() == 0
    assert started_with == [DEFAULT]


@pytest.mark.parametrize(
    "arguments",
    [[], ["--context", "x"], ["--kubeconfig=/k"], ["--dry-run"], ["-v=2"], ["-n", "plan"]],
    ids=" ".join,
)
def test_nothing_starts_without_a_command_outside_of_a_cluster(
    started_with: list[Given],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    arguments: list[str],
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    assert status(*arguments) == 2
    out, err = capfd.readouterr()
    assert (started_with, out) == ([], "")
    assert f"only `{' '.join(['rescheduler', 'run', *arguments])}` starts the daemon" in err


def test_the_name_of_the_original_starts_the_daemon_anywhere(
    started_with: list[Given], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    monkeypatch.setattr(sys, "argv", ["k8s-spot-rescheduler", "--kubeconfig=/k", "--running-in-cluster=false"])
    with pytest.raises(SystemExit):
        cli.k8s_spot_rescheduler()
    assert len(started_with) == 1


BEFORE: dict[str, tuple[str, str]] = {
    "a global flag": ("--context x plan --help", "Usage: rescheduler plan "),
    "with an equals sign": ("--kubeconfig=/k status --help", "Usage: rescheduler status "),
    "a short flag": ("-n spot-rescheduler savings --help", "Usage: rescheduler savings "),
    "a flag of the command": ("--independent -f x plan --help", "Usage: rescheduler plan "),
    "a command of a group": ("--kubeconfig k liqo discovery --help", "Usage: rescheduler liqo discovery "),
    "a value that is a command": ("-n plan status --help", "Usage: rescheduler status "),
}


@pytest.mark.parametrize(("line", "usage"), BEFORE.values(), ids=BEFORE)
def test_flags_of_a_command_may_precede_it(capfd: pytest.CaptureFixture[str], line: str, usage: str) -> None:
    assert status(*line.split()) == 0
    assert capfd.readouterr().out.startswith(usage)


@pytest.mark.parametrize(("typo", "meant"), [("plna", "plan"), ("stauts", "status"), ("explian", "explain")])
def test_a_command_that_does_not_exist_is_an_error_with_the_nearest_one(
    capfd: pytest.CaptureFixture[str], typo: str, meant: str
) -> None:
    assert status(typo) == 2
    assert capfd.readouterr().err == f"rescheduler: No such command '{typo}'. Did you mean {meant}?\n"
    assert status("help", typo) == 2
    assert f"did you mean {meant}?" in capfd.readouterr().err


@pytest.mark.parametrize("group", ["provider", "liqo"])
def test_a_group_without_a_command_shows_its_help(group: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert status(group) == 2
    assert capfd.readouterr().err.startswith(f"Usage: rescheduler {group} [OPTIONS] COMMAND [ARGS]...\n\n")


def test_compat_changes_defaults(started_with: list[Given]) -> None:
    assert status("--compat=k8s-spot-rescheduler") == 0
    assert started_with == [COMPATIBLE]


def test_compat_is_read_from_the_environment(started_with: list[Given], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESCHEDULER_COMPAT", "k8s-spot-rescheduler")
    assert status("run") == 0
    assert started_with == [COMPATIBLE]


def test_flags_and_the_environment_override_compat(started_with: list[Given], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESCHEDULER_MOVE_JOBS", "never")
    flags = "--skip-nodes-with-system-pods --max-moves-per-pod-per-day=2 --scheduler-name=mine"
    assert status(*flags.split(), "--compat=k8s-spot-rescheduler") == 0
    connection, policy, running, logs = COMPATIBLE
    policy = replace(policy, skip_nodes_with_system_pods=True, move_jobs=MoveJobs.NEVER, scheduler_names=("mine",))
    running = replace(running, timing=replace(COMPAT_TIMING, max_moves_per_pod_per_day=2))
    assert started_with == [(connection, policy, running, logs)]


#: Arguments of the program k8s-spot-rescheduler → the command that is run.
ORIGINAL: dict[str, tuple[list[str], list[Given]]] = {
    "none": ([], [COMPATIBLE]),
    "glog's": (["-v=12", "-logtostderr"], [(*COMPATIBLE[:3], Logging(4))]),
    "its own deployment's": (
        ["-v=2", "--running-in-cluster=true", "--namespace=kube-system", "--housekeeping-interval=10s"],
        [(*COMPATIBLE[:3], Logging(2))],
    ),
    "its version": (["--version"], []),
}


@pytest.mark.parametrize(("arguments", "expected"), ORIGINAL.values(), ids=ORIGINAL)
def test_k8s_spot_rescheduler_is_an_alias_of_run(
    started_with: list[Given], monkeypatch: pytest.MonkeyPatch, arguments: list[str], expected: list[Given]
) -> None:
    monkeypatch.setattr(sys, "argv", ["k8s-spot-rescheduler", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.k8s_spot_rescheduler()
    assert caught.value.code == 0
    assert started_with == expected


@pytest.mark.parametrize(("text", "level"), [("-1", 0), ("0", 0), ("4", 4), ("9", 4), ("+2", 2)])
def test_any_verbosity_is_accepted(started_with: list[Given], text: str, level: int) -> None:
    assert status("run", f"-v={text}") == 0
    assert started_with[0][3] == Logging(level)


def test_an_unknown_command_is_a_usage_error(capfd: pytest.CaptureFixture[str]) -> None:
    assert status("drain") == 2
    assert "No such command 'drain'" in capfd.readouterr().err


def test_a_bug_is_reported_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(composition, "run", lambda *_: 1 / 0)
    assert status("run") == 1
    error = capfd.readouterr().err
    assert error.startswith("rescheduler: internal error: ZeroDivisionError: division by zero (test_run.py:")
    assert error.count("\n") == 1


def test_ctrl_c_ends_the_program_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(composition, "run", interrupted)
    assert status("run") == 130
    assert capfd.readouterr().err.strip() == "rescheduler: interrupted"


@pytest.mark.parametrize(
    ("arguments", "code"), [(("-nonsense",), 2), (("run", "--kubeconfig=/none"), 2), (("version",), 0)]
)
def test_a_process_exits_with_a_code_and_at_most_one_line(arguments: tuple[str, ...], code: int) -> None:
    """The shell gets an exit code and at most one line on standard error."""
    command = [sys.executable, "-m", "rescheduler", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr.count("\n")) == (code, int(code != 0))
