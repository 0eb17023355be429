"""The certificate against brute force: a pool is taken away, and the real scheduler's plugins place its pods.

The clusters are random and tight. Their plans keep the certificate; each pool of the state after the plan is judged by
the certificate and by brute force. Nothing tells in which order pods of equal priority arrive, so brute force allows
what the certificate refuses only if it finds places in several orders. It does not record which volumes and devices the
pods that it places have taken; refusals of pods that need any are counted apart. Pods with a negative priority need no
place, and are preempted as the scheduler's PostFilter does: by a dry run on each node, and of no others.
"""

import sys
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Final

import click

from devcluster.signals import exit_on_sigterm
from rescheduler.planning.outcome import Plan
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy, Survive
from rescheduler.planning.rules.candidates import why_not_target
from tests.conformance import ours
from tests.conformance.generate.admission import adds_labels, bind_again, own_labels
from tests.conformance.generate.world import ZONE, Json
from tests.conformance.oracle import Oracle, PluginError
from tests.conformance.plans import NOW, POLICY, with_new_claims
from tests.conformance.scores import scored_cluster, with_known_owners

_TYPE: Final = "node.kubernetes.io/instance-type"
#: The labels of pools, with their older names.
_ZONES: Final = (ZONE, "failure-domain.beta.kubernetes.io/zone")
_TYPES: Final = (_TYPE, "beta.kubernetes.io/instance-type")
#: The number of orders in which pods are placed, before a refusal counts as wrong.
_ORDERS: Final = 8
_MIRROR: Final = "kubernetes.io/config.mirror"
_DAEMONSET_POD: Final = "cluster-autoscaler.kubernetes.io/daemonset-pod"


@dataclass(slots=True)
class Tally:
    """How often the certificate and brute force agree."""

    clusters: int = 0
    plans: int = 0
    pools: int = 0
    pods: int = 0  #: of the lost pools
    certified: int = 0
    homeless: int = 0  #: pods of certified pools without a place by brute force
    refused: int = 0  #: pools that are not certified
    allowed: int = 0  #: those of them that brute force allows
    unrecorded: int = 0  #: the same, of pods that need volumes or devices, which brute force does not record
    failing: int = 0  #: pools that are left out: a plugin returns an error, such as for requests below 0

    def __str__(self) -> str:
        share = self.allowed / self.refused if self.refused else 0
        return (
            f"{self.clusters} clusters, {self.plans} drains, {self.pools} pools with {self.pods} pods: "
            f"{self.certified} certified, {self.homeless} homeless pods in them; {self.refused} refused, "
            f"{self.allowed} of them allowed by brute force ({share:.1%} of the refused, "
            f"{self.allowed / max(1, self.pools):.1%} of all), {self.unrecorded} without recording claims; "
            f"{self.failing} pools left out, for which a score plugin fails"
        )


def tight_cluster(seed: int) -> Json:
    """Return a random cluster whose nodes have little room: between 5 % and 90 % of what their pods request."""
    rng, snapshot = Random(seed), with_known_owners(scored_cluster(seed, "plannable"))
    table = ours.load(snapshot)
    factor = rng.choice((1.1, 1.3, 1.6))
    for item in snapshot["items"]:
        if item["kind"] == "Node":
            allocatable = item["status"].get("allocatable") or {}
            row = table.nodes.row[item["metadata"]["name"]]
            if "cpu" not in allocatable:
                continue
            used = int(table.nodes.allocatable[row, 1] - table.nodes.free[row, 1])
            room = max(100, int(used * rng.uniform(1.05, factor + 0.3)))
            allocatable["cpu"] = f"{min(room, int(table.nodes.allocatable[row, 1]))}m"
        elif item["kind"] == "Pod" and rng.random() < 0.2:
            item["spec"]["priority"] = rng.choice((-5, 100, 1000))
    return snapshot


def compare(oracle: Oracle, seed: int, tally: Tally) -> Iterator[str]:
    """Add the cluster of *seed* to *tally*. Yield the certified pools that have homeless pods by brute force."""
    given = tight_cluster(seed)
    cluster = ours.load(given, oracle.scheduler)
    policy = Policy(
        delete_non_replicated_pods=True,
        skip_nodes_with_local_storage=False,
        skip_nodes_with_system_pods=POLICY.skip_nodes_with_system_pods,
        survive=Survive.POOL,
    )
    planner, circumstances = Planner(cluster, policy), Circumstances(NOW)
    plans = planner.plan_all(circumstances).plans
    certificate = planner.certificate(circumstances, Survive.POOL, plans)
    state = _without_pods(_after(given, plans), {str(pod) for plan in plans for pod in plan.preempts})
    ending = {node.name for node in filter(None, cluster.nodes.nodes) if why_not_target(node) is not None}
    tally.clusters += 1
    tally.plans += len(plans)
    for pool in certificate.pools:
        lost = _BruteForce(oracle, state, pool.pool, ending, Random(seed))
        try:
            homeless = lost.run()
        except PluginError:
            tally.failing += 1
            continue
        tally.pools += 1
        tally.pods += len(lost.must_run)
        if pool.survived:
            tally.certified += 1
            tally.homeless += len(homeless)
            if homeless:
                yield f"seed {seed}, pool {pool.pool}: {homeless}"
        else:
            tally.refused += 1
            stuck = {pod for each in pool.homeless for pod in each.pods}
            if not homeless and lost.finds_places(_ORDERS):
                tally.unrecorded += lost.takes_volumes_or_devices(stuck)
                tally.allowed += not lost.takes_volumes_or_devices(stuck)


def _after(given: Json, plans: tuple[Plan, ...]) -> Json:
    """Return the state after *plans*: their nodes are gone with all that is on them, and their pods run elsewhere."""
    items = deepcopy(given["items"])
    labels_added = adds_labels(given["items"])
    nodes = {item["metadata"]["name"]: item for item in items if item["kind"] == "Node"}
    to = {str(placement.pod): placement.node for plan in plans for placement in plan.placements}
    for item in items:
        if item["kind"] == "Pod" and (node := to.get(_key(item))) is not None:
            item["metadata"]["uid"] += "-again"
            bind_again(item, nodes[node], labels_added=labels_added)
            item["status"] = {"phase": "Running"}
    return _without({**given, "items": items}, {plan.node for plan in plans})


def _without(given: Json, nodes: set[str]) -> Json:
    items = [
        item
        for item in given["items"]
        if not (item["kind"] in ("Node", "CSINode") and item["metadata"]["name"] in nodes)
        and not (item["kind"] == "Pod" and item["spec"].get("nodeName") in nodes)
    ]
    return {**given, "items": items}


def _without_pods(given: Json, keys: set[str]) -> Json:
    return {**given, "items": [item for item in given["items"] if item["kind"] != "Pod" or _key(item) not in keys]}


class _BruteForce:
    """The loss of one pool: its pods and the pending ones are scheduled by priority. Nodes *ending* are no places."""

    def __init__(self, oracle: Oracle, state: Json, pool: str, ending: set[str], rng: Random) -> None:
        self._oracle, self._rng = oracle, rng
        self._labels_added = adds_labels(state["items"])
        nodes = {item["metadata"]["name"] for item in state["items"] if item["kind"] == "Node" and _pool(item) == pool}
        lost = [item for item in state["items"] if item["kind"] == "Pod" and item["spec"].get("nodeName") in nodes]
        self.must_run = [_again(pod) for pod in lost if _comes_back(pod)]
        self._state = deepcopy(_without(state, nodes))
        self._nodes = {item["metadata"]["name"]: item for item in self._state["items"] if item["kind"] == "Node"}
        self._ending = ending
        self._lost = {_key(pod) for pod in self.must_run}
        self._state = with_new_claims({**self._state, "items": [*self._state["items"], *self.must_run]}, self._lost)

    def run(self, *, shuffled: bool = False) -> list[str]:
        """Return the pods of the pool without a place. Pending pods come first, unless the order is *shuffled*."""
        if not self.must_run:
            return []
        before = deepcopy(self._state)
        pods = [item for item in self._state["items"] if item["kind"] == "Pod"]
        waiting = [pod for pod in pods if _key(pod) in self._lost or _is_waiting(pod)]
        waiting.sort(key=lambda pod: self._rng.random() if shuffled else _key(pod) in self._lost)
        waiting.sort(key=lambda pod: -_priority(pod))
        while waiting:
            left = [pod for pod in waiting if not self._bound(pod) and not self._preempts(pod)]
            if len(left) == len(waiting):
                break
            waiting = left
        self._state = before
        return [_key(pod) for pod in waiting if _key(pod) in self._lost]

    def finds_places(self, orders: int) -> bool:
        """Return whether all pods find places in each of so many orders of pods with equal priority."""
        return not any(self.run(shuffled=True) for _ in range(orders))

    def takes_volumes_or_devices(self, keys: set[str]) -> bool:
        """Return whether any of the pods *keys* claims volumes or devices."""
        specs = [pod["spec"] for pod in self.must_run if _key(pod) in keys]
        volumes = [volume for spec in specs for volume in spec.get("volumes") or ()]
        return any(spec.get("resourceClaims") for spec in specs) or any(
            "persistentVolumeClaim" in volume or "ephemeral" in volume for volume in volumes
        )

    def _bound(self, pod: Json) -> bool:
        totals = self._feasible(pod, self._state)
        if not totals:
            return False
        most = max(totals.values())
        node = self._rng.choice(sorted(name for name, total in totals.items() if total == most))
        if node in self._ending:  # the pod would not run there for long
            return False
        self._bind(pod, node)
        return True

    def _feasible(self, pod: Json, state: Json) -> dict[str, int]:
        """Return the total score of each feasible node."""
        answer = self._oracle.ask({"mode": "score", "snapshot": state, "pods": [_key(pod)]})
        return dict(answer["scores"][0]["total"] or {})

    def _bind(self, pod: Json, node: str) -> None:
        bind_again(pod, self._nodes[node], labels_added=self._labels_added)
        pod["status"] = {"phase": "Running"}

    def _preempts(self, pod: Json) -> bool:
        """Bind *pod*, which no node accepts, where it preempts pods that yield their room. Return whether it is bound.

        ``DryRunPreemption`` and ``pickOneNodeForPreemption``: all victims leave a node; those with which the pod still
        fits come back, the highest priority first. The lowest highest priority wins, then the fewest victims.
        """
        if _priority(pod) < 0 or pod["spec"].get("preemptionPolicy") == "Never" or self._feasible(pod, self._state):
            return False
        found = []
        for node in self._nodes.keys() - self._ending:
            on_node = (item for item in self._state["items"] if item["kind"] == "Pod" and _runs_on(item, node))
            victims = sorted((item for item in on_node if _yields(item)), key=_priority, reverse=True)
            gone = {_key(victim) for victim in victims}
            if not gone or node not in self._feasible(pod, _without_pods(self._state, gone)):
                continue
            for victim in victims:
                if node in self._feasible(pod, _without_pods(self._state, gone - {_key(victim)})):
                    gone.remove(_key(victim))
            left = [_priority(victim) for victim in victims if _key(victim) in gone]
            found.append((max(left), len(left), self._rng.random(), node, gone))
        if not found:
            return False
        *_, node, gone = min(found)
        self._state = _without_pods(self._state, gone)
        self._bind(pod, node)
        return True


def _priority(pod: Json) -> int:
    return int(pod["spec"].get("priority") or 0)


def _yields(pod: Json) -> bool:
    return _priority(pod) < 0


def _runs_on(pod: Json, node: str) -> bool:
    return bool(pod["spec"].get("nodeName") == node and pod["status"].get("phase") not in ("Succeeded", "Failed"))


def _pool(node: Json) -> str:
    labels = node["metadata"]["labels"]
    if "node-role.kubernetes.io/spot-worker" not in labels:
        return ""
    zone = next((labels[name] for name in _ZONES if labels.get(name)), "no-zone")
    return f"{zone}/{next((labels[name] for name in _TYPES if labels.get(name)), 'no-instance-type')}"


def _is_waiting(pod: Json) -> bool:
    """Return whether the scheduler looks for a place for the pod."""
    spec = pod["spec"]
    pending = pod["status"].get("phase") == "Pending"
    return pending and not spec.get("nodeName") and not spec.get("schedulingGates")


def _comes_back(pod: Json) -> bool:
    """Return whether a controller creates the pod again, on another node if this one is gone."""
    meta = pod["metadata"]
    owners = [owner for owner in meta.get("ownerReferences") or () if owner.get("controller")]
    annotations = meta.get("annotations") or {}
    return (
        bool(owners)
        and owners[0]["kind"] != "DaemonSet"
        and _MIRROR not in annotations
        and annotations.get(_DAEMONSET_POD) != "true"
        and "deletionTimestamp" not in meta
        and pod["status"].get("phase") not in ("Succeeded", "Failed")
        and not _yields(pod)
    )


def _again(pod: Json) -> Json:
    created = deepcopy(pod)
    created["metadata"]["uid"] += "-lost"
    created["metadata"]["labels"] = own_labels(created["metadata"].get("labels") or {})
    created["spec"]["nodeName"] = ""
    created["status"] = {"phase": "Pending"}
    return created


def _key(item: Json) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"


@click.command()
@click.option("--clusters", default=1000, show_default=True, help="Number of random clusters.")
@click.option("--seed", default=0, show_default=True, help="The first seed.")
def main(clusters: int, seed: int) -> None:
    """Compare the certificate with brute force by the real scheduler's plugins on random clusters."""
    exit_on_sigterm()
    tally = Tally()
    try:
        with Oracle() as oracle:
            for at in range(seed, seed + clusters):
                for problem in compare(oracle, at, tally):
                    click.echo(problem)
                if sys.stderr.isatty():
                    click.echo(f"\r\x1b[K{tally}", nl=False, err=True)
    finally:  # also if it is stopped earlier
        click.echo(str(tally))
    sys.exit(bool(tally.homeless))


if __name__ == "__main__":
    main()
