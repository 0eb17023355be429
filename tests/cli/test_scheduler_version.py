"""Tests of the version of the scheduler: the flag, a version in the snapshot file, and unknown versions."""

import json
from pathlib import Path
from typing import Any

import pytest

from rescheduler.cli import main
from tests.conformance.builders import claim, storage_class, volume
from tests.planning.builders import ON_DEMAND, SPOT, budget, node, pod
from tests.predicates.volumes import CSI, mounting

#: A spot node that just came back: its CSINode does not have the driver yet, and the driver says that this matters.
CASE: list[Any] = [
    node("od", ON_DEMAND),
    node("spot", SPOT),
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": CSI},
        "spec": {"preventPodSchedulingIfMissing": True},
    },
    {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "spot"}, "spec": {"drivers": []}},
    storage_class("s", provisioner=CSI),
    volume("v"),
    claim("c", volume="v"),
    budget("b", "w", allowed=1),
]
WARNING = "rescheduler: warning: "
OLDER_KUBELETS = (
    "no version of the API server in the file: assuming kube-scheduler 1.37 (the newest kubelet is 1.36; see "
    "--scheduler-version)"
)


def _with_volume() -> Any:
    moved = pod("w-1", "od")
    moved["spec"]["volumes"] = mounting("c")["spec"]["volumes"]
    return moved


def _server(version: str) -> Any:
    return {
        "apiVersion": "spot-rescheduler/v1",
        "kind": "ServerVersion",
        "metadata": {"name": "kubernetes"},
        "gitVersion": version,
    }


def _installed(name: str) -> Any:
    """Return the CSINode of a node on which the driver is registered."""
    spec = {"drivers": [{"name": CSI, "nodeID": name}]}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": name}, "spec": spec}


def _kubelet(version: str) -> Any:
    old = node("old", SPOT)
    old["spec"]["unschedulable"] = True
    old["status"]["nodeInfo"] = {"kubeletVersion": version}
    return old


#: By name: more objects, flags, whether the node drains, and the warning.
RUNS: dict[str, tuple[list[Any], list[str], bool, str]] = {
    "nothing known: the rules of the newest release": ([], [], False, ""),
    "file of 1.36": ([_server("v1.36.3")], [], True, ""),
    "file of 1.37": ([_server("v1.37.2")], [], False, ""),
    "flag 1.36": ([], ["--scheduler-version", "1.36"], True, ""),
    "flag 1.37": ([], ["--scheduler-version=1.37"], False, ""),
    "the flag counts more than the file": ([_server("v1.37.2")], ["--scheduler-version=v1.36.1"], True, ""),
    "newer than known": (
        [_server("v1.52.0")],
        [],
        False,
        "kube-scheduler 1.52 is not known; the rules of 1.38 apply, the newest known version",
    ),
    "older than known": (
        [],
        ["--scheduler-version=1.20"],
        True,
        "kube-scheduler 1.20 is not known; the rules of 1.34 apply, the oldest known version",
    ),
    "version of another form": (
        [_server("mine")],
        [],
        False,
        "the version of kube-scheduler is not known; the rules of 1.37 apply (--scheduler-version)",
    ),
    "the driver is on the on-demand node, 1.36": ([_installed("od"), _server("v1.36.3")], [], True, ""),
    "the driver is on the on-demand node, 1.37": ([_installed("od"), _server("v1.37.2")], [], False, ""),
    "older kubelets, no version": (
        [_kubelet("v1.36.3")],
        [],
        False,
        OLDER_KUBELETS,
    ),
    "older kubelets, known version": ([_kubelet("v1.36.3"), _server("v1.37.2")], [], False, ""),
}


@pytest.mark.parametrize(("more", "flags", "drains", "warning"), RUNS.values(), ids=RUNS)
def test_node_without_the_driver_is_a_target_until_1_36(
    more: list[Any],
    flags: list[str],
    drains: bool,
    warning: str,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    file = tmp_path / "list.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*CASE, _with_volume(), *more]}))
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--snapshot", str(file), "-o", "json", *flags])
    out, err = capfdbinary.readouterr()
    [planned] = json.loads(out)["nodes"]
    assert (ended.value.code, planned["drainable"]) == (0, drains)
    assert [line for line in err.decode().splitlines() if "kube-scheduler" in line] == (
        [WARNING + warning] if warning else []
    )
    if not drains:
        assert "CSI driver is not installed on the node" in json.dumps(planned["blockers"])


@pytest.mark.parametrize("text", ["", "1", "latest", "2.0", "1.x"])
def test_flag_that_is_no_version_is_a_usage_error(text: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", f"--scheduler-version={text}"])
    err = capfdbinary.readouterr().err.decode()
    assert ended.value.code == 2
    assert "expected a version of kube-scheduler, such as 1.37" in err


def _rehearsed(
    items: list[Any], change: str, output: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], *flags: str
) -> tuple[str, str]:
    """Return the output and the errors of ``plan --what-if`` on a file."""
    file = tmp_path / "list.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--snapshot", str(file), "-o", output, "--what-if", change, *flags])
    out, err = capfdbinary.readouterr()
    assert ended.value.code == 0
    return out.decode(), err.decode()


#: The version of the cluster, the other one → whether the node drains then; None: nothing changes.
REHEARSALS: dict[str, tuple[str, str, bool | None]] = {
    "the upgrade that rejects": ("v1.36.3", "1.37", False),
    "the way back": ("v1.37.2", "v1.36.1", True),
    "an upgrade without a difference": ("v1.35.1", "1.36", None),
    "the same version": ("v1.37.2", "1.37", None),
}


@pytest.mark.parametrize(("server", "other", "drains"), REHEARSALS.values(), ids=REHEARSALS)
def test_a_rehearsal_lists_the_verdicts_that_another_version_changes(
    server: str, other: str, drains: bool | None, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    items = [*CASE, _with_volume(), pod("x-1", "od"), _server(server)]
    out, err = _rehearsed(items, f"scheduler {other}", "json", tmp_path, capfdbinary)
    assert "not known" not in err
    result = json.loads(out)["what_if"]["scheduler"]
    assert result["version"] == ".".join(other.removeprefix("v").split(".")[:2])
    if drains is None:
        assert (result["nodes"], result["pods"]) == ([], [])
        return
    why = f"NodeVolumeLimits: {CSI} CSI driver is not installed on the node"
    rejected, accepted = ({}, {"spot": why}) if drains else ({"spot": why}, {})
    assert result["pods"] == [{"pod": "default/w-1", "node": "od", "rejected_by": rejected, "accepted_by": accepted}]
    [changed] = result["nodes"]
    assert (changed["node"], changed["drainable"]) == ("od", drains)
    assert [(each["pod"], each["reason"]) for each in changed["why"]] == [("default/w-1", "no-room-on-spot")]


@pytest.mark.parametrize(
    ("server", "other", "title"),
    [
        ("v1.36.3", "1.37", "Pods that fewer spot nodes accept: 1"),
        ("v1.37.2", "1.36", "Pods that more spot nodes accept: 1"),
        ("v1.34.0", "1.35", "The verdicts on all pods and nodes are the same by these rules."),
    ],
)
def test_the_page_of_a_rehearsal_says_what_changes_and_why(
    server: str, other: str, title: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    out, _ = _rehearsed([*CASE, _with_volume(), _server(server)], f"scheduler {other}", "table", tmp_path, capfdbinary)
    assert title in out
    if "Pods" in title:
        assert "CSI driver is not installed on the node" in out


def test_a_rehearsal_of_an_unknown_version_says_which_rules_apply(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    items = [*CASE, _with_volume(), _server("v1.36.3")]
    out, err = _rehearsed(items, "scheduler 1.52", "json", tmp_path, capfdbinary)
    note = "kube-scheduler 1.52 is not known; the rules of 1.38 apply, the newest known version"
    assert err.splitlines().count(WARNING + note) == 1
    assert json.loads(out)["what_if"]["scheduler"]["version"] == "1.38"


@pytest.mark.parametrize("flag", ["--what-if=scheduler 1.52", "--scheduler-version=1.52"])
def test_what_is_not_known_of_a_version_is_said_once(
    flag: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    _, err = _rehearsed([*CASE, _with_volume()], "scheduler 1.52", "table", tmp_path, capfdbinary, flag)
    assert err.count("kube-scheduler 1.52 is not known") == 1
