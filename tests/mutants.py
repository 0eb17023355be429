"""Break one safeguard after the other, each by one line, and check that its tests notice: ``python -m tests.mutants``.

Each break is made in a copy of the repository, and only the tests that must notice it are run: they need no control
plane. ``python -m tests.mutants NAME …`` runs the breaks whose names contain one of the words. The exit status is 1 if
a break is not noticed. ``tests/invariants/broken.py`` takes safeguards away from the daemon as a process.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent

#: What a test imports. The rest of the repository is not copied.
COPIED: Final = ("deploy", "devcluster", "docs", "predicates", "rescheduler", "tests", "pyproject.toml", "setup.cfg")
_LEFT_OUT: Final = shutil.ignore_patterns("__pycache__", "*.png", ".*_cache", "histories")

#: The time within which the tests of one break end. They take seconds, even on a slow machine.
_SECONDS: Final = 900

#: The exit status of pytest if tests failed. Any other status shows that they did not run.
_FAILED: Final = 1


@dataclass(frozen=True, slots=True)
class Mutant:
    """A safeguard, the one place where it is broken, and the tests of which at least one must fail."""

    safeguard: str
    file: str
    before: str  #: stands in the file once
    after: str
    tests: tuple[str, ...]

    def apply(self, root: Path) -> None:
        path = root / self.file
        path.write_text(path.read_text().replace(self.before, self.after))

    def uses(self, root: Path) -> int:
        """Return how often the text that is broken stands in the file: once, or this table is out of date."""
        return (root / self.file).read_text().count(self.before)


def _of_drain(safeguard: str, file: str, before: str, after: str, *tests: str) -> Mutant:
    return Mutant(safeguard, f"rescheduler/draining/{file}", before, after, tuple(f"tests/draining/{t}" for t in tests))


def _of_plan(safeguard: str, file: str, before: str, after: str, *tests: str) -> Mutant:
    return Mutant(safeguard, f"rescheduler/planning/{file}", before, after, tuple(f"tests/planning/{t}" for t in tests))


def _of_loop(safeguard: str, file: str, before: str, after: str, *tests: str) -> Mutant:
    return Mutant(safeguard, f"rescheduler/{file}", before, after, tuple(f"tests/housekeeping/{t}" for t in tests))


def _of_api(safeguard: str, file: str, before: str, after: str, *tests: str) -> Mutant:
    return Mutant(safeguard, f"rescheduler/kube/{file}", before, after, tuple(f"tests/kube/{t}" for t in tests))


def _of_karpenter(safeguard: str, file: str, before: str, after: str) -> Mutant:
    return Mutant(safeguard, f"rescheduler/{file}", before, after, ("tests/providers/test_karpenter.py",))


def _of_aws(safeguard: str, file: str, before: str, after: str) -> Mutant:
    return Mutant(safeguard, f"rescheduler/providers/{file}", before, after, ("tests/providers/test_aws.py",))


def _of_machines(safeguard: str, before: str, after: str) -> Mutant:
    file = "rescheduler/providers/clusterapi/machines.py"
    return Mutant(safeguard, file, before, after, ("tests/providers/test_clusterapi.py",))


MUTANTS: Final = (
    _of_aws(
        "machines above the desired size do not count towards the minimum",
        "fleet/fleet.py",
        "return min(self.size(observation, group), self._counted(observation, group)) - failed",
        "return self._counted(observation, group) - failed",
    ),
    _of_aws(
        "no second order is sent where it would lower the desired size again",
        "aws/__init__.py",
        "settle=120.0, idempotent=False)",
        "settle=120.0)",
    ),
    _of_aws(
        "the last order of an earlier process is awaited",
        "fleet/provider.py",
        "            self._note_earlier_order(node, matches)\n",
        "",
    ),
    _of_aws(
        "nothing is refused while an earlier order may take effect",
        "fleet/provider.py",
        "if isinstance(outcome, Refused) and self._may_be_ordered(node, matches):",
        "if outcome is Refused:",
    ),
    _of_aws(
        "AWS gets no order while it ends instances itself",
        "aws/__init__.py",
        "if text := group.surplus or group.imbalance(machine.key):",
        "if text := group.imbalance(machine.key):",
    ),
    _of_aws(
        "an instance that is shutting down is not gone",
        "aws/__init__.py",
        'if state == "shutting-down":',
        'if state == "none":',
    ),
    _of_aws(
        "AWS: an order stays accepted while EC2 must not be asked",
        "fleet/provider.py",
        "if self._may_be_gone(node, matches):",
        "if not self and self._may_be_gone(node, matches):",
    ),
    _of_aws(
        "AWS: an answer without the instance says nothing",
        "aws/client.py",
        '        raise InvalidResponse(f"aws: DescribeInstances: the response does not have instance {instance}")\n',
        '        return ""\n',
    ),
    _of_aws(
        "AWS: an instance that left its group is not gone",
        "aws/__init__.py",
        "if self._runs_elsewhere(machine.key, deadline):",
        "if not deadline:",
    ),
    _of_aws(
        "AWS: an order is not sent long after the last read",
        "aws/client.py",
        "_LATEST: Final = 8.0",
        "_LATEST: Final = 800.0",
    ),
    _of_aws(
        "AWS: no text of a request for credentials is shown",
        "aws/client.py",
        "or error.operation_name != operation:",
        "or (error.operation_name != operation and not line):",
    ),
    _of_aws(
        "a group that buys both kinds stays",
        "aws/groups.py",
        "return Purchase.BOTH if base or percent else Purchase.SPOT",
        "return Purchase.SPOT",
    ),
    _of_aws(
        "the desired capacity is not lowered below the listed instances",
        "aws/__init__.py",
        "canceled = min(count, current.unlaunched, max",
        "canceled = min(count, max",
    ),
    _of_api(
        "a Lease that was taken over is kept for the rest of its time only",
        "elector.py",
        "            left = min(left, left - (self._clock.now() - renewed).total_seconds())\n",
        "            left = left + 0 * (self._clock.now() - renewed).total_seconds()\n",
        "test_pool_lease.py",
    ),
    _of_karpenter(
        "a NodeClaim without Karpenter's finalizer is not deleted",
        "providers/karpenter/claims.py",
        "    if meta.deletion_timestamp is None and _FINALIZER not in meta.finalizers:\n",
        "    if False:\n",
    ),
    _of_karpenter(
        "protection that appears after an order takes it not back",
        "providers/fleet/provider.py",
        "        protected = machine.protected if machine.alive else None",
        "        protected = machine.protected",
    ),
    _of_karpenter(
        "what is read right before the order decides",
        "providers/fleet/provider.py",
        "        if isinstance(current, Refused):\n            return current\n",
        "",
    ),
    _of_karpenter(
        "NodeClaims with the same provider ID are not deleted",
        "providers/karpenter/claims.py",
        "    if len(sharing) > 1:\n",
        "    if False:\n",
    ),
    _of_karpenter(
        "the NodeClaim of another node is not deleted",
        "providers/fleet/objects.py",
        "        if node.placeholder or node.name in machine.names:\n",
        "        if True:\n",
    ),
    _of_karpenter(
        "a NodeClaim is deleted only as it was read",
        "execution/machine_objects.py",
        '{"uid": version.uid, "resourceVersion": version.resource_version}',
        '{"uid": version.uid}',
    ),
    _of_karpenter(
        "a change of a NodeClaim since it was read is no order",
        "execution/machine_objects.py",
        "            return Unsent(text)\n",
        "            return NoResponse(text)\n",
    ),
    _of_machines(
        "a Machine that goes by the order of others lowers no replicas",
        "        if self.deleted:\n",
        "        if False:\n",
    ),
    _of_machines(
        "replicas are lowered only when the controllers have settled",
        "        return self.group.unsettled()\n",
        '        return ""\n',
    ),
    _of_machines(
        "replicas that were lowered for a mark are not lowered for it again",
        "        return self.lowered is not None and (excess or self.lowered < OBJECT_PACE.settle)\n",
        "        return False\n",
    ),
    _of_machines(
        "Machines of several MachineSets wait for the end of the roll-out",
        "        return len(used) > 1 or any(",
        "        return False and any(",
    ),
    _of_machines(
        "a mark that was left is removed",
        "not self.deleted and settled and not self.in_progress",
        "False",
    ),
    _of_machines(
        "a mark stays while an order may still take effect",
        "MARK_LIFE + OBJECT_PACE.settle + _SKEW",
        "OBJECT_PACE.settle",
    ),
    _of_machines(
        "an unhealthy Machine may go instead before Cluster API 1.9",
        'if not openshift and self.objects.version != "v1beta1":',
        "if not openshift:",
    ),
    Mutant(
        "no order is repeated with an old mark",
        "rescheduler/providers/clusterapi/__init__.py",
        "        elif abs(removal.age) > MARK_LIFE - _PROMPTLY:",
        "        elif False:",
        ("tests/providers/test_clusterapi.py",),
    ),
    Mutant(
        "others that mark a Machine are seen before replicas are lowered",
        "rescheduler/providers/clusterapi/__init__.py",
        "        view = self.read(deadline=deadline)\n        removal = self._ready(machine.key)\n",
        "        view, removal = self.state.view, self.state.removals[machine.key]\n        mark = removal.mark\n",
        ("tests/providers/test_clusterapi.py",),
    ),
    Mutant(
        "a node waits while a disruption budget of its NodePool is in use",
        "rescheduler/planning/rules/candidates.py",
        "        if allowed is not None and disrupted >= allowed:\n",
        "        if allowed is not None and disrupted > allowed:\n",
        ("tests/field/test_never_removed.py",),
    ),
    Mutant(
        "pages answer no foreign names",
        "rescheduler/net/server.py",
        '        if not all(map(self._answered, _hosts(scope["headers"]))):\n',
        "        if False:\n",
        ("tests/security/test_browsers.py",),
    ),
    Mutant(
        "JSON has escapes for what is not printable",
        "rescheduler/cli/output.py",
        "else escaped(encoded.decode()).encode()\n",
        "else encoded\n",
        ("tests/security/test_hostile_texts.py",),
    ),
    Mutant(
        "the proxy plans with steps, as the daemon does",
        "rescheduler/cloudpool/proxy/service.py",
        "max_graceful_termination=limits.grace).of_drains(limits.eviction)\n",
        "max_graceful_termination=limits.grace)\n",
        ("tests/proxy/test_victims.py",),
    ),
    _of_plan(
        "the certificate of the present state is found again after a change",
        "answers/survival.py",
        "            self._present.clear()\n",
        "            pass\n",
        "test_survival.py",
    ),
    _of_plan(
        "verdicts follow the empty nodes that may go at any time",
        "answers/survival.py",
        "        return self._node_pods.departing(shared).nodes, self._node_pods.edits(shared)\n",
        "        return self._node_pods.edits(shared)\n",
        "test_survival_reuse.py",
    ),
    _of_plan(
        "plans follow the pods that they preempt",
        "answers/single.py",
        "None if yielding is None else yielding.names\n",
        "None\n",
        "test_reuse.py",
    ),
    _of_plan(
        "messages follow the budgets that they are about",
        "answers/single.py",
        "    return all(same_content(budget, shared.budgets.get(key)) for key, budget in inputs.budgets.items())\n",
        "    return True\n",
        "test_reuse.py",
    ),
    _of_plan(
        "plans follow the classes of replacement pods",
        "answers/single.py",
        "        incoming=tuple([pod.cls for pod in examined.incoming]),\n",
        "        incoming=(),\n",
        "test_reuse.py",
    ),
    _of_plan(
        "verdicts follow what commitments pay of their nodes",
        "answers/single.py",
        "            and inputs.paid == shared.worths.paid(node)\n",
        "",
        "test_min_worth.py",
    ),
    _of_plan(
        "a round without a plan stands until the next commitment ends",
        "planning_round.py",
        "        ends = older, prices.next_end(now.date()), deadlines.take()\n",
        "        ends = older, deadlines.take()\n",
        "test_drain_order.py",
    ),
    Mutant(
        "pods that share a claim are told by their names",
        "predicates/snapshot.py",
        '        named = pod.key if pod.cls.claims else ""\n',
        '        named = ""\n',
        ("tests/planning/test_reuse.py",),
    ),
    Mutant(
        "a node that returns under its name has no pods of the one before",
        "predicates/snapshot.py",
        "            self.placed_on[node.name] = self.changes\n",
        "",
        ("tests/planning/test_survival_reuse.py",),
    ),
    Mutant(
        "pods of the first LIST that were preempted are noted",
        "predicates/snapshot.py",
        "            if pod.noted:\n",
        "            if pod.refused:\n",
        ("tests/predicates/test_snapshot.py",),
    ),
    Mutant(
        "a row that lost pods of a trial is evaluated again",
        "predicates/local_results.py",
        " or self._snapshot.released.get(row, 0) > self._touched_at[1]\n",
        "\n",
        ("tests/predicates/test_first_fit.py",),
    ),
    Mutant(
        "the first pods of a class are counted one by one",
        "predicates/placed.py",
        "            if pod.claims or any(watchers.first for watchers in effects.watchers):\n",
        "            if pod.claims:\n",
        ("tests/predicates/test_topology_index.py",),
    ),
    _of_plan(
        "the work for the classes of a round is not that of all rounds before",
        "replacements.py",
        "        self._limits.start_round()\n",
        "",
        "test_namespace_work.py",
    ),
    _of_plan(
        "a loss that could not be judged is not survived",
        "answers/losses.py",
        "        return self.judged and not self.homeless\n",
        "        return not self.homeless\n",
        "test_survival.py",
    ),
    _of_plan(
        "a template is that of the owner with the UID",
        "replacements.py",
        "    return not meta.uid or not uid or meta.uid == uid\n",
        "    return True\n",
        "test_replacements.py",
    ),
    _of_plan(
        "no node that is about to be emptied receives leftovers",
        "planning_round.py",
        "[name for name in self.groups.on_demand if name not in leaving]\n",
        "self.groups.on_demand\n",
        "test_leftovers.py",
    ),
    _of_plan(
        "a leftover that could land on a node about to be emptied rejects the plan",
        "placement/forecast.py",
        "    if forecast.strayed:\n",
        "    if False:\n",
        "test_leftovers.py",
    ),
    _of_plan(
        "what moved as a leftover rests",
        "rules/leftovers.py",
        "    return created >= moved - CLOCK_SKEW and not now.reached(created + rest)\n",
        "    return False\n",
        "test_leftovers.py",
    ),
    _of_plan(
        "no leftover goes to a node that is free already",
        "rules/leftovers.py",
        "    return not node_blockers(node, policy, circumstances, empty=True)\n",
        "    return False\n",
        "test_leftovers.py",
    ),
    _of_plan(
        "the next drain finds nodes without pods open",
        "answers/leftovers.py",
        "            before = [plan for plan in plans if plan.placements or terms.most is None]\n",
        "            before = plans\n",
        "test_leftovers.py",
    ),
    _of_loop(
        "a node receives no leftovers while pods that left it do not run again",
        "planning/rules/leftovers.py",
        "    rows = (table.row[name] for name in names if name not in owing)\n",
        "    rows = (table.row[name] for name in names)\n",
        "test_leftovers.py",
    ),
    _of_plan(
        "no room is made that a pending pod would take",
        "answers/leftover_choices.py",
        "            if self._taken_by_pending(row):\n",
        "            if False:\n",
        "test_leftovers.py",
    ),
    _of_loop(
        "a node whose room was not used gives no more pods for hours",
        "housekeeping/drain_history.py",
        "        if kind is DrainKind.MAKES_ROOM and node is not None:\n",
        "        if False:\n",
        "test_leftovers.py",
    ),
    _of_loop(
        "the pods of a node that stays count for what its owners are owed",
        "execution/observation.py",
        '        left = name if drain.purpose.kind is not DrainKind.MAKES_ROOM else ""\n',
        "        left = name\n",
        "test_leftovers.py",
    ),
    _of_loop(
        "nodes whose machines end do not count for the minimum",
        "execution/drainer.py",
        "for name, exists in has_instance if exists is False)\n",
        "for name, exists in has_instance if False)\n",
        "test_minimum_held.py",
    ),
    _of_loop(
        "the last look asks for our mark",
        "execution/machine_orders.py",
        "        if why := self._not_ours(node):\n",
        "        if False and (why := self._not_ours(node)):\n",
        "test_marks.py",
    ),
    _of_loop(
        "the last look asks for the UID of the node",
        "execution/machine_orders.py",
        "        if node.metadata.uid != self._node.metadata.uid:\n",
        "        if False:\n",
        "test_marks.py",
    ),
    _of_loop(
        "the last look counts the pods of all owners that a debt names",
        "execution/machine_orders.py",
        "replace(state, owner_uids=state.owner_uids.union(debt.owner_uids))\n",
        "state\n",
        "test_marks.py",
    ),
    _of_loop(
        "debts of earlier drains count the pods of all owners that they name",
        "execution/landings.py",
        "replace(state, owner_uids=state.owner_uids.union(owed.debt.owner_uids))\n",
        "state\n",
        "test_landings.py",
    ),
    _of_loop(
        "a settled debt keeps its node when its pods do not run any more",
        "planning/memory.py",
        "(*self.debts, *(owed for owed in self.settled if owed.lacking))\n",
        "self.debts\n",
        "test_owed.py",
    ),
    _of_loop(
        "the pods of failed drains are owed at the last look of the next drain",
        "planning/memory.py",
        "for owed in (*self.debts, *self.settled) if owed.node == node",
        "for owed in self.debts if owed.node == node",
        "test_owed.py",
    ),
    _of_loop(
        "a read that fails before a repeated order is no failure of the order",
        "execution/machine_orders.py",
        "self._unread(look.unread)) if look.unread else None",
        "self._unread(look.unread)) if unsent and look.unread else None",
        "test_marks.py",
    ),
    _of_loop(
        "nothing is decided without the rights for it",
        "housekeeping/loop.py",
        "        if missing_rights:\n",
        "        if False:\n",
        "test_loop.py",
    ),
    _of_loop(
        "a replica that does not lead forgets the memory",
        "housekeeping/loop.py",
        "            self._knowledge.history.forget()\n",
        "",
        "test_loop.py",
    ),
    Mutant(
        "the cluster is read again before a disposed machine is terminated",
        "rescheduler/cloudpool/removal.py",
        "            self._pool.ask(may_end, node)\n            client.terminate(",
        "            client.terminate(",
        ("tests/providers/test_pool_orders.py",),
    ),
    Mutant(
        "no order follows one that another thread gave meanwhile",
        "rescheduler/cloudpool/removal.py",
        "                if current is not None and current != judged:\n",
        "                if False:\n",
        ("tests/providers/test_pool_orders.py",),
    ),
    _of_loop(
        "the last look stands before each request that ends a machine",
        "execution/machine_orders.py",
        "            self.objection = self._object()\n",
        "            self.objection = None\n",
        "test_marks.py",
    ),
    _of_plan(
        "the last look asks for our taint",
        "last_look.py",
        "        or _untainted(seen.node)\n",
        "",
        "test_last_look.py",
    ),
    _of_plan(
        "the last look counts the nodes of the minimum",
        "last_look.py",
        "        or _below_minimum(before, terms, seen.nodes)\n        or _owed(terms, seen)\n",
        "        or _owed(terms, seen)\n",
        "test_last_look.py",
    ),
    _of_loop(
        "a drain begins only if its node, read right before, may be drained",
        "execution/actions.py",
        "        begins = not self._marked and self._before is None\n",
        "        begins = False\n",
        "test_begins.py",
    ),
    _of_loop(
        "a round is left out only while nothing changes",
        "housekeeping/resting.py",
        "        return self._inputs() == inputs\n",
        "        return True\n",
        "test_resting.py",
    ),
    _of_loop(
        "a round is left out only until a wait ends",
        "housekeeping/resting.py",
        "        if until is None or self.clock.now() >= until:\n",
        "        if until is None:\n",
        "test_resting.py",
    ),
    _of_plan(
        "the last look asks for opt-outs of the node",
        "last_look.py",
        "        or _kept(terms, seen, empty=True)\n",
        "",
        "test_last_look.py",
    ),
    _of_loop(
        "no order rests on reads that took long",
        "execution/machine_orders.py",
        "        if seconds > _OLDEST_FACT:\n",
        "        if False:\n",
        "test_course.py",
    ),
    _of_loop(
        "a resumed removal reads the Events of preempted pods",
        "execution/drainer.py",
        "            preempted=self._preempted(node),\n",
        "            preempted=(),\n",
        "test_course.py",
    ),
    _of_loop(
        "a pod that a kubelet refuses stops the drain",
        "execution/observation.py",
        "            refused=self._refused(drain),\n",
        "",
        "test_refused_pods.py",
    ),
    _of_loop(
        "what a kubelet refuses is remembered",
        "housekeeping/drain_history.py",
        "            self._history.refused(failure.refusal)\n",
        "            pass\n",
        "test_refused_pods.py",
    ),
    _of_plan(
        "the last look asks for what the drain owes",
        "last_look.py",
        "        or _owed(terms, seen)\n",
        "",
        "test_last_look.py",
    ),
    _of_drain(
        "the next wave waits until what is owed runs",
        "stepping.py",
        "    return all(paid(drain.shortfall(controller)) for controller in drain.debts if drain.has_taken",
        "    return True or all(True for controller in drain.debts if drain.has_taken",
        "test_waves.py",
    ),
    _of_drain(
        "within a step, a namespace loses its next pod when the one before has a bound replacement",
        "stepping.py",
        "    return not asking and all(drain.shortfall(controller).bound <= 0 for controller in taken)\n",
        "    return True or not (asking or taken)\n",
        "test_waves.py",
    ),
    _of_drain(
        "the first wave is one pod",
        "stepping.py",
        "        return tuple(unbegun[:1]) if not _may_have_begun(drain)",
        "        return tuple(unbegun) if not _may_have_begun(drain)",
        "test_waves.py",
    ),
    _of_drain(
        "a resumed drain waits until what the earlier process evicted runs",
        "stepping.py",
        " if not _may_have_begun(drain) or _all_run(drain) else ()",
        "",
        "test_waves.py",
    ),
    _of_drain(
        "no pod is evicted while pods that replaced evicted ones are lost",
        "stepping.py",
        "    return _paced(drain, _window(drain)) if not drain.lost_again else ()\n",
        "    return _paced(drain, _window(drain))\n",
        "test_waves.py",
        "test_following.py",
    ),
    _of_drain(
        "pods may be missing during a rolling update for as long as after an eviction",
        "surging.py",
        "    if rollout.short_at is not None and now >=",
        "    if False and now >=",
        "test_surging.py",
    ),
    _of_drain(
        "a rolling update stops if its limits would let old pods go first",
        "surging.py",
        "    if rollout.downtime and untouched and",
        "    if False and",
        "test_surging.py",
    ),
    _of_drain(
        "what a rolling update leaves missing is owed",
        "surging.py",
        "paid=others if short else others | {controller})",
        "paid=others | {controller})",
        "test_surging.py",
    ),
    _of_drain(
        "requests are repeated for a limited time",
        "exits.py",
        "    return None if now >= until else replace(drain, failing_until=until, retry_at=now + REQUEST_INTERVAL)",
        "    return replace(drain, failing_until=until, retry_at=now + REQUEST_INTERVAL)",
        "test_preparing.py",
        "test_exits.py",
    ),
    _of_drain(
        "debts are counted when a drain reopens its node",
        "exits.py",
        "    drain = replace(_with_owed(_with_requested(drain)), failure=failure)\n",
        "    drain = replace(_with_owed(replace(_with_requested(drain), debts={})), failure=failure)\n",
        "test_following.py",
        "test_exits.py",
    ),
    _of_drain(
        "a drain ends only when its replacement pods stay Ready",
        "following.py",
        "    enough = paid(drain.shortfall(controller, staying=drain.moved_all)",
        "    enough = paid(drain.shortfall(controller)",
        "test_following.py",
    ),
    _of_drain(
        "a node is reopened if a moved pod has no other place",
        "following.py",
        "    if (lost := _place_lost(drain)) is not None:\n",
        "    if False and (lost := _place_lost(drain)) is not None:\n",
        "test_following.py",
    ),
    _of_plan(
        "the node that owed pods left is kept",
        "movements.py",
        "        if is_candidate(owed.node):\n",
        "        if False:\n",
        "test_not_recovered.py",
    ),
    _of_plan(
        "a drain replaces nothing in the ledger",
        "debts.py",
        "        return OpenDebt(node, max(since or owed.since, owed.since), raised(debt, owed.debt))\n",
        "        return OpenDebt(node, max(since or owed.since, owed.since), debt)\n",
        "test_ledger.py",
    ),
    _of_loop(
        "pods are counted again when their nodes change",
        "execution/running_pods.py",
        "tuple(map(nodes.get, before.hosts)), doubtful",
        "doubtful",
        "test_running_pods.py",
    ),
    _of_loop(
        "pods are counted again when their time comes",
        "execution/running_pods.py",
        "self.at <= now < self.until",
        "self.at <= now",
        "test_running_pods.py",
    ),
    _of_loop(
        "pods on nodes that are about to go are counted at each look",
        "execution/running_pods.py",
        " and not doubtful:",
        ":",
        "test_running_pods.py",
    ),
    _of_plan(
        "a restart ends the time in which a pod stays Ready",
        "../../predicates/pod_classes.py",
        "        ready_since = started  #",
        "        pass  #",
        "test_debts.py",
    ),
    _of_plan(
        "the last look counts only pods that stay",
        "last_look.py",
        "        missing = shortfall(debt, state, replicas, staying=True)\n",
        "        missing = shortfall(debt, state, replicas)\n",
        "test_last_look.py",
    ),
    _of_plan(
        "the Lease of a Node tells whether its kubelet lives",
        "last_look.py",
        '    dead = "" if lease is None else lease.expired(now)\n',
        '    dead = ""\n',
        "test_last_look.py",
    ),
    _of_loop(
        "moves of pods that a killed process evicted count",
        "housekeeping/drain_history.py",
        "            moved |= self._moved_before(drain)\n",
        "            pass\n",
        "test_kills.py",
    ),
    _of_loop(
        "moves are stored before the machine is ordered",
        "housekeeping/drain_history.py",
        "            self._count_moves(drain, self._began or self._clock.now())\n",
        "",
        "test_kills.py",
    ),
    _of_loop(
        "a clock that jumps shortens no wait for pods that stay",
        "execution/running_pods.py",
        "        times = ready_for(facts.now, now, self._view.became_ready)\n",
        "        times = ready_for(facts.now)\n",
        "test_owed.py",
    ),
    _of_loop(
        "nor that of the last look",
        "execution/machine_orders.py",
        "        times = ready_for(now, self._access.clock.monotonic(), terms.became_ready)\n",
        "        times = ready_for(now)\n",
        "test_owed.py",
    ),
    _of_api(
        "the watch notes when pods become Ready",
        "state.py",
        "            elif not self._is_known(pod):\n",
        "            elif pod.key not in self._pods:\n",
        "test_reflector.py",
    ),
    _of_loop(
        "debts are paid by pods that stay",
        "execution/landings.py",
        "Replicas()), staying=True)\n",
        "Replicas()))\n",
        "test_owed.py",
    ),
    _of_loop(
        "all that a round asks is of one moment",
        "execution/cluster_view.py",
        "replace(self._known, memory=memory), self._as_of)\n",
        "replace(self._known, memory=memory), self._clock.now())\n",
        "test_reuse.py",
    ),
    _of_loop(
        "the node that pods left is no other place for them",
        "execution/running_pods.py",
        "            loss = self._view.planner.loss(self._view.circumstances, going, gone=left)\n",
        "            loss = self._view.planner.loss(self._view.circumstances, going)\n",
        "test_owed.py",
    ),
    _of_loop(
        "marks of other processes are respected",
        "execution/actions.py",
        "        if written is not None and (written.holder, written.identity) == ours and written.step",
        "        if True or written is not None and written.step",
        "test_marks.py",
    ),
    _of_api(
        "a PATCH of a Node names the version that was read",
        "cluster.py",
        '    metadata = {field_name: node["metadata"][field_name] for field_name in ("uid", "resourceVersion")}\n',
        '    metadata = {field_name: node["metadata"][field_name] for field_name in ("uid",)}\n',
        "test_node_edit.py",
    ),
    _of_api(
        "a Node of the same name is not changed",
        "cluster.py",
        '        if current["metadata"]["uid"] != uid:\n',
        "        if False:\n",
        "test_cluster.py",
    ),
    _of_api(
        "an eviction names the UID of its pod",
        "cluster.py",
        '    options: dict[str, Any] = {"preconditions": {"uid": uid}}\n',
        "    options: dict[str, Any] = {}\n",
        "test_cluster.py",
    ),
    _of_api(
        "a PATCH is repeated a limited number of times",
        "client.py",
        "    for _ in range(attempts):\n",
        "    for _ in range(attempts + 1):\n",
        "test_cluster.py",
        "test_client.py",
    ),
    _of_api(
        "only the leader writes",
        "client.py",
        "        seconds = guard.seconds_left()\n    except NotLeading as error:\n"
        '        raise NotLeading(f"{act}: not sent: {error}") from None\n',
        "        seconds = guard.seconds_left()\n    except NotLeading as error:\n        return LEAST_SECONDS\n",
        "test_guard.py",
    ),
    _of_api(
        "a write ends before the Lease does",
        "elector.py",
        "        if self._stopping.is_set() or self._clock.monotonic() >= renewed_at + RENEW_SECONDS * self._pace:\n",
        "        if self._stopping.is_set():\n",
        "test_guard.py",
        "test_lease.py",
    ),
    _of_api(
        "the certificate of the API server is checked",
        "endpoint.py",
        '            "cert_reqs": ssl.CERT_REQUIRED if self.verify else ssl.CERT_NONE,\n',
        '            "cert_reqs": ssl.CERT_NONE,\n',
        "test_connection.py",
        "test_endpoint.py",
    ),
    _of_api(
        "a turn at a pool needs its Lease",
        "elector.py",
        "        if not elector.leading:\n",
        "        if False:\n",
        "test_pool_lease.py",
    ),
    _of_plan(
        "the minimum of on-demand nodes",
        "rules/minimum.py",
        "        if others >= self.required:\n",
        "        if True:\n",
        "rules/test_minimum.py",
    ),
    _of_plan(
        "a verdict for which a namespace had too many objects is checked in the next round",
        "answers/single.py",
        "            not (inputs.surging or inputs.given_up)\n",
        "            not inputs.surging\n",
        "test_namespace_work.py",
    ),
    _of_plan(
        "budgets that were too many in a round are judged in the next one",
        "budgets.py",
        "        self._too_many.clear()\n",
        "",
        "test_namespace_work.py",
    ),
    _of_plan(
        "what was not judged is not kept as the result of LimitRanges",
        "replacements.py",
        "                if pod.namespace not in self.given_up:\n",
        "                if True:\n",
        "test_namespace_work.py",
    ),
    _of_plan(
        "only resources of pods are counted for a quota",
        "quotas.py",
        " if _is_of_pods(name)}\n",
        "}\n",
        "test_namespace_work.py",
    ),
    _of_plan(
        "only pods that may have to move limit the number of quotas",
        "quotas.py",
        " if pod.node_name in self._on_demand)\n",
        ")\n",
        "test_namespace_work.py",
    ),
    _of_plan(
        "ResourceQuotas have room for replacement pods",
        "quotas.py",
        "            if self.used[name] + usage[name] > self.hard[name]:\n",
        "            if False:\n",
        "test_quotas.py",
    ),
    _of_plan(
        "pending pods take their room first",
        "question.py",
        "    trials = shared.snapshot.trial() if pending is None else pending.trial(shared.snapshot)\n",
        "    trials = shared.snapshot.trial()\n",
        "test_pending.py",
    ),
    _of_plan(
        "a node gives pods for leftovers only if these follow wherever the scheduler puts what it gives",
        "answers/leftovers.py",
        "        if emptied.given and not self._follows(",
        "        if not emptied.given and not self._follows(",
        "test_leftovers.py",
    ),
    _of_plan(
        "leftovers move where that saves most, without the share of spot nodes",
        "answers/leftover_values.py",
        "max(cost - share, Decimal(0))",
        "max(cost, Decimal(0))",
        "test_leftover_money.py",
    ),
    _of_plan(
        "what nodes give to make room counts for --min-worth",
        "answers/leftovers.py",
        "        if blocker is not None:\n            given",
        "        if False:\n            given",
        "test_leftover_money.py",
    ),
    _of_plan(
        "commitments pay first for nodes that rules keep",
        "planning_round.py",
        "shared.worths.cover(sorted(names, key=shared.is_kept))",
        "shared.worths.cover(names)",
        "test_min_worth.py",
    ),
    _of_plan(
        "leftovers of a node that is worth less move if the better one cannot be emptied",
        "answers/leftovers.py",
        "            rejected |= play.rejected | beyond",
        "            rejected |= beyond",
        "test_leftovers.py",
    ),
    _of_plan(
        "plans in room that pods yield keep the certificate and the headroom",
        "answers/all_nodes.py",
        "        if enforced:\n",
        "        if False:\n",
        "test_survival.py",
    ),
    _of_plan(
        "a drain that places pods elsewhere takes no room from the next one that is shown",
        "answers/all_nodes.py",
        "        elif attempt.as_placed:\n",
        "        elif True:\n",
        "placement/test_in_steps.py",
    ),
    _of_plan(
        "a drain that places pods elsewhere takes no room from the next removal of the proxy",
        "question.py",
        "        if attempt.as_placed or not others:\n",
        "        if True:\n",
        "placement/test_in_steps.py",
    ),
    _of_plan(
        "a volume that pods share is not torn apart",
        "rules/volumes.py",
        "            blocker = self._blocker(node, pod, pods) if pod.cls.claims else None\n",
        "            blocker = None\n",
        "rules/test_volumes.py",
    ),
    _of_plan(
        "local storage keeps its pod",
        "rules/pod_rules.py",
        "    blocking = [volume.name for volume in needed_volumes(pod, facts.policy.ignore_local_volumes)]\n",
        "    blocking: list[str] = []\n",
        "rules/test_drainability.py",
    ),
    Mutant(
        "a drain begins only if the scheduler cannot choose a node whose kubelet refuses the pod",
        "rescheduler/planning/placement/forecast.py",
        "                if refusable[pod.cls] and not self._filters.fits(pod.cls, row):\n",
        "                if False:\n",
        ("tests/field/test_node_says.py",),
    ),
    Mutant(
        "do-not-drain keeps its node",
        "rescheduler/planning/rules/pod_traits.py",
        "    if value is not None and (why := _own_opt_out(DO_NOT_DRAIN, value, since, reached)):\n",
        "    if False and (why := _own_opt_out(DO_NOT_DRAIN, value, since, reached)):\n",
        ("tests/proxy/test_every_rule.py",),
    ),
    _of_loop(
        "no decision rests on a silent watch",
        "housekeeping/loop.py",
        "        if why := self._view.stale():\n",
        '        if why := "":\n',
        "test_loop.py",
    ),
    _of_loop(
        "a pause stops drains",
        "housekeeping/loop.py",
        "        return Held(Waiting.PAUSED, paused) if paused else None\n",
        "        return None\n",
        "test_pause.py",
    ),
    _of_loop(
        "drains start only in drain windows",
        "housekeeping/loop.py",
        "        if closed := closed_until(self._windows, self._clock.now()):\n",
        '        if closed := "":\n',
        "test_pause.py",
    ),
    _of_loop(
        "debts of earlier drains hold the next drain",
        "housekeeping/loop.py",
        "        held = paused or owed or self._holds.held(settled_at)\n",
        "        held = paused or self._holds.held(settled_at)\n",
        "test_landings.py",
    ),
    Mutant(
        "the work of a namespace is limited",
        "predicates/work.py",
        "        if total > self._limit:\n",
        "        if False:\n",
        ("tests/planning/test_namespace_work.py",),
    ),
    Mutant(
        "anti-affinity terms that are not judged repel everybody",
        "predicates/indexes/topology.py",
        "        known = self._given_up[pod.namespace]\n",
        "        known = frozenset[str]()\n",
        ("tests/planning/test_namespace_work.py",),
    ),
    Mutant(
        "pods of a namespace that is given up are placed nowhere",
        "predicates/plugins/pods.py",
        "            index.require(pod)\n",
        "",
        ("tests/planning/test_namespace_work.py",),
    ),
    _of_loop(
        "an unreadable memory holds drains",
        "housekeeping/drain_history.py",
        "        if self._synced.trouble and not self._dry_run:\n",
        "        if False:\n",
        "test_recollection.py",
    ),
    _of_loop(
        "what was noted before the memory could be read is added to what is stored",
        "planning/memory.py",
        "            movements=self.movements.merged(remote.movements, base.movements),\n",
        "",
        "test_recollection.py",
    ),
    _of_loop(
        "no machine ends while another Node of it has pods",
        "planning/last_look.py",
        "        or _shared(terms, seen)\n",
        "",
        "test_removal_checks.py",
    ),
    _of_loop(
        "a Node of the same machine that joins during the drain is noticed",
        "execution/observation.py",
        "            mates=lambda: self._mates,\n",
        "",
        "test_removal_checks.py",
    ),
    _of_loop(
        "no node of a machine that has another Node is drained",
        "facts/round_facts.py",
        "kept.shared.of(snapshot), ",
        "",
        "test_removal_checks.py",
    ),
    _of_loop(
        "no machine ends while the provider is about to reclaim the nodes of moved pods",
        "execution/machine_orders.py",
        "        terms = replace(terms, ending=self._ending(each for name, each in nodes.items() if name in hosts))\n",
        "",
        "test_owed.py",
    ),
    _of_loop(
        "notices of the provider are read before debts are settled",
        "housekeeping/loop.py",
        "            self._read_notices_for_moved_pods()\n",
        "",
        "test_owed.py",
    ),
    Mutant(
        "a reactivation that a killed proxy has begun is finished",
        "rescheduler/cloudpool/proxy/updates.py",
        "        if not self._store(begun := Reactivation(machine, evictable, size)):\n",
        "        if (begun := Reactivation(machine, evictable, size)) is None:\n",
        ("tests/proxy/test_updates.py",),
    ),
    Mutant(
        "a reactivation that was rejected is not carried out later",
        "rescheduler/cloudpool/proxy/updates.py",
        '            why = self._ledger.trouble or "it could not be read"\n            self._store(None)\n',
        '            why = self._ledger.trouble or "it could not be read"\n',
        ("tests/proxy/test_updates.py",),
    ),
    Mutant(
        "an open reactivation is finished before the next one",
        "rescheduler/cloudpool/proxy/updates.py",
        "        self.finish()\n",
        "",
        ("tests/proxy/test_updates.py",),
    ),
    _of_loop(
        "an open reactivation is kept if its ConfigMap is deleted",
        "housekeeping/synced_memory.py",
        ", reactivation=self.memory.reactivation)\n",
        ")\n",
        "test_recollection.py",
    ),
    _of_api(
        "a later process knows what is above a controller that is gone",
        "controllers.py",
        "                    self._parents.setdefault(lower, above)\n",
        "                    pass\n",
        "test_custom_owners.py",
    ),
    _of_loop(
        "the memory that cannot be read is not overwritten",
        "housekeeping/synced_memory.py",
        "        if not self._readable or not self._leading():\n",
        "        if not self._leading():\n",
        "test_recollection.py",
    ),
    _of_loop(
        "each write without a response may be what is stored",
        "housekeeping/synced_memory.py",
        "        self._unanswered[content] = value\n",
        "        self._unanswered = {content: value}\n",
        "test_recollection.py",
    ),
    _of_loop(
        "nothing counts as stored after a write without a response",
        "housekeeping/synced_memory.py",
        "        return self.value == self.base and not self._unanswered\n",
        "        return self.value == self.base\n",
        "test_recollection.py",
    ),
    Mutant(
        "secrets that a server echoes reach no message",
        "rescheduler/net/config_files.py",
        '                    text = text.replace(part, "***")\n',
        "                    text = text.strip()\n",
        ("tests/providers/test_http.py", "tests/providers/test_config.py"),
    ),
    Mutant(
        "the certificates of a provider's API are checked",
        "rescheduler/net/config_files.py",
        "        context.minimum_version = ssl.TLSVersion.TLSv1_2\n",
        "        context.minimum_version, context.check_hostname = ssl.TLSVersion.TLSv1_2, False\n"
        "        context.verify_mode = ssl.CERT_NONE\n",
        ("tests/providers/test_http.py", "tests/providers/test_transport.py"),
    ),
)


@contextmanager
def copy_of_repository() -> Iterator[Path]:
    """Copy what tests import to a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for name in COPIED:
            source, target = ROOT / name, Path(folder) / name
            if source.is_dir():
                shutil.copytree(source, target, ignore=_LEFT_OUT)
            else:
                shutil.copy(source, target)
        yield Path(folder)


def run_tests(tests: Sequence[str], root: Path) -> int:
    """Run *tests* in *root* until one fails. Return pytest's exit status."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not cluster", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, cwd=root, capture_output=True, timeout=_SECONDS, check=False).returncode


def is_noticed(mutant: Mutant, root: Path) -> bool:
    """Return whether the tests of *mutant* fail in *root* with the break, which is undone. Raises RuntimeError."""
    path = root / mutant.file
    intact = path.read_text()
    mutant.apply(root)
    try:
        status = run_tests(mutant.tests, root)
    finally:
        path.write_text(intact)
    if status not in (0, _FAILED):
        raise RuntimeError(f"{mutant.safeguard}: pytest ended with status {status}")
    return status == _FAILED


def main(words: Iterable[str]) -> int:
    words = tuple(words)
    chosen = [each for each in MUTANTS if not words or any(word in each.safeguard for word in words)]
    with copy_of_repository() as root:
        tests = sorted({test for mutant in chosen for test in mutant.tests})
        if status := run_tests(tests, root):
            print(f"the tests do not pass without a break: pytest ended with status {status}")  # noqa: T201
            return 1
        missed = 0
        for mutant in chosen:
            noticed = is_noticed(mutant, root)
            missed += not noticed
            print(f"{'noticed' if noticed else 'MISSED '}  {mutant.safeguard}", flush=True)  # noqa: T201
    print(f"{len(chosen)} safeguards broken, {missed} not noticed")  # noqa: T201
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
