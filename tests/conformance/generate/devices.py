"""The family around resource claims: devices that a pod asks for by claim."""

from tests.conformance.generate.world import Family, Json, World

_VERSION = "resource.k8s.io/v1"


def _claims(world: World) -> None:
    world.add("DeviceClass", "gpu", version=_VERSION, spec={})
    for name in world.node_names():
        if world.chance(0.5):
            devices = [{"name": f"d{i}"} for i in range(world.rng.randint(1, 2))]
            pool = {"generation": 1, "name": name, "resourceSliceCount": 1}
            spec = {"driver": "gpu.example.com", "nodeName": name, "pool": pool, "devices": devices}
            world.add("ResourceSlice", f"slice-{name}", version=_VERSION, spec=spec)
    for namespace in world.namespaces:
        for i in range(2):
            request = {
                "name": "one",
                "exactly": {
                    "allocationMode": "ExactCount",
                    "count": 1,
                    "deviceClassName": world.pick(("gpu", "gpu", "gpu", "gone")),
                },
            }
            world.add(
                "ResourceClaim", f"devices-{i}", namespace, version=_VERSION, spec={"devices": {"requests": [request]}}
            )


def _ask(world: World, pod: Json) -> None:
    source: Json = {
        "resourceClaimName": world.pick(("devices-0", "devices-0", "devices-1", "devices-1", "no-such-claim"))
    }
    if world.chance(0.3):
        source = {"resourceClaimTemplateName": "devices"}
    pod["spec"]["resourceClaims"] = [{"name": "gpu", **source}]
    pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]


FAMILIES = (Family("DynamicResources", _claims, _ask),)
