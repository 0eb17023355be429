"""The second collection of reports, as files: what ``rescheduler plan`` prints for each of them.

The files are beside a clone, in ``shared``; without them these tests are skipped.
"""

import json
from collections.abc import Sequence
from typing import Any, Final

import pytest

from tests import forking

FILES: Final = forking.ROOT.parent / "shared" / "field2"

pytestmark = pytest.mark.skipif(not FILES.is_dir(), reason="the collection is not beside this clone")

KEPT: Final = ""  #: by any reason
PLACED: Final[tuple[str, ...]] = ()

#: By file: the target of the pod that is asked about (or only that there is one), or the reason why the node stays.
VERDICTS: Final[dict[str, str | tuple[str, ...]]] = {
    "01-pod-os/input": KEPT,
    "01-pod-os/linux-pod-windows-spot": KEPT,
    "01-pod-os/with-node-selector": "pinned-to-on-demand",
    "01-pod-os/same-os": PLACED,
    "02-runtime-handler/input": KEPT,
    "02-runtime-handler/class-has-node-selector": KEPT,
    "02-runtime-handler/all-have-it": PLACED,
    "02-runtime-handler/not-reported": PLACED,
    "03-kubelet-features/host-users": KEPT,
    "03-kubelet-features/supplemental-groups": KEPT,
    "03-kubelet-features/supplemental-groups-merge": PLACED,
    "03-kubelet-features/if-possible": PLACED,
    "05-grace-period/input": "grace-period",
    "05-grace-period/short": PLACED,
    "06-mutual-zone-affinity/input": ("spot-c",),
    "06-mutual-zone-affinity/no-volume": PLACED,
    "06-mutual-zone-affinity/partner-on-spot": PLACED,
    "06-mutual-zone-affinity/spot-in-other-zone": KEPT,
    "06-mutual-zone-affinity/by-hostname": KEPT,
    "07-pause-pods-on-spot/input": PLACED,
    "07-pause-pods-on-spot/expendable": PLACED,
    "07-pause-pods-on-spot/same-priority": KEPT,
    "08-mountpoint-pods/input": PLACED,
    "08-mountpoint-pods/annotated": PLACED,
    "09-other-architecture/selector": "pinned-to-on-demand",
    "14-unsafe-sysctl/safe": PLACED,
    "18-daemonset-missing-on-spot/input": PLACED,
}


def plan(file: str, *arguments: str) -> tuple[int, str, str]:
    done = forking.run("plan", "--snapshot", str(FILES / f"{file}.json"), *arguments)
    return done.returncode, done.stdout, done.stderr


def as_json(file: str, *arguments: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(plan(file, *arguments, "-o", "json")[1])
    return made


def node(made: dict[str, Any]) -> dict[str, Any]:
    [found] = [each for each in made["nodes"] if each["node"] == "od-1"]
    return dict(found)


@pytest.mark.parametrize(("file", "right"), VERDICTS.items(), ids=VERDICTS)
def test_the_node_is_drained_or_kept(file: str, right: str | Sequence[str]) -> None:
    found = node(as_json(file))
    assert found["drainable"] is (not isinstance(right, str))
    reasons = {blocker["reason"] for blocker in found["blockers"]}
    targets = {placement["node"] for placement in found["placements"]}
    assert right in {KEPT, *reasons} if isinstance(right, str) else targets >= set(right)


#: By file and price list: whether the node is drained, what that saves in a month, and the share of the spot nodes.
MONEY: Final = {
    ("04-karpenter-never-removes/input", "prices"): (False, 0, None),
    ("04-karpenter-never-removes/budget-0", "prices"): (False, 0, None),
    ("04-karpenter-never-removes/budget-0-for-drifted", "prices"): (True, 127.75, None),
    ("04-karpenter-never-removes/removes", "prices"): (True, 127.75, None),
    ("12-spot-dearer/input", "dearer"): (True, 0, 182.5),
    ("12-spot-dearer/input", "normal"): (True, 91.25, None),
}


@pytest.mark.parametrize(("file", "prices", "right"), [(*case, right) for case, right in MONEY.items()])
def test_what_is_saved_is_net(file: str, prices: str, right: tuple[bool, float, float | None]) -> None:
    made = as_json(file, "--prices", str((FILES / file).with_name(f"{prices}.csv")))
    freed = made["summary"]["freed"]
    share = freed["spot_share_per_month"] if right[2] is not None else None
    assert (node(made)["drainable"], freed["net_per_month"] or 0, share) == right


#: By file: what the text says.
TEXTS: Final = {
    "09-other-architecture/input": "arm64",
    "14-unsafe-sysctl/input": "sysctl",
    "18-daemonset-missing-on-spot/input": "DaemonSet",
    "07-pause-pods-on-spot/input": "preempt",
    "07-pause-pods-on-spot/expendable": "preempt",
}


@pytest.mark.parametrize(("file", "text"), TEXTS.items(), ids=TEXTS)
def test_the_text_tells_it(file: str, text: str) -> None:
    _, output, _ = plan(file, "-o", "details")
    assert text in output


@pytest.mark.parametrize("file", ["input", "expendable", "same-priority"])
def test_pods_that_are_preempted_are_the_same_in_plan_and_explain(file: str) -> None:
    path = f"07-pause-pods-on-spot/{file}"
    explained = forking.run("explain", "--snapshot", str(FILES / f"{path}.json"), "-o", "json", check=True).stdout
    assert json.loads(explained.splitlines()[0])["preempts"] == node(as_json(path))["preempts"]


#: By file: what the program says about it.
FILES_OF_NO_CLUSTER: Final = {
    "17-files/status": (1, "Unauthorized"),
    "17-files/only-pods": (3, "No Nodes in the file"),
    "17-files/warning-first": (0, "line 1 is not JSON"),
}


@pytest.mark.parametrize(("file", "code", "text"), [(file, *said) for file, said in FILES_OF_NO_CLUSTER.items()])
def test_a_file_that_is_not_as_expected_says_why(file: str, code: int, text: str) -> None:
    found, output, errors = plan(file)
    assert (found, text in output + errors) == (code, True)


def test_spot_nodes_that_cost_more_are_told() -> None:
    _, output, _ = plan("12-spot-dearer/input", "--prices", str(FILES / "12-spot-dearer" / "dearer.csv"))
    assert "costs more" in " ".join(output.split())
