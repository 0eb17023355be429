"""The controllers of DaemonSets, Jobs, CronJobs and owners that are not built in."""

from collections.abc import Sequence
from typing import Final

from rescheduler.simulation.api import ApiServer
from rescheduler.simulation.reconciling import active, finished, own_pods, pod_of, with_condition
from rescheduler.simulation.requests import RequestRefused
from rescheduler.simulation.selectors import accepts
from rescheduler.simulation.store import KINDS, Json, StoredChange, controller_of, key_of
from rescheduler.simulation.workloads import PodOwner

_TOLERATED: Final = tuple(
    {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": effect}
    for name, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)


class DaemonSets(PodOwner):
    """A pod on each node that its node selector, node affinity and tolerations allow."""

    plural = "daemonsets"

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server)
        self.store.listen("nodes", self._node_changed)

    def _node_changed(self, change: StoredChange) -> None:
        if change.before is None or change.before["spec"] != change.after.object["spec"] or change.type == "DELETED":
            self.enqueue_all()

    def reconcile(self, item: Json) -> None:
        if item["metadata"].get("deletionTimestamp"):
            return
        template = item["spec"]["template"]
        by_node: dict[str, list[Json]] = {}
        for pod in own_pods(self.store, item):
            by_node.setdefault(_node_of(pod), []).append(pod)
        new = []
        for node in self.store.all("nodes"):
            name = node["metadata"]["name"]
            there = by_node.pop(name, [])
            if self._belongs(template["spec"], node):
                if not there:
                    new.append(self._pod(item, template, name))
                for pod in there:
                    if finished(pod):
                        self.server.deletion.delete_pod(pod)
        for pods in by_node.values():
            for pod in active(pods):
                self.server.deletion.delete_pod(pod)
        if why := self.create_pods(item, new):
            raise RequestRefused(403, "Forbidden", why)

    def _belongs(self, spec: Json, node: Json) -> bool:
        return accepts(spec, node) and tolerates_all(
            [*(spec.get("tolerations") or ()), *_TOLERATED], node["spec"].get("taints") or ()
        )

    def _pod(self, item: Json, template: Json, node: str) -> Json:
        pod = pod_of(item, self.plural, template, self.new_name(item["metadata"]["name"]))
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        tolerations = [*(template["spec"].get("tolerations") or ()), *_TOLERATED]
        pod["spec"] = {**template["spec"], "affinity": affinity, "tolerations": tolerations}
        return pod


def _node_of(pod: Json) -> str:
    """Return the node of a pod of a DaemonSet, also before it is bound."""
    if name := pod["spec"].get("nodeName"):
        return str(name)
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])


def tolerates_all(tolerations: Sequence[Json], taints: Sequence[Json]) -> bool:
    """Return whether *tolerations* tolerate all *taints* that keep pods away."""
    hard = [taint for taint in taints if taint["effect"] != "PreferNoSchedule"]
    return all(any(tolerates(each, taint) for each in tolerations) for taint in hard)


def tolerates(toleration: Json, taint: Json) -> bool:
    """Return whether *toleration* tolerates *taint*."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key", "") and toleration["key"] != taint.get("key", ""):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


class Jobs(PodOwner):
    plural = "jobs"

    def reconcile(self, item: Json) -> None:
        spec, status = item["spec"], item.get("status", {})
        if item["metadata"].get("deletionTimestamp") or _is_done(status) or spec.get("suspend"):
            return
        owned = own_pods(self.store, item)
        succeeded = max(sum(pod["status"].get("phase") == "Succeeded" for pod in owned), status.get("succeeded") or 0)
        failed = max(sum(pod["status"].get("phase") == "Failed" for pod in owned), status.get("failed") or 0)
        parallelism, completions = spec.get("parallelism", 1), spec.get("completions", 1)
        running = active(owned)
        conditions = list(status.get("conditions") or ())
        if succeeded >= completions:
            conditions = with_condition(item, self.engine.timestamp, "Complete", "True")
        elif failed > spec.get("backoffLimit", 6):
            conditions = with_condition(item, self.engine.timestamp, "Failed", "True", "BackoffLimitExceeded", "")
            for pod in running:
                self.server.deletion.delete_pod(pod)
        else:
            leaving = [pod for pod in owned if pod["metadata"].get("deletionTimestamp") and not finished(pod)]
            waits = spec.get("podReplacementPolicy") == "Failed"
            missing = min(parallelism, completions - succeeded) - len(running) - (len(leaving) if waits else 0)
            name = item["metadata"]["name"]
            pods = [pod_of(item, self.plural, spec["template"], self.new_name(name)) for _ in range(max(missing, 0))]
            if why := self.create_pods(item, pods):
                raise RequestRefused(403, "Forbidden", why)
        times = {"startTime": status.get("startTime") or self.engine.timestamp}
        if succeeded >= completions:
            times["completionTime"] = self.engine.timestamp
        count = len(active(own_pods(self.store, item)))
        self.set_status(item, active=count, succeeded=succeeded, failed=failed, conditions=conditions or None, **times)


def _is_done(status: Json) -> bool:
    return any(
        each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in status.get("conditions") or ()
    )


class CronJobs(PodOwner):
    """Creates a Job at each time of the schedule, whose fields are numbers, ``*`` and ``*/n``."""

    plural = "cronjobs"

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server)
        self.engine.every(60.0, self._tick)

    def reconcile(self, item: Json) -> None:
        pass

    def _tick(self) -> None:
        now = self.engine.time
        for item in self.store.all("cronjobs"):
            fields = item["spec"]["schedule"].split()
            values = (now.minute, now.hour, now.day, now.month, now.isoweekday() % 7)
            if not item["spec"].get("suspend") and all(map(_fires, fields, values)):
                self._start(item)

    def _start(self, item: Json) -> None:
        running = [
            job for job in self.store.owned_by(item["metadata"]["uid"], "jobs") if not _is_done(job.get("status", {}))
        ]
        if running and item["spec"].get("concurrencyPolicy") == "Forbid":
            return
        template = item["spec"]["jobTemplate"]
        minutes = int(self.engine.time.timestamp() // 60)
        job = pod_of(item, self.plural, template, f"{item['metadata']['name']}-{minutes}")
        if self.store.get("jobs", key_of(job)) is None:
            self.server.create(KINDS["jobs"], job)


def _fires(field: str, value: int) -> bool:
    for part in field.split(","):
        text, _, step = part.partition("/")
        low, _, high = text.partition("-")
        if text == "*" and value % int(step or 1) == 0:
            return True
        if text != "*" and int(low) <= value <= int(high or low):
            return True
    return False


class SimulatedOwners:
    """Owners that are not built in: each creates a pod again under its name when it is gone."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._engine = server.store.engine
        server.store.listen("pods", self._changed)

    def _changed(self, change: StoredChange) -> None:
        owner, pod = controller_of(change.after.object), change.after.object
        if (
            change.type == "DELETED"
            and owner is not None
            and owner["kind"] not in {each.kind for each in KINDS.values()}
        ):
            self._engine.after(1.0, lambda: self._recreate(pod, owner))

    def _recreate(self, pod: Json, owner: Json) -> None:
        served = next((each for each in self._server.custom.values() if each.kind == owner["kind"]), None)
        key = f"{pod['metadata']['namespace']}/{owner['name']}"
        found = None if served is None else self._server.store.get(served.plural, key)
        if found is None or found["metadata"]["uid"] != owner["uid"]:
            return
        kept = ("name", "namespace", "labels", "annotations", "ownerReferences")
        meta = {name: pod["metadata"][name] for name in kept if name in pod["metadata"]}
        spec = {name: value for name, value in pod["spec"].items() if name != "nodeName"}
        if self._server.store.get("pods", key_of(pod)) is None:
            self._server.create(KINDS["pods"], {"metadata": meta, "spec": spec})
