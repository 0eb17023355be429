"""A simulated cluster whose on-demand nodes are NodeClaims: the daemon deletes them, Karpenter ends the machines."""

import random
from collections.abc import Callable, Iterable
from typing import Final

from predicates.objects.pods import DO_NOT_DISRUPT, KARPENTER, NODE_POOL
from rescheduler.clock import Clock
from rescheduler.observe.events import Event
from rescheduler.providers.base import CloudProvider
from rescheduler.providers.karpenter import KarpenterProvider
from rescheduler.simulation.daemon import DaemonSettings
from rescheduler.simulation.machines import Termination
from rescheduler.simulation.store import Json, ServedKind, StoredChange
from rescheduler.simulation.world import World, WorldSettings

_KINDS: Final = {
    plural: ServedKind(plural, kind, KARPENTER, namespaced=False)
    for plural, kind in (("nodepools", "NodePool"), ("nodeclaims", "NodeClaim"))
}
_FINALIZERS: Final = [f"{KARPENTER}/termination"]
#: What a NodePool says.
_SPECS: Final[tuple[Json, ...]] = (
    {},
    {"disruption": {"consolidateAfter": "Never", "budgets": [{"nodes": "0"}]}},
    {"disruption": {"budgets": [{"nodes": "1"}]}},
    {"limits": {"nodes": "6"}},
    {"replicas": 1},
    {"replicas": 2},
)
#: What nine of ten NodeClaims are like; the others are protected, or their nodes have none.
_PROTECTED: Final[tuple[Json, ...]] = ({"finalizers": []}, {"annotations": {DO_NOT_DISRUPT: "true"}})

#: Seconds from the deletion of a NodeClaim until Karpenter has deleted the Node of its empty machine.
_NODE_SECONDS: Final = 25.0


class ClaimedWorld(World):
    """The world of a course, with one or two NodePools."""

    def __init__(
        self,
        items: Iterable[Json],
        settings: WorldSettings,
        daemon: DaemonSettings,
        report: Callable[[str, Event], None] = lambda _, __: None,
    ) -> None:
        super().__init__(items, settings, daemon, report)
        self.broken: list[str] = []  #: deletions that the daemon must not have ordered
        self._choice = random.Random(f"NodePools of {settings.seed}")
        self._pools = {f"pool-{number}": self._choice.choice(_SPECS) for number in range(self._choice.choice((1, 2)))}
        self.server.custom |= _KINDS
        for name, spec in self._pools.items():
            self.store.create("nodepools", {"metadata": {"name": name}, "spec": spec})
        for node in self.store.all("nodes"):
            self._claim(node)
        self.store.listen("nodes", self._node_changed)
        self.store.listen("nodeclaims", self._claim_changed)
        self.machines.on_end.append(self._machine_ended)

    def _provider(self, clock: Clock) -> CloudProvider:
        return KarpenterProvider(clock)

    def _node_changed(self, change: StoredChange) -> None:
        node = change.after.object
        if change.type == "ADDED":
            self.engine.after(0.0, lambda: self._claim(node))
        elif change.type == "DELETED":
            for claim in self._claims(node["spec"].get("providerID", "")):
                self.store.delete("nodeclaims", claim["metadata"]["name"])

    def _claim(self, node: Json) -> None:
        """Give an on-demand node the label of its NodePool, and its NodeClaim."""
        current = self.store.get("nodes", node["metadata"]["name"])
        if current is None or current["metadata"]["uid"] != node["metadata"]["uid"] or not self.is_on_demand(node):
            return
        name, pool = current["metadata"]["name"], self._choice.choice(sorted(self._pools))
        if self._choice.random() < 1 / 20:
            return
        self.store.patch("nodes", name, {"metadata": {"labels": {NODE_POOL: pool}}})
        special = self._choice.choice(_PROTECTED) if self._choice.random() < 1 / 20 else {}
        meta = {"name": f"claim-{current['metadata']['uid'][:8]}", "labels": {NODE_POOL: pool}}
        status = {"nodeName": name, "providerID": current["spec"]["providerID"]}
        item = {"metadata": {**meta, "finalizers": _FINALIZERS, **special}, "status": status}
        self.store.create("nodeclaims", item)

    def _claims(self, provider_id: str) -> list[Json]:
        return [each for each in self.store.all("nodeclaims") if each["status"]["providerID"] == provider_id]

    def _claim_changed(self, change: StoredChange) -> None:
        """End the machine of a NodeClaim that the daemon has deleted: nobody else deletes one by a request."""
        claim, before = change.after.object, change.before
        machine, is_gone = claim["status"]["providerID"], change.type == "DELETED"
        ends = is_gone or "deletionTimestamp" in claim["metadata"]
        if before is None or not ends or "deletionTimestamp" in before["metadata"] or machine in self.machines.ended:
            return
        node = self.store.get("nodes", claim["status"]["nodeName"])
        if node is None or node["spec"].get("providerID") != machine:
            return
        self._check(claim, node)
        if is_gone:
            return  # without a finalizer, Karpenter does not end the machine
        slow = self._choice.random() < self.settings.pool.slow
        ordered = self.engine.now
        self.engine.after(self._choice.uniform(60, 300) if slow else 0.0, lambda: self._end(node, ordered))

    def _end(self, node: Json, ordered: float) -> None:
        meta = node["metadata"]
        self.machines.end(node, "daemon", ordered)
        self.engine.after(_NODE_SECONDS, lambda: self.kubelets.delete_node(meta["name"], meta["uid"]))

    def _check(self, claim: Json, node: Json) -> None:
        """Note what is wrong with an order of the daemon at the moment at which it is accepted.

        The marks of the Node are compared by the observer, which knows how old a last look may be.
        """
        name, meta, pool = node["metadata"]["name"], claim["metadata"], claim["metadata"]["labels"][NODE_POOL]
        alive = [
            each
            for each in self.store.all("nodeclaims")
            if each["metadata"]["labels"][NODE_POOL] == pool and "deletionTimestamp" not in each["metadata"]
        ]
        least = self._pools[pool].get("replicas", 0)
        wrong = {
            f"NodePool {pool} has {len(alive)} of {least} nodes": len(alive) < least,
            "the NodeClaim has no finalizer": not meta.get("finalizers"),
            "the NodeClaim is protected": DO_NOT_DISRUPT in meta.get("annotations", {}),
        }
        text = f"{self.engine.timestamp} promise (NodeClaims): that of node {name} was deleted although"
        self.broken += [f"{text} {why}" for why, is_so in wrong.items() if is_so]

    def _machine_ended(self, termination: Termination) -> None:
        """Delete the NodeClaim of a machine that the cloud has taken, or that Karpenter has ended by itself."""
        for claim in self._claims(termination.machine):
            if "deletionTimestamp" not in claim["metadata"]:
                change = {"metadata": {"deletionTimestamp": self.engine.timestamp}}
                self.store.patch("nodeclaims", claim["metadata"]["name"], change)
