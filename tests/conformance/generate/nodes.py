"""Families about nodes: cordons, taints, labels, names and declared features; and scheduling gates."""

from tests.conformance.generate.world import REGION, SPOT, ZONE, ClusterBuilder, Family, Json

CORDON = "node.kubernetes.io/unschedulable"
_KEYS = (
    "dedicated",
    "gpu",
    "level",
    "example.com/spot",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/not-ready",
)
_VALUES = ("", "a", "b", "10", "007", "-3")
#: Features that nodes declare: of 1.36, of 1.37, of 1.38, and one that no scheduler knows.
_FEATURES = (
    "DRANodeAllocatableResources",
    "ExtendWebSocketsToKubelet",
    "InPlacePodVerticalScalingMemoryBackedVolumes",
    "NoSuchFeature",
    "PodCertificateMLDSA",
    "RestartAllContainersOnContainerExits",
    "SecurityProfileOCI",
    "UserNamespacesHostNetworkSupport",
    "VolumeBindMountOptions",
)
_EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
_NUMBERS = ("0", "5", "10", "007", "1.5", "ten", "", "9223372036854775807", "9223372036854775808")
_BOUNDS = (*_NUMBERS, "5", "7", "-3", "+4", "1_0", " 5", "0x10", "\u0665")


def _cordon(world: ClusterBuilder) -> None:
    for node in world.nodes:
        if world.chance(0.5):
            node["spec"]["unschedulable"] = world.chance(0.9)
        if world.chance(0.8 if node["spec"].get("unschedulable") else 0.05):
            _taint(node, {"effect": "NoSchedule", "key": CORDON})


def _tolerate_cordon(world: ClusterBuilder, pod: Json) -> None:
    toleration: Json = {"key": world.pick((CORDON, CORDON, CORDON, "", "node.kubernetes.io/other"))}
    if world.chance(0.8) or not toleration["key"]:
        toleration["operator"] = "Exists" if not toleration["key"] else world.pick(("Exists", "Equal"))
    if world.chance(0.6):
        toleration["effect"] = world.pick(("NoSchedule", "NoSchedule", "NoExecute", "PreferNoSchedule"))
    if world.chance(0.2):
        toleration["value"] = world.pick(("", "x"))
    pod["spec"]["tolerations"].append(toleration)


def _taint(node: Json, taint: Json) -> None:
    node["spec"].setdefault("taints", []).append(taint)


def _taints(world: ClusterBuilder) -> None:
    for node in world.nodes:
        for key in world.some(_KEYS, 0, 2):
            taint: Json = {"effect": world.pick(_EFFECTS), "key": key}
            if world.chance(0.7):
                taint["value"] = world.pick(_VALUES)
            if world.chance(0.2):
                taint["timeAdded"] = "2024-03-01T10:00:00Z"
            _taint(node, taint)
        if world.chance(0.1):
            node["status"]["conditions"].append({"type": "PIDPressure", "status": "True"})


def _tolerations(world: ClusterBuilder, pod: Json) -> None:
    for _ in range(world.rng.randint(1, 4)):
        toleration: Json = {}
        if world.chance(0.9):
            toleration["key"] = world.pick(_KEYS)
        operator = world.pick(("Exists", "Equal", "Equal", "", "Gt", "Lt")) if toleration else "Exists"
        if operator:
            toleration["operator"] = operator
        if operator != "Exists" or world.chance(0.05):
            toleration["value"] = world.pick(_VALUES)
        if world.chance(0.5):
            toleration["effect"] = world.pick(_EFFECTS)
        if toleration.get("effect") == "NoExecute" and world.chance(0.3):
            toleration["tolerationSeconds"] = world.pick((0, 60, -1))
        pod["spec"]["tolerations"].append(toleration)


def _labels(world: ClusterBuilder) -> None:
    for node in world.nodes:
        labels = node["metadata"]["labels"]
        if world.chance(0.6):
            labels["disktype"] = world.pick(("ssd", "hdd", ""))
        if world.chance(0.7):
            labels["slots"] = world.pick(_NUMBERS)


def _node_affinity(world: ClusterBuilder, pod: Json) -> None:
    spec = pod["spec"]
    if world.chance(0.4):
        spec["nodeSelector"] = {
            key: world.pick(values)
            for key, values in world.some(
                [
                    ("disktype", ("ssd", "hdd", "")),
                    (ZONE, ("a", "b", "z")),
                    (SPOT, ("true", "")),
                    ("absent", ("", "x")),
                ],
                0,
                2,
            )
        }
    if world.chance(0.7):
        terms = [_term(world) for _ in range(world.rng.randint(0, 3))]
        required = {"nodeSelectorTerms": terms}
        affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
        if world.chance(0.9):
            affinity["requiredDuringSchedulingIgnoredDuringExecution"] = required
        if world.chance(0.2):
            preferred = [{"weight": 5, "preference": _term(world)}]
            affinity["preferredDuringSchedulingIgnoredDuringExecution"] = preferred


def _term(world: ClusterBuilder) -> Json:
    term: Json = {}
    if world.chance(0.8):
        term["matchExpressions"] = [_expression(world) for _ in range(world.rng.randint(0, 2))]
    if world.chance(0.3):
        term["matchFields"] = [_name_field(world) for _ in range(world.rng.randint(0, 2))]
    return term


def _expression(world: ClusterBuilder) -> Json:
    key, values = world.pick(
        (
            ("disktype", ("ssd", "hdd", "", "nvme")),
            (ZONE, ("a", "b", "c")),
            (REGION, ("r1", "r2")),
            ("slots", _NUMBERS),
            ("absent", ("x", "has space", "")),
        )
    )
    operator = world.pick(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    if world.chance(0.01):
        operator = world.pick(("Near", "in", ""))
    expression: Json = {"key": key, "operator": operator}
    if operator in {"In", "NotIn"}:
        expression["values"] = world.some(values, 1, 2)
    elif operator in {"Gt", "Lt"}:
        expression["values"] = [world.pick(_BOUNDS)]
    return expression


def _name_field(world: ClusterBuilder) -> Json:
    name = world.pick([*world.node_names(), "no-such-node"])
    return {"key": "metadata.name", "operator": world.pick(("In", "In", "NotIn")), "values": [name]}


def _declared(world: ClusterBuilder) -> None:
    for node in world.nodes:
        if world.chance(0.8):
            names = world.some(_FEATURES)
            node["status"]["declaredFeatures"] = names if world.chance(0.1) else sorted(names)


def _needs_features(world: ClusterBuilder, pod: Json) -> None:
    if world.chance(0.5):
        pod["spec"]["hostNetwork"] = world.chance(0.8)
        pod["spec"]["hostUsers"] = world.chance(0.3)
    if world.chance(0.5):
        rule = {
            "action": world.pick(("RestartAllContainers", "RestartAllContainers", "Restart")),
            "exitCodes": {"operator": "In", "values": [42]},
        }
        pod["spec"]["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    if world.chance(0.3):
        mount = {"name": "tmp", "mountPath": "/tmp", "bindMountOptions": world.some(("noexec", "nodev"))}
        pod["spec"].setdefault("volumes", []).append({"name": "tmp", "emptyDir": {}})
        world.pick(pod["spec"]["containers"])["volumeMounts"] = [{"name": "token", "mountPath": "/token"}, mount]
    if world.chance(0.3):
        certificate = {"signerName": "example.com/s", "keyType": world.pick(("MLDSA44", "MLDSA65", "RSA3072"))}
        projected = {"sources": [{"configMap": {"name": "ca"}}, {"podCertificate": certificate}]}
        pod["spec"].setdefault("volumes", []).append({"name": "certificate", "projected": projected})
    if world.chance(0.3):
        profile = {"seccompProfile": {"type": world.pick(("OCI", "RuntimeDefault"))}}
        world.pick((pod["spec"], pod["spec"]["containers"][0]))["securityContext"] = profile


def _gates(world: ClusterBuilder, pod: Json) -> None:
    if "nodeName" not in pod["spec"] and world.chance(0.7):
        gates = world.some(("example.com/quota", "example.com/review"), 1)
        pod["spec"]["schedulingGates"] = [{"name": gate} for gate in gates]


FAMILIES = (
    Family("NodeUnschedulable", _cordon, _tolerate_cordon),
    Family("TaintToleration", _taints, _tolerations),
    Family("NodeAffinity", _labels, _node_affinity),
    Family("NodeDeclaredFeatures", _declared, _needs_features),
    Family("SchedulingGates", pod=_gates),
)
