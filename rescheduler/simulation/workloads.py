"""The controllers of ReplicaSets, Deployments and StatefulSets. Sources: ``kubernetes/pkg/controller``."""

from typing import Any, Final

from rescheduler.simulation.api import ApiServer
from rescheduler.simulation.eviction import is_ready
from rescheduler.simulation.reconciling import (
    Reconciler,
    active,
    digest,
    finished,
    own_pods,
    pod_of,
    reference,
    share,
    with_condition,
)
from rescheduler.simulation.requests import RequestRefused
from rescheduler.simulation.store import KINDS, Json, controller_of, key_of
from rescheduler.simulation.times import seconds_since

_HASH: Final = "pod-template-hash"
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_REVISION: Final = "deployment.kubernetes.io/revision"
_RESTARTED: Final = "controller-revision-hash"


class PodOwner(Reconciler):
    """A controller of pods: it is called when one of its pods changes."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server)
        self.follow("pods")

    def new_name(self, base: str) -> str:
        return f"{base}-{''.join(self._random.choice(_LETTERS) for _ in range(5))}"

    def create_pods(self, owner: Json, pods: list[Json]) -> str:
        """Create *pods* until one is rejected. Return why, or ""."""
        for pod in pods:
            try:
                self.server.create(KINDS["pods"], pod)
            except RequestRefused as refused:
                self.record(owner, "FailedCreate", f"Error creating: {refused.message}")
                return refused.message
        return ""

    def is_available(self, pod: Json, seconds: int) -> bool:
        """Return whether *pod* has been Ready for *seconds*. If not, the owner is looked at again when it will be."""
        if not is_ready(pod):
            return False
        since = next(each for each in pod["status"]["conditions"] if each["type"] == "Ready").get("lastTransitionTime")
        left = seconds - seconds_since(since, self.engine.time) if seconds else 0.0
        if left > 0:
            owner = controller_of(pod)
            assert owner is not None
            self.enqueue(f"{pod['metadata']['namespace']}/{owner['name']}", left + 0.1)
        return left <= 0


class ReplicaSets(PodOwner):
    plural = "replicasets"

    def reconcile(self, item: Json) -> None:
        spec, owned = item["spec"], own_pods(self.store, item)
        pods, wanted, failure = active(owned), spec.get("replicas", 1), ""
        if not item["metadata"].get("deletionTimestamp"):
            template = {**spec["template"], "metadata": {**(spec["template"].get("metadata") or {})}}
            missing = wanted - len(pods)
            if missing > 0:
                name = item["metadata"]["name"]
                failure = self.create_pods(
                    item, [pod_of(item, self.plural, template, self.new_name(name)) for _ in range(missing)]
                )
            for pod in sorted(pods, key=_deletion_rank)[:-missing] if missing < 0 else ():
                self.server.deletion.delete_pod(pod)
            if missing:
                pods = active(own_pods(self.store, item))
        ready, settling = sum(map(is_ready, pods)), spec.get("minReadySeconds", 0)
        now = self.engine.timestamp
        present = item.get("status", {}).get("conditions") or ()
        if not failure or all(each["type"] != "ReplicaFailure" for each in present):  # a new message is not written
            text = "True" if failure else None
            present = with_condition(item, now, "ReplicaFailure", text, "FailedCreate", failure)
        self.set_status(
            item,
            replicas=len(pods),
            readyReplicas=ready,
            availableReplicas=sum(self.is_available(pod, settling) for pod in pods) if settling else ready,
            observedGeneration=item["metadata"].get("generation", 1),
            conditions=list(present),
        )
        if failure:
            raise RequestRefused(403, "Forbidden", failure)


def _deletion_rank(pod: Json) -> tuple[Any, ...]:
    """Return the order in which surplus pods are deleted (``ActivePodsWithRanks``, without the ranks)."""
    status = pod.get("status", {})
    bound, running = bool(pod["spec"].get("nodeName")), status.get("phase") == "Running"
    created = pod["metadata"].get("creationTimestamp", "")
    return bound, running, is_ready(pod), [-ord(letter) for letter in created]


class SimulatedDeployments(Reconciler):
    plural = "deployments"

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server)
        self.follow("replicasets")

    def reconcile(self, item: Json) -> None:
        if item["metadata"].get("deletionTimestamp"):
            return
        owned = sorted(
            self.store.owned_by(item["metadata"]["uid"], "replicasets"), key=lambda each: str(each["metadata"]["name"])
        )
        spec, wanted = item["spec"], item["spec"].get("replicas", 1)
        newest = next((each for each in owned if _same_template(each, item)), None)
        if newest is None and not spec.get("paused"):
            newest = self._create(item, owned)
            owned.append(newest)
        if newest is not None and not spec.get("paused"):
            self._roll(item, newest, [each for each in owned if each is not newest], wanted)
        elif newest is not None and newest["spec"].get("replicas") != wanted and len(owned) == 1:
            self._scale(newest, wanted)
        self._report(item, newest)

    def _create(self, item: Json, owned: list[Json]) -> Json:
        template = item["spec"]["template"]
        code = digest(template)
        labels = {**((template.get("metadata") or {}).get("labels") or {}), _HASH: code}
        numbers = [int((each["metadata"].get("annotations") or {}).get(_REVISION, 0)) for each in owned]
        meta = {
            "name": f"{item['metadata']['name']}-{code}",
            "namespace": item["metadata"]["namespace"],
            "labels": labels,
            "annotations": {_REVISION: str(max(numbers, default=0) + 1)},
            "ownerReferences": [reference(item, "apps/v1", "Deployment")],
        }
        selector = {
            **item["spec"]["selector"],
            "matchLabels": {**(item["spec"]["selector"].get("matchLabels") or {}), _HASH: code},
        }
        of_template = {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}}
        spec = {"replicas": 0, "selector": selector, "template": of_template}
        if "minReadySeconds" in item["spec"]:
            spec["minReadySeconds"] = item["spec"]["minReadySeconds"]
        return self.server.create(KINDS["replicasets"], {"metadata": meta, "spec": spec})

    def _roll(self, item: Json, newest: Json, others: list[Json], wanted: int) -> None:
        """Scale the newest ReplicaSet up, and the others down, within the limits of the strategy."""
        olds = [each for each in others if each["spec"].get("replicas", 0)]
        if not olds:
            self._scale(newest, wanted)
            return
        strategy = item["spec"].get("strategy") or {}
        if strategy.get("type") == "Recreate":
            for old in olds:
                self._scale(old, 0)
            if not any(active(own_pods(self.store, old)) for old in others):
                self._scale(newest, wanted)
            return
        limits = strategy.get("rollingUpdate") or {}
        surge = share(limits.get("maxSurge", "25%"), wanted, up=True)
        lost = share(limits.get("maxUnavailable", "25%"), wanted, up=False)
        lost = 1 if not surge and not lost else lost
        total = sum(each["spec"].get("replicas", 0) for each in (*olds, newest))
        room = wanted + surge - total
        if room > 0 and newest["spec"].get("replicas", 0) < wanted:
            self._scale(newest, min(wanted, newest["spec"].get("replicas", 0) + room))
            return
        least = wanted - lost
        new_missing = newest["spec"].get("replicas", 0) - newest.get("status", {}).get("availableReplicas", 0)
        spare = total - least - max(new_missing, 0)
        for old in olds:
            unhealthy = old["spec"]["replicas"] - old.get("status", {}).get("availableReplicas", 0)
            down = min(max(spare, 0), max(unhealthy, 0))
            if down:
                self._scale(old, old["spec"]["replicas"] - down)
                return
        up = sum(each.get("status", {}).get("availableReplicas", 0) for each in (*olds, newest))
        spare = min(spare, up - least)
        for old in olds:
            down = min(max(spare, 0), old["spec"]["replicas"])
            if down:
                self._scale(old, old["spec"]["replicas"] - down)
                spare -= down

    def _scale(self, replica_set: Json, replicas: int) -> None:
        if replica_set["spec"].get("replicas") != replicas:
            self.store.patch("replicasets", key_of(replica_set), {"spec": {"replicas": replicas}})

    def _report(self, item: Json, newest: Json | None) -> None:
        owned = list(self.store.owned_by(item["metadata"]["uid"], "replicasets"))
        sums = {
            name: sum(each.get("status", {}).get(name) or 0 for each in owned)
            for name in ("replicas", "readyReplicas", "availableReplicas")
        }
        key = None if newest is None else key_of(newest)
        current = self.store.get("replicasets", key) if key is not None else None
        updated = (current or {}).get("status", {}).get("replicas") or 0
        wanted, now = item["spec"].get("replicas", 1), self.engine.timestamp
        done = updated == wanted == sums["replicas"] == sums["availableReplicas"]
        conditions = with_condition(item, now, "Available", "True" if sums["availableReplicas"] >= wanted else "False")
        item = {**item, "status": {**item.get("status", {}), "conditions": conditions}}
        conditions = with_condition(item, now, "Progressing", *self._progress(item, sums, updated, done=done))
        failures = [
            each
            for one in owned
            for each in one.get("status", {}).get("conditions") or ()
            if each["type"] == "ReplicaFailure"
        ]
        conditions = [each for each in conditions if each["type"] != "ReplicaFailure"] + failures[:1]
        self.set_status(
            item,
            **sums,
            updatedReplicas=updated,
            unavailableReplicas=max(wanted - sums["availableReplicas"], 0) or None,
            observedGeneration=item["metadata"].get("generation", 1),
            conditions=conditions,
        )

    def _progress(self, item: Json, sums: dict[str, int], updated: int, *, done: bool) -> tuple[str, str, str]:
        """Return status, reason and message of the condition Progressing."""
        status = item.get("status", {})
        before: Json = next((each for each in status.get("conditions") or () if each["type"] == "Progressing"), {})
        if done:
            return "True", "NewReplicaSetAvailable", "the rollout is complete"
        moved = (updated, sums["readyReplicas"]) != (status.get("updatedReplicas"), status.get("readyReplicas"))
        deadline = item["spec"].get("progressDeadlineSeconds", 600)
        if moved or before.get("reason") == "NewReplicaSetAvailable":
            self.enqueue(key_of(item), deadline + 1)
            self._moved = {**getattr(self, "_moved", {}), key_of(item): self.engine.now}
            return "True", "ReplicaSetUpdated", "the rollout is progressing"
        if self.engine.now - getattr(self, "_moved", {}).get(key_of(item), self.engine.now) > deadline:
            return "False", "ProgressDeadlineExceeded", "the rollout has not made progress in time"
        return (
            str(before.get("status", "True")),
            str(before.get("reason", "ReplicaSetUpdated")),
            str(before.get("message", "the rollout is progressing")),
        )


def _same_template(replica_set: Json, deployment: Json) -> bool:
    """Return whether a ReplicaSet has the template of *deployment*, apart from the label with its hash."""
    one, other = replica_set["spec"]["template"], deployment["spec"]["template"]
    if one.get("spec") != other.get("spec"):
        return False
    metas = []
    for template in (one, other):
        meta = template.get("metadata") or {}
        labels = {name: value for name, value in (meta.get("labels") or {}).items() if name != _HASH}
        metas.append((labels, meta.get("annotations") or {}))
    return metas[0] == metas[1]


class StatefulSets(PodOwner):
    plural = "statefulsets"

    def reconcile(self, item: Json) -> None:
        if item["metadata"].get("deletionTimestamp"):
            return
        spec, name = item["spec"], item["metadata"]["name"]
        wanted = spec.get("replicas", 1)
        parallel = spec.get("podManagementPolicy") == "Parallel"
        start = (spec.get("ordinals") or {}).get("start", 0)
        pods = {int(pod["metadata"]["name"].rpartition("-")[2]): pod for pod in own_pods(self.store, item)}
        current, update = self._revisions(item)
        failure = ""
        for ordinal in range(start, start + wanted):
            pod = pods.get(ordinal)
            if pod is not None and finished(pod):
                self.server.deletion.delete_pod(pod)
                break
            if pod is None:
                partition = ((spec.get("updateStrategy") or {}).get("rollingUpdate") or {}).get("partition", 0)
                revision = update if ordinal >= partition else current
                failure = self._create(item, f"{name}-{ordinal}", ordinal, revision)
            ready = pod is not None and not pod["metadata"].get("deletionTimestamp") and is_ready(pod)
            if failure or (not parallel and not ready):
                break
        else:
            self._shrink(pods, start + wanted, parallel=parallel) or self._update(item, pods, start, update)
        self._report(item, current, update)
        if failure:
            raise RequestRefused(403, "Forbidden", failure)

    def _revisions(self, item: Json) -> tuple[str, str]:
        status = item.get("status", {})
        if "updateRevision" not in status:
            revision = f"{item['metadata']['name']}-{digest(item['spec']['template'])}"
            return revision, revision
        if status.get("templateDigest", digest(item["spec"]["template"])) == digest(item["spec"]["template"]):
            return status.get("currentRevision", status["updateRevision"]), status["updateRevision"]
        return status["currentRevision"], f"{item['metadata']['name']}-{digest(item['spec']['template'])}"

    def _create(self, item: Json, name: str, ordinal: int, revision: str) -> str:
        volumes = []
        for claim in item["spec"].get("volumeClaimTemplates") or ():
            claim_name = f"{claim['metadata']['name']}-{name}"
            volumes.append({"name": claim["metadata"]["name"], "persistentVolumeClaim": {"claimName": claim_name}})
            key = f"{item['metadata']['namespace']}/{claim_name}"
            if self.store.get("persistentvolumeclaims", key) is None:
                meta = {"name": claim_name, "namespace": item["metadata"]["namespace"]}
                self.store.create(
                    "persistentvolumeclaims", {"metadata": meta, "spec": claim["spec"], "status": {"phase": "Pending"}}
                )
        labels = {
            _RESTARTED: revision,
            "statefulset.kubernetes.io/pod-name": name,
            "apps.kubernetes.io/pod-index": str(ordinal),
        }
        pod = pod_of(item, self.plural, item["spec"]["template"], name, labels)
        if volumes:
            kept = [
                each
                for each in pod["spec"].get("volumes") or ()
                if each["name"] not in {one["name"] for one in volumes}
            ]
            pod["spec"] = {**pod["spec"], "volumes": [*kept, *volumes]}
        return self.create_pods(item, [pod])

    def _shrink(self, pods: dict[int, Json], end: int, *, parallel: bool) -> bool:
        """Delete the pods with the highest ordinals. Return whether there are any."""
        surplus = sorted((ordinal for ordinal in pods if ordinal >= end), reverse=True)
        for ordinal in surplus if parallel else surplus[:1]:
            if not pods[ordinal]["metadata"].get("deletionTimestamp"):
                self.server.deletion.delete_pod(pods[ordinal])
        return bool(surplus)

    def _update(self, item: Json, pods: dict[int, Json], start: int, update: str) -> bool:
        """Delete the pod with the highest ordinal that has an older revision, one at a time."""
        strategy = item["spec"].get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete":
            return False
        partition = (strategy.get("rollingUpdate") or {}).get("partition", 0)
        for ordinal in sorted(pods, reverse=True):
            pod = pods[ordinal]
            if ordinal < max(partition, start):
                break
            if (pod["metadata"].get("labels") or {}).get(_RESTARTED, update) != update:
                if not pod["metadata"].get("deletionTimestamp"):
                    self.server.deletion.delete_pod(pod)
                return True
            if not is_ready(pod) or pod["metadata"].get("deletionTimestamp"):
                return True
        return False

    def _report(self, item: Json, current: str, update: str) -> None:
        pods = active(own_pods(self.store, item))
        updated = sum((pod["metadata"].get("labels") or {}).get(_RESTARTED, update) == update for pod in pods)
        done = updated == item["spec"].get("replicas", 1) == sum(map(is_ready, pods))
        self.set_status(
            item,
            replicas=len(pods),
            readyReplicas=sum(map(is_ready, pods)),
            availableReplicas=sum(self.is_available(pod, item["spec"].get("minReadySeconds", 0)) for pod in pods),
            currentRevision=update if done else current,
            updateRevision=update,
            updatedReplicas=updated,
            templateDigest=digest(item["spec"]["template"]),
            observedGeneration=item["metadata"].get("generation", 1),
        )
