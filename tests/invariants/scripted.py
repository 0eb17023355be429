"""Scripted histories: a Deployment `web` on the on-demand node `od`, and the spot node `spot`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from devcluster.manifests import ON_DEMAND, SPOT
from predicates.snapshot import DRAIN_TAINT
from rescheduler.draining.actions import ANNOTATION
from tests.invariants.history import History, ObservedTermination, Revision, SentWrite, seconds
from tests.invariants.judging import judge
from tests.invariants.objects import SeenNode, SeenPod, SeenWorkload
from tests.invariants.rules import Rules
from tests.invariants.table import INVARIANTS

BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
RULES: Final = Rules(first_runs=True, landing_timeout=30.0, lag=5.0, slack=5.0, leftover=5.0, abandoned=20.0, look=5.0)
AGENT: Final = "system:serviceaccount:default:daemon"


@dataclass(slots=True)
class HistoryScript:
    """A builder of histories: each method adds a write; `after` advances the time."""

    rules: Rules = RULES
    clock: float = 0.0
    revisions: list[Revision] = field(default_factory=list)
    writes: list[SentWrite] = field(default_factory=list)
    terminations: list[ObservedTermination] = field(default_factory=list)
    _pods: dict[str, SeenPod] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lease("a_1")
        self.node("od", ON_DEMAND)
        self.node("spot", SPOT)
        self.workload(replicas=4)
        for number in range(4):
            self.pod(f"web-{number}")

    @property
    def at(self) -> datetime:
        return BEGIN + seconds(self.clock)

    def after(self, period: float) -> None:
        self.clock += period

    def node(
        self,
        name: str,
        label: str,
        mark: str = "",
        *,
        tainted: bool = True,
        holder: str = "a_1",
        uid: str = "",
        surge: str = "",
    ) -> None:
        """Write a node; *mark* is the step in the annotation, "" for no annotation."""
        rollout = {"namespace": "default", "name": surge} if surge else None
        annotation = {"holder": holder, "step": mark, "identity": self.rules.identity, "surge": rollout, "until": ""}
        node = {
            "metadata": {
                "name": name,
                "uid": uid or name,
                "labels": {label: "true"},
                "annotations": {ANNOTATION: json.dumps(annotation)} if mark else {},
            },
            "spec": {"taints": [{"key": DRAIN_TAINT.key, "effect": "NoSchedule"}] if mark and tainted else []},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }
        self._wrote(msgspec.convert(node, SeenNode))

    def mark(self, step: str = "draining") -> None:
        self.node("od", ON_DEMAND, step)

    def release(self) -> None:
        self.node("od", ON_DEMAND)

    def workload(
        self, replicas: int, template: str = "1", *, name: str = "web", kind: str = "Deployment", above: str = ""
    ) -> None:
        """Write a workload; *above* is the Deployment that controls it, "" for none."""
        meta: dict[str, Any] = {"name": name, "uid": name, "namespace": "default"}
        if above:
            meta["ownerReferences"] = [{"kind": "Deployment", "name": above, "uid": above, "controller": True}]
        item = {"metadata": meta, "spec": {"replicas": replicas, "template": template}, "kind": kind}
        self._wrote(msgspec.convert(item, SeenWorkload))

    def pod(
        self,
        name: str,
        node: str = "od",
        *,
        ready: bool = True,
        annotations: Mapping[str, str] = {},
        owner: str = "web",
        kind: str = "Deployment",
        namespace: str = "default",
        preempted: bool = False,
        priority: int = 0,
        created: bool = False,
        selector: Mapping[str, str] = {},
    ) -> None:
        """Write a pod. It has the time of its creation, which is now, if it is *created*."""
        meta: dict[str, Any] = {
            "name": name,
            "uid": name,
            "namespace": namespace,
            "annotations": dict(annotations),
            "ownerReferences": [{"kind": kind, "name": owner, "uid": owner, "controller": True}],
        }
        if created:
            meta["creationTimestamp"] = self.at
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        if preempted:
            conditions.append({"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"})
        status = {"phase": "Running", "conditions": conditions}
        spec = {"nodeName": node, "priority": priority, "nodeSelector": dict(selector)}
        pod = msgspec.convert({"metadata": meta, "spec": spec, "status": status}, SeenPod)
        self._pods[name] = pod
        self._wrote(pod)

    def lose(self, node: str) -> None:
        """Delete a Node; its pods say for a while that they run."""
        seen = msgspec.convert({"metadata": {"name": node, "uid": node}}, SeenNode)
        self._wrote(seen, gone=True)

    def delete(self, name: str) -> None:
        """Delete a pod immediately, by any client."""
        self._wrote(self._pods.pop(name), gone=True)

    def evict(self, name: str, *, replica: str = "a", namespace: str = "default") -> None:
        self.write("create", "pods/eviction", name, replica=replica, namespace=namespace)
        self.delete(name)

    def write(self, verb: str, kind: str, name: str, *, replica: str = "a", namespace: str = "default") -> None:
        self.writes.append(
            SentWrite(verb, kind, namespace, name, AGENT, replica, 201, self.at, self.at + seconds(0.01))
        )

    def lease(self, holder: str) -> None:
        sent = SentWrite(
            "patch", "leases", "default", self.rules.lease, AGENT, "", 200, self.at, self.at, holder=holder
        )
        self.writes.append(sent)

    def terminate(self, *, decrement: bool = True, looked: float | None = None) -> None:
        """End the machine. The daemon had *looked* at its node that many seconds before, if that is known."""
        at = None if looked is None else self.at - seconds(looked)
        self.terminations.append(ObservedTermination(self.at, "m1", "od", decrement, at))

    def violated(self) -> set[int]:
        """Return the numbers of the violated invariants."""
        history = History(BEGIN, self.at, tuple(self.revisions), tuple(self.writes), tuple(self.terminations))
        judged = judge(history, self.rules, [invariant() for invariant in INVARIANTS.values()])
        return {violation.invariant for violation in judged.violations}

    def _wrote(self, item: SeenPod | SeenNode | SeenWorkload, *, gone: bool = False) -> None:
        number = len(self.revisions) + 1
        self.revisions.append(Revision(number, self.at + seconds(0.02), item, gone))
