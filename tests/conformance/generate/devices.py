"""The family of devices: requested by resource claims, or as an extended resource of a DeviceClass."""

from tests.conformance.generate.world import HOSTNAME, ZONE, ClusterBuilder, Family, Json

_VERSION = "resource.k8s.io/v1"
_DRIVER = "gpu.example.com"
_BACKED = "example.com/gpu"
_IMPLICIT = "deviceclass.resource.kubernetes.io/gpu"


def _devices(world: ClusterBuilder) -> None:
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


def _slice(world: ClusterBuilder, node: str) -> None:
    devices = [{"name": f"d{i}"} for i in range(world.rng.randint(1, 2))]
    pool = {"generation": 1, "name": node, "resourceSliceCount": 1}
    spec = {"driver": _DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    world.add("ResourceSlice", f"slice-{node}", version=_VERSION, spec=spec)


def _claim(world: ClusterBuilder, namespace: str, name: str) -> None:
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


def _given(world: ClusterBuilder) -> Json:
    """Allocate the devices of a claim, and reserve it for pods."""
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


def _ask(world: ClusterBuilder, pod: Json) -> None:
    resources = pod["spec"]["containers"][0]["resources"]
    if world.chance(0.7):
        names = ("devices-0", "devices-0", "devices-1", "devices-2", "devices-3", "no-such-claim")
        references = [{"name": f"r{i}", "resourceClaimName": name} for i, name in enumerate(world.some(names, 1, 2))]
        if world.chance(0.1):
            references.append({"name": "made", "resourceClaimTemplateName": "devices"})
        pod["spec"]["resourceClaims"] = references
        resources["claims"] = [{"name": reference["name"]} for reference in references]
    if world.chance(0.4):
        name = world.pick((_BACKED, _BACKED, _IMPLICIT))
        resources["requests"] = resources.get("requests", {}) | {name: world.pick(("1", "2", "0"))}


def _used(world: ClusterBuilder, pod: Json) -> None:
    """Set the statuses that the claim controller writes to the pod and the scheduler to the claim."""
    claims = pod["spec"].get("resourceClaims", ())
    if any("resourceClaimTemplateName" in claim for claim in claims):
        generated = f"{pod['metadata']['name']}-made"
        pod["status"]["resourceClaimStatuses"] = [{"name": "made", "resourceClaimName": generated}]
    named = {claim.get("resourceClaimName") for claim in claims}
    meta = pod["metadata"]
    for obj in world.objects:
        mine = obj["kind"] == "ResourceClaim" and obj["metadata"]["namespace"] == meta["namespace"]
        if mine and obj["metadata"]["name"] in named and "status" in obj and world.chance(0.5):
            user = {"resource": "pods", "name": meta["name"], "uid": meta["uid"]}
            obj["status"]["reservedFor"] = [*obj["status"]["reservedFor"], user][-256:]


FAMILIES = (Family("DynamicResources", _devices, _ask, _used),)
