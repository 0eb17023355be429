"""Families about other pods: topology spread and inter-pod affinity."""

from tests.conformance.generate.world import APPS, HOSTNAME, TIERS, ZONE, ClusterBuilder, Family, Json

_KEYS = (ZONE, ZONE, HOSTNAME, HOSTNAME, "rack", "topology.kubernetes.io/region")
#: An invalid label value, which selectors can have if they are older than the validation.
_OLD_VALUE, _OLD = "has space", 0.01
_LABEL_KEYS = ("app", "tier", "pod-template-hash", "absent")


def _racks(world: ClusterBuilder) -> None:
    for node in world.nodes:
        if world.chance(0.7):
            node["metadata"]["labels"]["rack"] = world.pick(("1", "2", "3", ""))
        if world.chance(0.15):
            node["spec"].setdefault("taints", []).append(
                {"key": "busy", "effect": world.pick(("NoSchedule", "PreferNoSchedule"))}
            )
        if world.chance(0.08):
            node["spec"]["unschedulable"] = True
        if world.chance(0.3):
            node["metadata"]["labels"]["pool"] = "x"


def selector(world: ClusterBuilder, own: Json) -> Json | None:
    """Return a label selector: often one that matches the pod itself, else any, including null and contradictions."""
    if world.chance(0.45):
        return {"matchLabels": {"app": own["app"]}}
    if world.chance(0.1):
        return world.pick((None, {}, {"matchLabels": {}}, {"matchExpressions": []}))
    result: Json = {}
    if world.chance(0.6):
        result["matchLabels"] = {"app": _OLD_VALUE if world.chance(_OLD) else world.pick(APPS)}
    if world.chance(0.6):
        result["matchExpressions"] = [_expression(world) for _ in range(world.rng.randint(1, 2))]
    return result


def _expression(world: ClusterBuilder) -> Json:
    key, values = world.pick((("app", APPS), ("tier", TIERS), ("absent", ("x",))))
    operator = world.pick(("In", "NotIn", "Exists", "DoesNotExist"))
    if world.chance(_OLD):
        operator = world.pick(("", "Near", "Gt"))
    expression: Json = {"key": key, "operator": operator}
    if operator in {"In", "NotIn"}:
        expression["values"] = [_OLD_VALUE] if world.chance(_OLD) else world.some(values, 1, 2)
    return expression


def _spread(world: ClusterBuilder, pod: Json) -> None:
    spec = pod["spec"]
    spec["topologySpreadConstraints"] = _without_duplicates(
        [_constraint(world, pod) for _ in range(world.rng.randint(1, 3))]
    )
    if world.chance(0.25):
        spec["nodeSelector"] = {"pool": "x"}
    if world.chance(0.3):
        spec["tolerations"].append({"key": "busy", "operator": "Exists"})


def _without_duplicates(constraints: list[Json]) -> list[Json]:
    """Remove duplicates: the API accepts a pair of topology key and action only once."""
    return list(
        {
            (constraint["topologyKey"], constraint["whenUnsatisfiable"]): constraint for constraint in constraints
        }.values()
    )


def _constraint(world: ClusterBuilder, pod: Json) -> Json:
    constraint: Json = {
        "maxSkew": world.pick((1, 1, 2, 3, 2147483647)),
        "topologyKey": world.pick(_KEYS),
        "whenUnsatisfiable": world.pick(("DoNotSchedule", "DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
    }
    labels = selector(world, pod["metadata"]["labels"])
    if labels is not None or world.chance(0.5):
        constraint["labelSelector"] = labels
    if constraint["whenUnsatisfiable"] == "DoNotSchedule" and world.chance(0.3):
        constraint["minDomains"] = world.pick((1, 2, 3, 5))
    for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if world.chance(0.5):
            constraint[policy] = world.pick(("Honor", "Ignore"))
    if constraint.get("labelSelector") and world.chance(0.3):
        constraint["matchLabelKeys"] = world.some(_LABEL_KEYS, 1, 2)
        if world.chance(0.5):
            _merge_keys(constraint, pod["metadata"]["labels"])
    return constraint


def _affinity(world: ClusterBuilder, pod: Json) -> None:
    affinity = pod["spec"].setdefault("affinity", {})
    if world.chance(0.55):
        affinity["podAffinity"] = _terms(world, pod)
    if world.chance(0.6):
        affinity["podAntiAffinity"] = _terms(world, pod)


def _terms(world: ClusterBuilder, pod: Json) -> Json:
    required = [_term(world, pod) for _ in range(world.rng.randint(0, 2))]
    preferred = [
        {"weight": world.rng.randint(1, 100), "podAffinityTerm": _term(world, pod)}
        for _ in range(world.pick((0, 0, 1)))
    ]
    terms: Json = {}
    if required or world.chance(0.1):
        terms["requiredDuringSchedulingIgnoredDuringExecution"] = required
    if preferred:
        terms["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    return terms


def _term(world: ClusterBuilder, pod: Json) -> Json:
    term: Json = {"topologyKey": world.pick(_KEYS)}
    labels = selector(world, pod["metadata"]["labels"])
    if labels is not None or world.chance(0.3):
        term["labelSelector"] = labels
    if world.chance(0.25):
        term["namespaces"] = world.some([*world.namespaces, "gone"], 0, 2)
    if world.chance(0.3):
        term["namespaceSelector"] = world.pick(
            (
                None,
                {},
                {"matchLabels": {"team": "red"}},
                {"matchLabels": {"team": ""}},
                {"matchExpressions": [{"key": "env", "operator": "DoesNotExist"}]},
                {"matchExpressions": [{"key": "team", "operator": "In", "values": ["red", "blue"]}]},
            )
        )
    if term.get("labelSelector") and world.chance(0.25):
        keys = world.some(_LABEL_KEYS, 1, 2)
        term[world.pick(("matchLabelKeys", "mismatchLabelKeys"))] = keys
        if world.chance(0.7):
            _merge_keys(term, pod["metadata"]["labels"])
    return term


def _merge_keys(term: Json, labels: Json) -> None:
    """Merge matchLabelKeys and mismatchLabelKeys into the selector, as the API server does on creation."""
    merged = [dict(expression) for expression in term["labelSelector"].get("matchExpressions") or ()]
    for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        merged += [
            {"key": key, "operator": operator, "values": [labels[key]]} for key in term.get(field, ()) if key in labels
        ]
    if merged:
        term["labelSelector"] = term["labelSelector"] | {"matchExpressions": merged}


def _leaving(world: ClusterBuilder, pod: Json) -> None:
    if world.chance(0.08):
        pod["metadata"] |= {"deletionTimestamp": "2024-03-01T10:00:00Z", "deletionGracePeriodSeconds": 30}


def _racks_and_spaces(world: ClusterBuilder) -> None:
    """Occasionally remove one Namespace object, or all of them."""
    _racks(world)
    missing = world.pick(([],) * 6 + (world.some(world.namespaces, 1, 1), world.namespaces))
    world.objects = [
        obj for obj in world.objects if obj["kind"] != "Namespace" or obj["metadata"]["name"] not in missing
    ]


FAMILIES = (
    Family("PodTopologySpread", _racks, _spread, _leaving),
    Family("InterPodAffinity", _racks_and_spaces, _affinity, _leaving),
)
