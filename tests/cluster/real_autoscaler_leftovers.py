"""Leftovers beside the real Cluster Autoscaler, which scales both kinds of nodes down: `make autoscaler`.

On-demand nodes of two sizes have pods that must not run on spot nodes. LEFTOVERS_WATCHED=600 watches for ten minutes.
"""

import contextlib
import functools
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from devcluster.api import Json
from devcluster.cloudpool.cluster import Cluster
from devcluster.cloudpool.server import CloudpoolServer
from devcluster.manifests import ON_DEMAND, SPOT, deployment
from devcluster.plane import ControlPlane
from tests.cluster import real_autoscaler
from tests.cluster.beside import PATIENT, WATCHED, side_by_side, watched
from tests.cluster.daemon import NO_DELAY, SOFT, Daemon
from tests.cluster.observer import AGENT, Observer
from tests.cluster.real_autoscaler import CLOCK, System, allocated, driven, joined
from tests.providers import cloudpools

program, folder = real_autoscaler.program, real_autoscaler.folder

log = logging.getLogger(__name__)

PINNED: Final[Json] = {"nodeSelector": {ON_DEMAND: ""}}
PRICES: Final = ("--price-per-vcpu=0.04", "--price-per-gib=0", "--spot-price-per-vcpu=0.01", "--spot-price-per-gib=0")
SECONDS: Final = 400.0
_SOFT: Final = [{"key": ON_DEMAND, "value": "true", "effect": SOFT}]

#: By group: the machines at the start, the minimum, and the vCPU of each.
GROUPS: Final = {"small": (2, 0, 4), "large": (1, 0, 8), "spot": (3, 3, 4)}


@contextlib.contextmanager
def three_groups(plane: ControlPlane, place: Path) -> Iterator[dict[str, System]]:
    """Run the GROUPS behind one service."""
    entries, systems = [], {}
    with contextlib.ExitStack() as stack:
        for number, (name, (size, minimum, cpu)) in enumerate(GROUPS.items()):
            (place / name).mkdir()
            of: dict[str, Any] = (
                {"labels": {SPOT: ""}} if name == "spot" else {"labels": {ON_DEMAND: ""}, "taints": _SOFT}
            )
            capacity = {"cpu": str(cpu), "memory": "16Gi", "pods": "110"}
            times = {"requestDelay": "200ms", "launchDelay": "200ms", "network": f"10.{77 + number}"}
            document = cloudpools.document(name=name, allocatable=capacity, **times, **of)
            settings = cloudpools.settings(pool=document, desired_size=size, refresh_interval=0.2, pool_update=1)
            server = stack.enter_context(CloudpoolServer(settings, place / name, CLOCK).running())
            stack.enter_context(joined(Cluster(str(plane.kubeconfig), server.pool, CLOCK)))
            entries.append(
                {
                    "id": name,
                    "backend": {"url": server.url, "timeout": "4s"},
                    "minSize": minimum,
                    "maxSize": size + 2,
                    "refreshInterval": "500ms",
                    "cacheAge": "1s",
                    "pollInterval": "500ms",
                    "template": {"labels": of["labels"], "taints": of.get("taints", []), "capacity": capacity},
                }
            )
            flags = ("--cloud-provider=cloudpool", "--cloud-config=cloudpool.json")
            systems[name] = System(flags, of["labels"], functools.partial(allocated, server.pool))
        (place / "cloudpool.json").write_text(json.dumps({"pools": entries}))
        yield systems


def start(observer: Observer, web: int) -> int:
    """Fill the on-demand nodes, and return the number of pods.

    Each has a pod that must not run on spot nodes. Cluster Autoscaler by itself may end a node with nothing else, whose
    pod fits elsewhere: one small node, and without *web* pods both.
    """
    observer.eventually(lambda: len(observer.node_names()) == 6, "the machines' Nodes")
    one = deployment("keptone", 1, cpu="500m", **PINNED)
    two = deployment("kepttwo", 1, cpu="300m", **PINNED)
    three = deployment("keptthree", 1, cpu="1", **PINNED)
    observer.start_on("small-1", one, deployment("web", web, cpu="1"), pods=1 + web)
    observer.start_on("small-2", two, pods=1)
    observer.start_on("large-1", three, deployment("api", 4, cpu="1"), pods=5)
    observer.running(web + 7)
    observer.open_all()
    return web + 7


#: By name: who ends the machines of emptied nodes, how soon Cluster Autoscaler does, and the other pods on small-1.
WHO: Final = {
    "by Cluster Autoscaler at once": ("", "3s", 2),
    "by Cluster Autoscaler later": ("", "40s", 2),
    "by the daemon": ("externalgrpc", "40s", 2),
    "by both, and two small nodes are underused": ("externalgrpc", "10s", 0),
}


@pytest.mark.parametrize(("provider", "unneeded", "web"), WHO.values(), ids=WHO)
def test_leftovers_and_cluster_autoscaler_do_not_undo_each_others_work(
    provider: str, unneeded: str, web: int, program: Path, cluster: ControlPlane, observer: Observer, folder: Path
) -> None:
    """One on-demand node stays with all leftovers, for which there is no other one."""
    with three_groups(cluster, folder) as groups:
        pods = start(observer, web)
        own = (f"--cloud-provider={provider}", f"--cloud-config={folder / 'client.yaml'}") if provider else ()
        pace = (f"--scale-down-unneeded-time={unneeded}", "--scale-down-unready-time=40s")
        with driven(program, cluster, folder, groups["spot"], *pace), watched(observer, PATIENT) as watchdog:
            with Daemon(cluster, NO_DELAY, "--leftovers=move", "--manage-soft-taint", *PRICES, *own):
                observer.eventually(lambda: _on_demand(groups) == 1, "one on-demand machine", seconds=SECONDS)
                observer.wait_unmarked()
                observer.running(pods)
                before = observer.uids()
                observer.stays(lambda: (observer.uids(), _on_demand(groups)), (before, 1), seconds=WATCHED)
            seen = side_by_side(watchdog, observer)
        log.info("emptied %s; leftovers moved: %s, by us %s", seen.names, seen.moves(), seen.moves(AGENT))
        assert seen.undone() == []
        assert seen.added(ON_DEMAND) == []
        assert seen.emptied or not web, "no node was emptied by us"


def _on_demand(groups: dict[str, System]) -> int:
    return groups["small"].machines() + groups["large"].machines()
