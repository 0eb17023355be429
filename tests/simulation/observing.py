"""The history of a simulated cluster as the observer of the invariants reads it: revisions, the daemon's writes from
the audit log, and the machines that it ended.
"""

import datetime as dt
import hashlib
import math
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from rescheduler.draining.actions import ANNOTATION
from rescheduler.planning.pauses import PAUSED
from rescheduler.simulation.engine import Process
from rescheduler.simulation.machines import Termination
from rescheduler.simulation.requests import ApiRequest, Target
from rescheduler.simulation.store import StoredChange
from rescheduler.simulation.world import World
from tests.invariants.history import History, ObservedTermination, Revision, SentWrite
from tests.invariants.judging import Judgement, judge
from tests.invariants.objects import SeenBudget, SeenNode, SeenObject, SeenPod, SeenWorkload
from tests.invariants.replay import SeenDrain
from tests.invariants.rules import Rules
from tests.invariants.table import INVARIANTS
from tests.simulation.sent_requests import SentRequests

_SHAPES: Final[dict[str, type[SeenObject]]] = {
    "pods": SeenPod,
    "nodes": SeenNode,
    "poddisruptionbudgets": SeenBudget,
    "deployments": SeenWorkload,
    "replicasets": SeenWorkload,
    "statefulsets": SeenWorkload,
    "jobs": SeenWorkload,
}


class SimulatedWatchdog:
    """Watches *world* from now on."""

    def __init__(self, world: World, rules: Rules) -> None:
        self._world = world
        self._rules = rules
        self._since = world.engine.time
        self._began = self._since - dt.timedelta(seconds=world.engine.now)
        self._revisions: list[Revision] = []
        self._writes: list[SentWrite] = []
        self._terminations: list[ObservedTermination] = []
        self._last: dict[str, SeenObject] = {}
        self._pod = ""  # the UID of the pod that changed last
        self._pauses: list[tuple[dt.datetime, dt.datetime | None]] = []  # when a user paused drains: begin and end
        self._requests = SentRequests(world, rules)
        initial = [
            self._seen(plural, stored.encoded, stored.revision, initial=True)
            for plural in _SHAPES
            for stored in world.store.tables[plural].values()
        ]
        self._revisions += [revision for revision in initial if revision is not None]
        world.store.listen_to_all(self._changed)
        world.network.audit.append(self._sent)
        world.machines.on_end.append(self._ended)

    def judgement(self) -> Judgement:
        """Evaluate the history so far."""
        return judge(self.history(), self._rules, [invariant() for invariant in INVARIANTS.values()])

    def in_pauses(self, drains: Iterable[SeenDrain]) -> list[str]:
        """Return the *drains* that began, and the evictions that were sent, when drains were paused, after the lag."""
        acts = [(each.began, f"a drain of node {each.node} began") for each in drains if not each.restored]
        acts += [
            (write.received, f"pod {write.namespace}/{write.name} was evicted")
            for write in self._writes
            if write.kind == "pods/eviction" and write.accepted and not write.dry_run
        ]
        lag, now = dt.timedelta(seconds=self._rules.lag), self._world.engine.time
        return [
            f"{at:%H:%M:%S.%f} promise (nothing begins while drains are paused): {what}"
            for at, what in sorted(acts)
            if any(begin + lag < at < (end or now) for begin, end in self._pauses)
        ]

    def of_requests(self) -> list[str]:
        """Return the promises that single requests of the daemon have broken."""
        return self._requests.broken(self._terminations, self._revisions)

    def history(self) -> History:
        ended, nodes = self._world.machines.ended, list(self._world.store.all("nodes"))
        recent = self._world.engine.now - self._rules.slack  # their Nodes may still go
        return History(
            since=self._since,
            until=self._world.engine.time,
            revisions=tuple(sorted(self._revisions, key=lambda revision: revision.order)),
            writes=tuple(self._writes),
            terminations=tuple(self._terminations),
            kept_nodes=tuple(
                node["metadata"]["name"]
                for node in nodes
                if ended.get(node["spec"].get("providerID", ""), math.inf) > recent
            ),
        )

    def _seen(
        self, plural: str, encoded: bytes, number: int, *, gone: bool = False, initial: bool = False
    ) -> Revision | None:
        """Return the revision, or None if no field that is used has changed."""
        item: SeenObject = msgspec.json.decode(encoded, type=_SHAPES[plural])
        if isinstance(item, SeenWorkload):
            template = msgspec.json.encode(item.spec.template, order="deterministic")
            spec = msgspec.structs.replace(item.spec, template=hashlib.sha256(template).hexdigest()[:16])
            kind = msgspec.json.decode(encoded)["kind"]
            item = msgspec.structs.replace(item, kind=kind, spec=spec)
        plain = msgspec.structs.replace(item, metadata=msgspec.structs.replace(item.metadata, resource_version="0"))
        uid = item.metadata.uid
        if not gone and self._last.get(uid) == plain:
            return None
        self._last[uid] = plain
        return Revision(number, self._world.engine.time, item, gone, initial)

    def _changed(self, plural: str, change: StoredChange) -> None:
        if plural == "leases" and change.after.object["metadata"]["name"] == self._rules.lease:
            paused = PAUSED in (change.after.object["metadata"].get("annotations") or {})
            lasts = bool(self._pauses) and self._pauses[-1][1] is None
            if paused and not lasts:
                self._pauses.append((self._world.engine.time, None))
            elif lasts and not paused:
                self._pauses[-1] = self._pauses[-1][0], self._world.engine.time
        if plural == "pods":
            self._pod = change.after.object["metadata"]["uid"]
        if plural in _SHAPES:
            gone = change.type == "DELETED"
            revision = self._seen(plural, change.after.encoded, change.after.revision, gone=gone)
            if revision is not None:
                self._revisions.append(revision)

    def _sent(
        self, process: Process, request: ApiRequest, target: Target | None, received: float, code: int, body: bytes
    ) -> None:
        if request.method == "GET" or target is None or target.plural == "events":
            return
        sent: dict[str, Any] = request.body if isinstance(request.body, dict) else {}
        meta = sent.get("metadata") or {}
        name = target.name or meta.get("name", "")
        is_lease = (target.plural, target.namespace, name) == ("leases", self._rules.namespace, self._rules.lease)
        mark = (meta.get("annotations") or {}).get(ANNOTATION) if target.plural == "nodes" else None
        answer = msgspec.json.decode(body) if is_lease else {}
        self._writes.append(
            SentWrite(
                verb=request.method.lower(),
                kind=f"{target.plural}/{target.subresource}" if target.subresource else target.plural,
                namespace=target.namespace,
                name=name,
                user="simulated",
                pod=process.name,
                code=code,
                received=self._began + dt.timedelta(seconds=received),
                handled=self._world.engine.time,
                dry_run=request.dry_run,
                uid=self._pod if target.subresource == "eviction" else "",  # the pod that it has reached
                holder=((answer.get("spec") or {}).get("holderIdentity") or "") if is_lease else None,
                mark_holder=str(msgspec.json.decode(mark)["holder"]) if isinstance(mark, str) else "",
            )
        )

    def _ended(self, termination: Termination) -> None:
        if termination.by == "daemon":
            at = self._began + dt.timedelta(seconds=termination.at)
            looked = self._requests.looked(termination)
            self._terminations.append(ObservedTermination(at, termination.machine, termination.node, True, looked))
            self._requests.ordered(termination)
