"""Families about resources and host ports of nodes."""

from tests.conformance.generate.quantities import huge, milli, odd, whole
from tests.conformance.generate.world import ClusterBuilder, Family, Json, container

GPU = "nvidia.com/gpu"
_EXTENDED = (
    GPU,
    "example.com/foo",
    "hugepages-2Mi",
    "hugepages-1Gi",
    "attachable-volumes-aws-ebs",
    "kubernetes.io/odd",
)
_POD_LEVEL = ("cpu", "memory", "hugepages-2Mi")
_MEGA = 2**20


def _allocatable(world: ClusterBuilder) -> None:
    for node in world.nodes:
        allocatable = node["status"]["allocatable"]
        allocatable["cpu"] = milli(
            world, world.pick((500, 1000, 2000, 4000, 8000, 16000)) - world.rng.randint(0, 9) * 10
        )
        allocatable["memory"] = whole(world, world.rng.randint(256, 8192) * _MEGA)
        allocatable["pods"] = world.pick(("110", "110", "110", "29", "8", "4", "0", "1e1"))
        if world.chance(0.3):
            allocatable["ephemeral-storage"] = whole(world, world.rng.randint(20, 200) * _MEGA)
        for name in world.some(_EXTENDED, 1):
            amount = world.rng.randint(0, 20)
            allocatable[name] = whole(world, amount * 2 * _MEGA if name.startswith("hugepages") else amount)
        for name in list(allocatable):
            if world.chance(0.02):
                del allocatable[name]
            elif world.chance(0.01):
                allocatable[name] = huge(world)
        if world.chance(0.02):
            del node["status"]["allocatable"]


def _requests(world: ClusterBuilder, *, pod_level: bool = False) -> Json:
    requests: Json = {}
    if world.chance(0.8):
        requests["cpu"] = milli(world, world.pick((0, 1, 5, 10, 20, 50, 100, 150, 800)))
    if world.chance(0.8):
        requests["memory"] = whole(world, world.pick((0, 1, 4, 16, 50, 64, 100, 600)) * _MEGA)
    if world.chance(0.25):
        requests["ephemeral-storage"] = whole(world, world.rng.randint(0, 20) * _MEGA)
    for name in world.some(_EXTENDED, 0, 2) if world.chance(0.3) else ():
        amount = world.pick((0, 1, 1, 2))
        requests[name] = whole(world, amount * 2 * _MEGA if name.startswith("hugepages") else amount)
    for name in requests:
        if world.chance(0.05):
            requests[name] = odd(world)
        elif world.chance(0.004):
            requests[name] = huge(world)
    if pod_level:
        requests = {name: amount for name, amount in requests.items() if name in _POD_LEVEL}
    return requests


def _resources(world: ClusterBuilder, *, pod_level: bool = False) -> Json:
    requests = _requests(world, pod_level=pod_level)
    resources: Json = {"requests": requests} if requests or world.chance(0.5) else {}
    if world.chance(0.3):
        resources["limits"] = dict(requests)
    return resources


def _hungry(world: ClusterBuilder, pod: Json) -> None:
    spec = pod["spec"]
    spec["containers"] = [container(f"c{i}", _resources(world)) for i in range(world.rng.randint(1, 3))]
    if world.chance(0.5):
        spec["initContainers"] = [_init_container(world, i) for i in range(world.rng.randint(1, 3))]
    if world.chance(0.2):
        spec["resources"] = _resources(world, pod_level=True)
    if world.chance(0.15):
        spec["overhead"] = {"cpu": milli(world, 250), "memory": whole(world, 120 * _MEGA)}
        if world.chance(0.2):
            spec["overhead"][GPU] = "1"


def _init_container(world: ClusterBuilder, i: int) -> Json:
    init_container = container(f"i{i}", _resources(world))
    if world.chance(0.5):
        init_container["restartPolicy"] = world.pick(("Always", "Always", "OnFailure"))
    return init_container


def _resize(world: ClusterBuilder, pod: Json) -> None:
    """Add the status of an in-place resize: actuated and allocated amounts, and why it is pending."""
    if "nodeName" not in pod["spec"] or world.chance(0.5):
        return
    status = pod["status"]
    status["containerStatuses"] = [_actuated(world, item) for item in pod["spec"]["containers"] if world.chance(0.8)]
    started = [_actuated(world, item) for item in pod["spec"].get("initContainers", ()) if world.chance(0.8)]
    if started:
        status["initContainerStatuses"] = started
    if world.chance(0.4):
        stuck = {
            "type": world.pick(("PodResizePending", "PodResizeInProgress")),
            "status": world.pick(("True", "True", "False")),
        }
        status.setdefault("conditions", []).append(stuck | {"reason": world.pick(("Infeasible", "Deferred", ""))})
    if "resources" in pod["spec"] and world.chance(0.6):
        status["resources"] = _without_empty({"requests": _requests(world, pod_level=True)})
        if world.chance(0.8):
            status |= _without_empty({"allocatedResources": _requests(world, pod_level=True)})


def _actuated(world: ClusterBuilder, declared: Json) -> Json:
    status: Json = {
        "name": declared["name"],
        "ready": True,
        "restartCount": 0,
        "image": declared["image"],
        "imageID": "",
    }
    if world.chance(0.8):
        status["resources"] = _without_empty(_resources(world) if world.chance(0.5) else declared["resources"])
    if world.chance(0.7):
        allocated = _requests(world) if world.chance(0.5) else declared["resources"].get("requests", {})
        status |= _without_empty({"allocatedResources": allocated})
    return status


def _without_empty(fields: Json) -> Json:
    """Return *fields* as the API has them: an empty map is the same as none, and the scheduler never reads one."""
    return {name: value for name, value in fields.items() if value}


def _ports(world: ClusterBuilder, pod: Json) -> None:
    spec = pod["spec"]
    for item in spec["containers"]:
        item["ports"] = [_port(world) for _ in range(world.rng.randint(0, 3))]
    if world.chance(0.2):
        init = container("init", {}) | {"ports": [_port(world)]}
        if world.chance(0.6):
            init["restartPolicy"] = "Always"
        spec["initContainers"] = [init]
    if world.chance(0.15):
        spec["hostNetwork"] = True


def _port(world: ClusterBuilder) -> Json:
    port: Json = {"containerPort": world.pick((80, 443, 8080))}
    if world.chance(0.85):
        port["hostPort"] = world.pick((80, 443, 8080, 0))
    if world.chance(0.95):
        port["protocol"] = world.pick(("TCP", "TCP", "UDP", "SCTP"))
    if world.chance(0.5):
        port["hostIP"] = world.pick(("", "0.0.0.0", "127.0.0.1", "10.0.0.1", "::", "::1"))
    return port


FAMILIES = (
    Family("NodePorts", template=_ports),
    Family("NodeResourcesFit", _allocatable, _hungry, _resize),
)
