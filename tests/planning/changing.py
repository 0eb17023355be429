"""Small random clusters, and random changes to them. The same cluster can be planned after each change."""

import datetime as dt
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, TypeAlias

import msgspec
from hypothesis import strategies as st
from msgspec.structs import replace

from predicates.objects import Unreadable
from predicates.objects.pods import DO_NOT_DISRUPT
from predicates.snapshot import Snapshot
from predicates.wire import Decoder, Interner
from rescheduler.planning.rules.minimum import MIN_ON_DEMAND_REPLICAS
from rescheduler.planning.rules.pod_traits import DO_NOT_DRAIN, DO_NOT_EVICT, SAFE_TO_EVICT
from tests.planning.builders import NOW, ON_DEMAND, SPOT, Manifest, budget, node, pod, repels, seeks

ON_DEMAND_NODES = ("od-1", "od-2", "od-3")
SPOT_NODES = ("spot-1", "spot-2")
FIRST_NODES = (
    *(node(name, ON_DEMAND) for name in ON_DEMAND_NODES),
    *(node(name, SPOT, cpu="6") for name in SPOT_NODES),
)
PODS = tuple(f"{app}-{number}" for app in ("web", "db", "job") for number in range(3))


class ChangingCluster:
    """A snapshot that is changed as a watch would change it."""

    def __init__(self, first: Iterable[Manifest] = FIRST_NODES) -> None:
        self.snapshot = Snapshot()
        self._decoder = Decoder(Interner())
        for manifest in first:
            self.put(manifest)

    def put(self, manifest: Manifest) -> None:
        kind = manifest["kind"]
        self.snapshot.upsert(kind, self._decoder.decode(kind, msgspec.json.encode(manifest)))

    def delete(self, kind: str, key: str) -> None:
        self.snapshot.delete(kind, key)


def stamp(seconds: float) -> str:
    """Return the API timestamp *seconds* after NOW."""
    return f"{NOW + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"


#: A change of a cluster. Its name is its repr.
Change: TypeAlias = Callable[[ChangingCluster], None]


class Named:
    """A change with a readable repr, for the examples of hypothesis."""

    def __init__(self, act: Change, name: str) -> None:
        self._act, self._name = act, name

    def __call__(self, cluster: ChangingCluster) -> None:
        self._act(cluster)

    def __repr__(self) -> str:
        return self._name


def _put(manifest: Manifest) -> Named:
    return Named(lambda cluster: cluster.put(manifest), f"put({manifest!r})")


def _delete(kind: str, key: str) -> Named:
    return Named(lambda cluster: cluster.delete(kind, key), f"delete({kind} {key})")


def _replace(name: str, suffix: str) -> Named:
    """Replace a pod by an equal one on the same node, with another UID and maybe another name."""

    def act(cluster: ChangingCluster) -> None:
        before = cluster.snapshot.pods.get(f"default/{name}")
        if before is not None:
            cluster.delete("Pod", before.key)
            cluster.snapshot.upsert(
                "Pod",
                replace(
                    before,
                    name=name + suffix,
                    uid=f"{before.uid}-next",
                    creation_timestamp=stamp(0),
                    ready=not before.ready,
                    ready_since=None,
                ),
            )

    return Named(act, f"replace({name}, {suffix!r})")


def unreadable(items: tuple[Unreadable, ...]) -> Named:
    return Named(lambda cluster: setattr(cluster.snapshot, "unreadable", items), f"unreadable({items})")


#: Seconds relative to NOW at which something may happen, and durations from there on.
_MOMENTS = st.sampled_from((-300.0, -40.0, -30.0, -10.0, 0.0, 20.0, 60.0))
_PERIODS = st.sampled_from(("true", "false", "30s", "1m", "6m", "nonsense"))


def _status(seconds: float | None) -> dict[str, Any]:
    ready: Manifest = {"type": "Ready", "status": "False"}
    if seconds is not None:
        ready |= {"status": "True", "lastTransitionTime": stamp(seconds)}
    return {"conditions": [ready], "startTime": stamp(-250)}


_ANNOTATIONS = st.one_of(
    st.just({}),
    st.builds(lambda value: {DO_NOT_EVICT: value}, _PERIODS),
    st.builds(lambda value: {DO_NOT_DISRUPT: value}, _PERIODS),
    st.sampled_from(
        (
            {MIN_ON_DEMAND_REPLICAS: "1"},
            {MIN_ON_DEMAND_REPLICAS: "2"},
            {SAFE_TO_EVICT: "true"},
            {SAFE_TO_EVICT: "false"},
            {"vpaUpdates": "main: cpu"},
        )
    ),
)


def _pod(
    name: str,
    on: str,
    annotations: dict[str, str],
    ready: float | None,
    deleted: float | None,
    more: Manifest,
    again: bool,
) -> Manifest:
    fields = dict(more)
    if deleted is not None:
        fields["deleted"] = stamp(deleted)
    kind = "Job" if name.startswith("job") else "ReplicaSet"
    built = pod(name, on, owner=kind, annotations=annotations, status=_status(ready), created=stamp(-400), **fields)
    if again:  # another pod with the same name
        built["metadata"]["uid"] += "-again"
        if not on:
            built["status"]["nominatedNodeName"] = SPOT_NODES[0]
    return built


_PLACES = st.sampled_from((*ON_DEMAND_NODES, *ON_DEMAND_NODES, *SPOT_NODES, ""))
_RULES = st.sampled_from(
    (
        {},
        {},
        {"cpu": "2"},
        {"cpu": "3"},
        {"affinity": repels("db")},
        {"affinity": seeks("web")},
        {"priority": 5},
        {"priority": -5, "cpu": "3"},
        {"volumes": [{"name": "scratch", "emptyDir": {}}]},
    )
)
_NO_TIME: st.SearchStrategy[float | None] = st.none()
pods = st.builds(
    _pod,
    st.sampled_from(PODS),
    _PLACES,
    _ANNOTATIONS,
    _NO_TIME | _MOMENTS,
    _NO_TIME | _NO_TIME | _MOMENTS,
    _RULES,
    st.booleans(),
)
_NODES = st.builds(
    lambda name, period, cordoned: node(
        name,
        ON_DEMAND if name.startswith("od") else SPOT,
        annotations={DO_NOT_DRAIN: period},
        created=stamp(-20),
        unschedulable=cordoned,
    ),
    st.sampled_from((*ON_DEMAND_NODES, *SPOT_NODES)),
    _PERIODS,
    st.booleans(),
)
_SYNC_FAILED = {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": "no controller"}
_BUDGETS = st.builds(
    lambda app, allowed, healthy, fields: budget(app, app, allowed=allowed, healthy=healthy, **fields),
    st.sampled_from(("web", "db")),
    st.integers(0, 2),
    st.integers(0, 2),
    st.sampled_from(({}, {}, {"expected": 1}, {"conditions": [_SYNC_FAILED]}, {"meta": {"generation": 2}})),
)


def _replica_set(app: str, cpu: str, above: bool) -> Manifest:
    """Return the controller of the pods of *app*, with a Deployment *above* it or without."""
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": app, "uid": f"uid-{app}", "controller": True}
    meta = {"name": app, "namespace": "default", "uid": f"uid-of-{app}", "ownerReferences": [owner] if above else []}
    containers = [{"name": "main", "image": "app:1", "resources": {"requests": {"cpu": cpu}}}]
    template = {"metadata": {"labels": {"app": app}}, "spec": {"containers": containers}}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": {"template": template}}


_CONTROLLERS = st.builds(_replica_set, st.sampled_from(("web", "db")), st.sampled_from(("1", "4")), st.booleans())


def _quota(pods: str) -> Manifest:
    meta, hard = {"name": "pods", "namespace": "default"}, {"hard": {"pods": pods}}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": hard, "status": {}}


_QUOTAS = st.sampled_from(("5", "9", "20")).map(_quota)
_UNREADABLE = st.sampled_from(
    ((), (Unreadable("Pod", "default/x", "Pod default/x: broken", "od-1"),), (Unreadable("Node", "y", "broken"),))
)

#: All changes. Changes that are frequent in clusters are more frequent here.
changes: st.SearchStrategy[Change] = st.one_of(
    pods.map(_put),
    pods.map(_put),
    st.sampled_from(PODS).map(lambda name: _delete("Pod", f"default/{name}")),
    st.builds(_replace, st.sampled_from(PODS), st.sampled_from(("", "-next"))),
    st.builds(_replace, st.sampled_from(PODS), st.sampled_from(("", "-next"))),
    _NODES.map(_put),
    st.sampled_from((*ON_DEMAND_NODES, *SPOT_NODES)).map(lambda name: _delete("Node", name)),
    _BUDGETS.map(_put),
    st.sampled_from(("web", "db")).map(lambda name: _delete("PodDisruptionBudget", f"default/{name}")),
    _UNREADABLE.map(unreadable),
    st.one_of(_CONTROLLERS, _QUOTAS).map(_put),
)

#: Steps of the clock in seconds: around the deadlines that the changes above create.
clock_steps = st.sampled_from((0.0, 0.0, 1.0, 10.0, 20.0, 29.0, 30.0, 31.0, 60.0, 43_200.0))

#: The first pods of a cluster.
first_pods = st.lists(pods.map(_put), min_size=2, max_size=9)


def at(seconds: float) -> dt.datetime:
    """Return the time *seconds* after NOW."""
    return NOW + timedelta(seconds=seconds)
