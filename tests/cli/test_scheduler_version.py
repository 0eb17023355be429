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


def _kubelet(version: str) -> Any:
    old = node("old", SPOT)
    old["spec"]["unschedulable"] = True
    old["status"]["nodeInfo"] = {"kubeletVersion": version}
    return old


#: By name: more objects, flags, whether the node drains, and the warning.
RUNS: dict[str, tuple[list[Any], list[str], bool, str]] = {
    "nothing known: the newest rules": ([], [], False, ""),
    "file of 1.36": ([_server("v1.36.3")], [], True, ""),
    "file of 1.37": ([_server("v1.37.2")], [], False, ""),
    "flag 1.36": ([], ["--scheduler-version", "1.36"], True, ""),
    "flag 1.37": ([], ["--scheduler-version=1.37"], False, ""),
    "the flag counts more than the file": ([_server("v1.37.2")], ["--scheduler-version=v1.36.1"], True, ""),
    "newer than known": (
        [_server("v1.52.0")],
        [],
        False,
        "kube-scheduler 1.52 is not known; the rules of 1.37 apply, the newest known version",
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
