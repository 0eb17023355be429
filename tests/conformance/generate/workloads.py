"""Workloads: pods of controllers and single pods, most of them bound."""

import msgspec

from tests.conformance.generate.world import ClusterBuilder, Family, Json, template

_PHASES = ("Running",) * 18 + ("Pending", "Succeeded", "Failed")


def add_workloads(world: ClusterBuilder, families: list[Family], oddness: float) -> None:
    """Add between 5 and 90 pods. Each family modifies a share *oddness* of the workloads.

    The pods of a workload are equal, except for modifications of single pods.
    """
    count = world.rng.randint(5, 90)
    while len(world.pods) < count:
        model = template(world)
        mine = [family for family in families if world.chance(oddness)]
        for family in mine:
            family.template(world, model)
        owner = _owner(world)
        for _ in range(world.rng.randint(1, 7)):
            _add_pod(world, model, owner, mine)
    if world.chance(0.3):
        _add_budget(world)


def _owner(world: ClusterBuilder) -> Json | None:
    kind = world.pick(("ReplicaSet",) * 6 + ("StatefulSet", "DaemonSet", "Job", ""))
    if not kind:
        return None
    version = "batch/v1" if kind == "Job" else "apps/v1"
    name = world.name(kind.lower())
    return {
        "apiVersion": version,
        "blockOwnerDeletion": True,
        "controller": True,
        "kind": kind,
        "name": name,
        "uid": f"uid-{name}",
    }


def _add_pod(world: ClusterBuilder, model: Json, owner: Json | None, families: list[Family]) -> None:
    pod = msgspec.to_builtins(model)  # A deep copy; that of the standard library takes ten times as long.
    meta = pod["metadata"]
    meta["name"] = world.name(owner["name"] if owner else "pod")
    meta["uid"] = f"uid-{meta['name']}"
    meta["resourceVersion"] = str(1000 + world.serial)
    meta["creationTimestamp"] = "2024-03-01T09:00:00Z"
    if owner:
        meta["ownerReferences"] = [owner]
    pod["status"] = {"phase": "Pending", "qosClass": "Burstable"}
    if world.chance(0.93):
        pod["spec"]["nodeName"] = "node-gone" if world.chance(0.01) else world.pick(world.node_names())
        pod["status"]["phase"] = world.pick(_PHASES)
        pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]
    elif world.chance(0.2):
        pod["status"]["nominatedNodeName"] = world.pick(world.node_names())
    for family in families:
        family.pod(world, pod)
    world.pods.append(pod)


def _add_budget(world: ClusterBuilder) -> None:
    world.add(
        "PodDisruptionBudget",
        world.name("budget"),
        world.pick(world.namespaces),
        version="policy/v1",
        spec={"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        status={
            "disruptionsAllowed": world.rng.randint(0, 2),
            "currentHealthy": 3,
            "desiredHealthy": 2,
            "expectedPods": 3,
        },
    )
