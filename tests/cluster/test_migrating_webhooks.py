"""A webhook that denies evictions with 429 and moves the pod by itself, as KubeVirt does with virtual machines."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from devcluster.api import Json
from devcluster.plane import ControlPlane
from tests.cluster import webhooks
from tests.cluster.bad_days import FLAGS
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer
from tests.cluster.operators import PODS, Operators, PlayedOwner
from tests.cluster.test_memory import memory
from tests.cluster.test_owners import ANY_SCHEDULER, SAFE
from tests.cluster.webhooks import rule

NODE = "on-demand-1"
WORDS = 'Eviction triggered evacuation of VMI "default/machine"'
MACHINE = PlayedOwner(
    "kubevirt.io/v1/VirtualMachineInstance", "machine", NODE, restart="Never", annotations={SAFE: "true"}
)


class Evacuation:
    """The webhook. *moves* is called once, with the name of the pod, for the first eviction that is not a dry run."""

    def __init__(self, moves: Any) -> None:
        self.asked: Counter[bool] = Counter()  #: requests by whether they were dry runs
        self._moves = moves

    def verdict(self, request: Json) -> Json:
        dry_run = bool(request.get("dryRun"))
        self.asked[dry_run] += 1
        if not dry_run and self.asked[False] == 1:
            threading.Thread(target=self._moves, args=(request["name"],)).start()
        return {"status": "Failure", "code": 429, "reason": "TooManyRequests", "message": WORDS}


EVICTIONS = rule("", "pods/eviction", "CREATE")


def serving(evacuation: Evacuation, folder: Path) -> AbstractContextManager[Json]:
    """Serve the webhook. Yield its configuration."""
    return webhooks.serving("evacuation", EVICTIONS, evacuation.verdict, folder)


@pytest.fixture
def machine(cluster: ControlPlane, observer: Observer) -> Iterator[Operators]:
    """Start a virtual machine on the only on-demand node."""
    observer.nodes(1, 2)
    with Operators(cluster, [MACHINE]) as operators:
        observer.running(1)
        yield operators


def test_the_dry_run_is_asked_and_the_node_is_tainted_once(
    cluster: ControlPlane, observer: Observer, machine: Operators, tmp_path: Path
) -> None:
    """After each cooldown only the eviction is tried again."""
    evacuation = Evacuation(lambda _: None)
    with serving(evacuation, tmp_path) as hook:
        cluster.apply([hook])
        observer.open_spot()
        with Daemon(cluster, *FLAGS, ANY_SCHEDULER):
            observer.eventually(lambda: evacuation.asked[True] >= 3, "the eviction is tried again")
            observer.eventually(lambda: observer.messages(NODE, "DrainBlocked"), "the reason")
            observer.wait_told(NODE, "DrainFailed", WORDS)
        cluster.api.delete(cluster.api.path(hook))
    assert (len(observer.markings()), evacuation.asked[False]) == (1, 0)


def test_a_pod_that_the_webhook_moves_has_time_to_leave(
    cluster: ControlPlane, observer: Observer, machine: Operators, tmp_path: Path
) -> None:
    def moves(name: str) -> None:
        """Migrate: the machine's new pod runs before the old one has completed."""
        machine.opened = True
        old = cluster.api.get(f"{PODS}/{name}")
        copied = {key: old["metadata"][key] for key in ("labels", "annotations", "ownerReferences")}
        spec = {"containers": [{"name": "main", "image": "pause:3.10"}], "restartPolicy": "Never"}
        new = {"apiVersion": "v1", "kind": "Pod", "metadata": copied | {"name": "machine-target"}, "spec": spec}
        cluster.api.post(PODS, new)
        observer.eventually(lambda: observer.places("machine").get(NODE, 0) < len(observer.pods("machine")), "moved")
        observer.running(2, "machine")
        cluster.api.patch(f"{PODS}/{name}/status", {"status": {"phase": "Succeeded"}})

    evacuation = Evacuation(moves)
    with serving(evacuation, tmp_path) as hook:
        cluster.apply([hook])
        observer.open_spot()
        with Daemon(cluster, *FLAGS, ANY_SCHEDULER, "--migrating-webhooks=wait", "--landing-timeout=120s"):
            observer.eventually(lambda: "NodeDrained" in observer.events(NODE), "the node drained", seconds=300)
        cluster.api.delete(cluster.api.path(hook))
    assert evacuation.asked == {True: 1, False: 1}
    assert observer.kinds("machine") == {"spot": 1}
    assert memory(cluster).debts == ()
