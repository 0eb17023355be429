"""Scenes that run on the real control plane and in the simulated cluster, as data: objects, flags and events."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from devcluster.manifests import Json, deployment, pdb, statefulset
from tests.cluster.attacher import disk, mounts
from tests.cluster.autoscaling import SETUP
from tests.cluster.surge_scenes import quota

_ZONE: Final = "topology.kubernetes.io/zone"
_LABEL: Final = "app"

#: Of all scenes: quick, but with enough time for the steps of a drain.
FLAGS: Final = (
    "--housekeeping-interval=1s",
    "--node-drain-delay=10s",
    "--pod-eviction-timeout=30s",
    "--max-graceful-termination=2s",
    "--shorten-grace-periods",
    "--landing-timeout=45s",
    "--spot-pool-cooldown=0",
    "--node-cooldown=1h",
)
ONE, TWO, THREE = "on-demand-1", "on-demand-2", "on-demand-3"


@dataclass(frozen=True, slots=True)
class PlacedWorkload:
    """A workload whose pods start on *nodes*, while the other nodes are cordoned."""

    workload: Json
    nodes: tuple[str, ...]

    @property
    def pods(self) -> int:
        replicas: int = self.workload["spec"]["replicas"]
        return replicas


@dataclass(frozen=True, slots=True)
class SceneEvent:
    """What happens *seconds* after the eviction number *evictions* was accepted."""

    evictions: int
    seconds: float
    verb: str  #: ``delete``, ``interrupt`` (a node) or ``kill`` (the daemon, which starts again)
    node: str = ""


@dataclass(frozen=True, slots=True)
class AgreementScene:
    name: str
    placed: Sequence[PlacedWorkload]
    objects: Sequence[Json] = ()
    flags: tuple[str, ...] = ()
    events: Sequence[SceneEvent] = ()
    spot: int = 3
    seconds: float = 100.0  #: from the start of the daemon
    start: float = 5.0  #: until a pod is Ready
    end: float = 2.0  #: until a deleted pod is gone
    stuck: str = ""  #: an app whose pods never become Ready on spot nodes
    replicas: int = 1
    autoscaler: str = ""

    @property
    def nodes(self) -> tuple[str, ...]:
        """The on-demand nodes."""
        return tuple(sorted({node for each in self.placed for node in each.nodes}))


def _on(node: str, app: str, replicas: int, cpu: str = "300m", **spec: Any) -> PlacedWorkload:
    return PlacedWorkload(deployment(app, replicas, cpu=cpu, **spec), (node,))


_PLAIN: Final = (_on(ONE, "web", 3), _on(TWO, "api", 4, "400m"), _on(THREE, "cache", 3, "800m"))
_TWO_NODES: Final = (_on(ONE, "web", 4), _on(TWO, "api", 3, "700m"))
_SPREAD: Final = {
    "maxSkew": 1,
    "topologyKey": _ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {_LABEL: "web"}},
}
_IN_ZONE_A: Final = {
    "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": _ZONE, "operator": "In", "values": ["zone-a"]}]}]}
}

SCENES: Final = (
    AgreementScene("plain", _PLAIN),
    AgreementScene(
        "budgets",
        (_on(ONE, "web", 4), _on(TWO, "api", 4, "500m")),
        (pdb("web", max_unavailable=1), pdb("api", min_available="50%")),
        seconds=110.0,
    ),
    AgreementScene(
        "surge",
        (_on(ONE, "web", 1), _on(ONE, "api", 2), _on(TWO, "cache", 2, "900m")),
        (pdb("web", min_available=1),),
        ("--surge=blocked",),
    ),
    AgreementScene(
        "spread",
        (
            PlacedWorkload(deployment("web", 3, cpu="300m", topologySpreadConstraints=[_SPREAD]), (ONE, TWO, THREE)),
            _on(TWO, "api", 3, "300m"),
            _on(THREE, "cache", 3, "600m"),
        ),
    ),
    AgreementScene(
        "claims",
        (PlacedWorkload(statefulset("db", 1, cpu="1", **mounts("data")), (ONE,)), _on(TWO, "web", 4, "600m")),
        disk("data", nodeAffinity=_IN_ZONE_A, csi=None, nfs={"server": "10.0.0.9", "path": "/data"}),
    ),
    AgreementScene("quota", _TWO_NODES, (quota(pods="8"),)),
    AgreementScene("failed replacements", _TWO_NODES, flags=("--failure-pause=1h",), stuck="web", seconds=130.0),
    AgreementScene("lost spot node", _PLAIN, events=(SceneEvent(2, 8.0, "delete", "spot-1"),), spot=4, seconds=150.0),
    AgreementScene("interruption", _PLAIN, events=(SceneEvent(1, 1.0, "interrupt", "spot-1"),), spot=4),
    AgreementScene(
        "autoscaler",
        (_on(ONE, "web", 4, "700m"), PlacedWorkload(deployment("filler", 1, cpu="3500m"), ("spot-1",))),
        SETUP,
        ("--make-room=placeholders",),
        spot=1,
        seconds=210.0,
        autoscaler="cluster-autoscaler",
    ),
    AgreementScene("two replicas", _PLAIN, replicas=2),
    AgreementScene("kill in mid-drain", _PLAIN, events=(SceneEvent(2, 0.5, "kill"),), seconds=130.0),
)
