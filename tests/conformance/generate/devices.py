"""The family around devices: asked for by claim, or as an extended resource behind which a class stands."""

from tests.conformance.generate.world import HOSTNAME, ZONE, Family, Json, World

_VERSION = "resource.k8s.io/v1"
_DRIVER = "gpu.example.com"
_BACKED = "example.com/gpu"
_IMPLICIT = "deviceclass.resource.kubernetes.io/gpu"


def _devices(world: World) -> None:
    spec: Json = {}
    if world.chance(0.5):
        spec["extendedResourceName"] = _BACKED
    world.add("DeviceClass", "gpu", version=_VERSION, spec=spec)
    for node in world.nodes:
        if world.chance(0.5):
            _slice(world, node["metadata"]["name"])
        if world.chance(0.3):
            node["status"].setdefault("allocatable", {})[_BACKED] = world.pick(("0", "1", "4"))
    for namespace in world.namespaces:
        for i in range(world.rng.randint(1, 4)):
            _claim(world, namespace, f"devices-{i}")


def _slice(world: World, node: str) -> None:
    devices = [{"name": f"d{i}"} for i in range(world.rng.randint(1, 2))]
    pool = {"generation": 1, "name": node, "resourceSliceCount": 1}
    spec = {"driver": _DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    world.add("ResourceSlice", f"slice-{node}", version=_VERSION, spec=spec)


def _claim(world: World, namespace: str, name: str) -> None:
    exactly = {
        "allocationMode": "ExactCount",
        "count": 1,
        "deviceClassName": world.pick(("gpu", "gpu", "gpu", "gpu", "gone")),
    }
    claim = world.add(
        "ResourceClaim",
        name,
        namespace,
        version=_VERSION,
        spec={"devices": {"requests": [{"name": "one", "exactly": exactly}]}},
    )
    if world.chance(0.6):
        claim["status"] = _given(world)
    if world.chance(0.06):
        claim["metadata"]["deletionTimestamp"] = "2024-03-01T10:00:00Z"
    if world.chance(0.1):
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "some", "uid": "some", "controller": True}
        claim["metadata"]["ownerReferences"] = [owner]


def _given(world: World) -> Json:
    """A claim whose devices are given, and to whom."""
    node = world.pick(world.node_names())
    result = {"driver": _DRIVER, "pool": node, "device": "d0", "request": "one"}
    allocation: Json = {"devices": {"results": [result]}}
    if world.chance(0.85):
        key, values = world.pick(((HOSTNAME, [node]), (HOSTNAME, world.node_names()[:2]), (ZONE, ["a"])))
        expressions = [{"key": key, "operator": "In", "values": values}]
        allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    users = world.pick((0, 0, 1, 1, 2, 2, 256))
    reserved = [{"resource": "pods", "name": f"user-{i}", "uid": f"user-{i}"} for i in range(users)]
    return {"allocation": allocation, "reservedFor": reserved}


def _ask(world: World, pod: Json) -> None:
    resources = pod["spec"]["containers"][0]["resources"]
    if world.chance(0.7):
        names = ("devices-0", "devices-0", "devices-1", "devices-2", "devices-3", "no-such-claim")
        asked = [{"name": f"r{i}", "resourceClaimName": name} for i, name in enumerate(world.some(names, 1, 2))]
        if world.chance(0.1):
            asked.append({"name": "made", "resourceClaimTemplateName": "devices"})
        pod["spec"]["resourceClaims"] = asked
        resources["claims"] = [{"name": one["name"]} for one in asked]
    if world.chance(0.4):
        name = world.pick((_BACKED, _BACKED, _IMPLICIT))
        resources["requests"] = resources.get("requests", {}) | {name: world.pick(("1", "2", "0"))}


def _used(world: World, pod: Json) -> None:
    """What the claim controller notes in the pod, and the scheduler in the claim."""
    claims = pod["spec"].get("resourceClaims", ())
    if any("resourceClaimTemplateName" in one for one in claims):
        made = f"{pod['metadata']['name']}-made"
        pod["status"]["resourceClaimStatuses"] = [{"name": "made", "resourceClaimName": made}]
    named = {one.get("resourceClaimName") for one in claims}
    meta = pod["metadata"]
    for one in world.objects:
        mine = one["kind"] == "ResourceClaim" and one["metadata"]["namespace"] == meta["namespace"]
        if mine and one["metadata"]["name"] in named and "status" in one and world.chance(0.5):
            user = {"resource": "pods", "name": meta["name"], "uid": meta["uid"]}
            one["status"]["reservedFor"] = [*one["status"]["reservedFor"], user][-256:]


FAMILIES = (Family("DynamicResources", _devices, _ask, _used),)
