"""What the API server adds to new pods, and why it rejects them: classes of priorities, defaults, LimitRanges and
ResourceQuotas.
"""

from collections.abc import Iterator
from typing import Final

from predicates.quantity import parse
from rescheduler.simulation.requests import RequestRefused
from rescheduler.simulation.store import Json, Store, merged

#: Tolerations that the plugin DefaultTolerationSeconds adds.
_FOR_A_WHILE: Final = tuple(
    {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for name in ("not-ready", "unreachable")
)


def admitted(store: Store, pod: Json) -> Json:
    """Return *pod* as it is stored. Raises Refused."""
    spec = pod["spec"]
    change: Json = {}
    if "priority" not in spec:
        change["priority"] = _priority(store, spec.get("priorityClassName", ""))
    for name, value in (("schedulerName", "default-scheduler"), ("restartPolicy", "Always")):
        if not spec.get(name):
            change[name] = value
    if spec.get("terminationGracePeriodSeconds") is None:
        change["terminationGracePeriodSeconds"] = 30
    keys = {toleration.get("key", "") for toleration in spec.get("tolerations") or ()}
    missing = [each for each in _FOR_A_WHILE if each["key"] not in keys and "" not in keys]
    if missing:
        change["tolerations"] = [*(spec.get("tolerations") or ()), *missing]
    if containers := _with_defaults(store, pod):
        change["containers"] = containers
    pod = merged(pod, {"spec": change, "status": {"phase": "Pending", "qosClass": "Burstable"}})
    _check_quotas(store, pod)
    return pod


def _priority(store: Store, name: str) -> int:
    if name in ("system-cluster-critical", "system-node-critical"):
        return 2_000_000_000 + (1000 if "node" in name else 0)
    if name:
        found = store.get("priorityclasses", name)
        if found is None:
            raise RequestRefused(403, "Forbidden", f'pods is forbidden: no PriorityClass with name "{name}" was found')
        return int(found["value"])
    default = next((each for each in store.all("priorityclasses") if each.get("globalDefault")), None)
    return int(default["value"]) if default is not None else 0


def _with_defaults(store: Store, pod: Json) -> list[Json] | None:
    """Return the containers with the default requests of LimitRanges, or None if there are none."""
    defaults: Json = {}
    for limits in store.all("limitranges"):
        if limits["metadata"]["namespace"] == pod["metadata"]["namespace"]:
            for item in limits["spec"].get("limits") or ():
                if item.get("type") == "Container":
                    defaults |= item.get("defaultRequest") or item.get("default") or {}
    if not defaults:
        return None
    return [
        merged(each, {"resources": {"requests": {**defaults, **(each.get("resources", {}).get("requests") or {})}}})
        for each in pod["spec"]["containers"]
    ]


def requests(pod: Json) -> dict[str, int]:
    """Return the sum of what the containers of *pod* request, by resource, in thousandths."""
    total: dict[str, int] = {}
    for container in pod["spec"]["containers"]:
        for name, text in (container.get("resources", {}).get("requests") or {}).items():
            total[name] = total.get(name, 0) + parse(text).millis
    return total


def usage(pod: Json) -> Iterator[tuple[str, int]]:
    """Yield what *pod* uses of quotas, by the names that quotas have for it."""
    yield "pods", 1000
    yield "count/pods", 1000
    for name, amount in requests(pod).items():
        yield f"requests.{name}", amount
        if name in ("cpu", "memory"):
            yield name, amount


def quota_usage(store: Store, quota: Json) -> dict[str, int]:
    """Return what the pods of the namespace of *quota* use of it."""
    used: dict[str, int] = dict.fromkeys(quota["spec"].get("hard") or {}, 0)
    for pod in store.all("pods"):
        ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        if pod["metadata"]["namespace"] == quota["metadata"]["namespace"] and not ended:
            for name, amount in usage(pod):
                if name in used:
                    used[name] += amount
    return used


def _check_quotas(store: Store, pod: Json) -> None:
    for quota in store.all("resourcequotas"):
        if quota["metadata"]["namespace"] != pod["metadata"]["namespace"] or quota["spec"].get("scopes"):
            continue
        used, hard, asked = quota_usage(store, quota), quota["spec"].get("hard") or {}, dict(usage(pod))
        over = [name for name in hard if name in asked and used[name] + asked[name] > parse(hard[name]).millis]
        if over:
            named = ",".join(f"{name}={hard[name]}" for name in over)
            raise RequestRefused(
                403,
                "Forbidden",
                f'pods "{pod["metadata"]["name"]}" is forbidden: exceeded quota: {quota["metadata"]["name"]}, '
                f"limited: {named}",
            )
