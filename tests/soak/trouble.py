"""Random, temporary disturbances: rejected pods, interrupted nodes, killed or paused replicas, faults."""

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final

from devcluster.api import Json
from devcluster.faults.injected import InjectedError, Reset, Stall
from devcluster.faults.proxy import FaultProxy
from devcluster.faults.rules import RandomFaults
from devcluster.plane import ControlPlane
from tests.cluster import attacks as by
from tests.cluster.attacks import Attack, Tenant
from tests.cluster.test_bad_days_replacements import quota, webhook
from tests.soak.journal import Journal
from tests.soak.machines import ChangingNodes
from tests.soak.replicas import WARM_SECONDS, Replica, disturb
from tests.soak.workloads import TEAMS, Workloads

#: Shares of requests with an injected fault, in times with faults.
RATES: Final = (0.02, 0.05, 0.1)


#: Attacks of a tenant. The observer knows what the owners of their pods want, because they are built in.
ATTACKS: Final[tuple[Attack, ...]] = (
    *(by.never_ready, by.broken_image, by.scaled_down, by.forged_events, by.pending, by.flapping, by.repelling),
    *(by.budgets_over_others, by.closing_budget, by.long_annotation, by.huge, by.owner_with(name=".")),
)


@dataclass(slots=True)
class RandomTrouble:
    """Actions and their delayed ends. Times are in seconds since the start."""

    plane: ControlPlane
    rng: Random
    journal: Journal
    workloads: Workloads
    fleet: ChangingNodes
    replicas: list[Replica]
    pool_proxy: FaultProxy
    tenant: Tenant
    now: float = 0.0
    _step: Callable[[], object] | None = None  #: what the tenant repeats
    _later: list[tuple[float, int, str, Callable[[], object]]] = field(default_factory=list)
    _count: "itertools.count[int]" = field(default_factory=itertools.count)

    def act(self) -> None:
        """Start one random action."""
        actions, weights = zip(*self._actions(), strict=True)
        done = self.rng.choices(actions, weights)[0]()
        if done:
            self.journal.note(done)

    def due(self, now: float) -> None:
        """End the actions that are due."""
        self.now = now
        while self._later and self._later[0][0] <= now:
            _, _, action, end = heapq.heappop(self._later)
            end()
            self.journal.note(action)
        if self._step is not None:
            self.tenant.attempt(self._step)

    def calm(self) -> None:
        """End all actions immediately."""
        self.due(float("inf"))
        self.workloads.calm()

    def _actions(self) -> list[tuple[Callable[[], str], float]]:
        workloads, fleet = self.workloads, self.fleet
        return [
            (workloads.scale, 6),
            (workloads.roll_out, 3),
            (workloads.add, 2),
            (workloads.delete, 2),
            (workloads.add_job, 2),
            (workloads.budget, 2),
            (self._close_budget, 1),
            (self._break, 1.5),
            (fleet.add_spot, 3),
            (self._push_back, 9),
            (self._interrupt, 2),
            (self._refuse, 1.5),
            (self._kill, 1.2),
            (self._pause, 1),
            (self._faults, 3),
            (self._pool_faults, 1),
            (self._pool_outage, 0.6),
            (self._edit, 4),
            (self._orphan, 1),
            (self._relabel, 0.7),
            (self._attack, 3),
        ]

    def _after(self, seconds: float, action: str, end: Callable[[], object]) -> None:
        heapq.heappush(self._later, (self.now + seconds, next(self._count), action, end))

    def _break(self) -> str:
        done = self.workloads.break_one()
        self._after(self.rng.uniform(15, 45), "mend a workload", self.workloads.mend)
        return done

    def _close_budget(self) -> str:
        team, name = self.workloads.close_budget()
        path = f"/apis/policy/v1/namespaces/{team}/poddisruptionbudgets/{name}"
        self._after(self.rng.uniform(5, 20), f"delete the budget of {team}/{name}", lambda: self.plane.api.delete(path))
        return f"a budget of {team}/{name} allows no eviction"

    def _push_back(self) -> str:
        if self.fleet.drained() and self.rng.random() < 0.8:
            return ""  # a closed spot group fails every drain, so do this rarely
        done = self.fleet.push_back(self.rng.randint(5, 12))
        if done:
            self._after(4, "open the spot nodes", lambda: self.fleet.cordon(closed=False))
        return done

    def _interrupt(self) -> str:
        """Interrupt one spot node, or sometimes a third of them at once."""
        spot = self.fleet.spot()
        if len(spot) < 3:
            return ""
        count = max(1, len(spot) // 3) if self.rng.random() < 0.3 else 1
        chosen = self.rng.sample(spot, count)
        noticed = self.rng.random() < 0.6
        for name in chosen:
            if noticed:
                self.fleet.notice(name)
                self._after(self.rng.uniform(3, 8), f"interrupt {name}", partial(self.fleet.take_away, name))
            else:
                self.fleet.take_away(name)
        how = "announce the interruption of" if noticed else "interrupt without notice"
        return f"{how} {', '.join(chosen)}"

    def _refuse(self) -> str:
        team = self.rng.choice(TEAMS)
        refusal: Json = self.rng.choice((quota, webhook))(team)
        self.plane.apply([refusal])
        seconds = self.rng.uniform(5, 25)
        path = self.plane.api.path(refusal)
        self._after(seconds, f"allow new pods in {team}", lambda: self.plane.api.delete(path))
        return f"refuse new pods in {team} by a {refusal['kind']} for {seconds:.0f} s"

    def _attack(self) -> str:
        """Let the tenant begin one of his attacks, with pods that prefer an on-demand node."""
        if self._step is not None or not (nodes := self.fleet.on_demand()):
            return ""
        attack, node = self.rng.choice(ATTACKS), self.rng.choice(nodes)
        self._step = lambda: None

        def begin() -> None:
            self._step = attack(self.tenant, node)

        self.tenant.attempt(begin)
        self._after(self.rng.uniform(15, 45), "the tenant leaves", self._leave)
        return f"the tenant attacks beside {node}: {attack.__name__.replace('_', ' ')}"

    def _leave(self) -> None:
        self._step = None
        self.tenant.attempt(self.tenant.leave)

    def _kill(self) -> str:
        """Kill a replica; not the first one after its warm-up, because its memory is judged."""
        replica = self.rng.choice(self.replicas if self.now < WARM_SECONDS else self.replicas[1:])
        if not replica.running:
            return ""
        replica.kill()
        self._after(self.rng.uniform(0.5, 5), f"start replica {replica.name}", lambda: self._start(replica))
        return f"kill replica {replica.name}"

    def _start(self, replica: Replica) -> None:
        if not replica.running:
            replica.start()

    def _pause(self) -> str:
        replica = self.rng.choice(self.replicas)
        if not replica.running or replica.stopped:
            return ""
        seconds = self.rng.choice((2.0, 8.0, 14.0, 18.0))
        replica.pause()
        self._after(seconds, f"continue replica {replica.name}", replica.go_on)
        return f"stop replica {replica.name} for {seconds:.0f} s"

    def _faults(self) -> str:
        replica, rate = self.rng.choice(self.replicas), self.rng.choice(RATES)
        seconds = self.rng.uniform(10, 40)
        disturb(replica, rate, self.rng.randrange(10**6))
        self._after(seconds, f"no faults for replica {replica.name}", lambda: disturb(replica, 0, 0))
        return f"faults for {rate:.0%} of the requests of replica {replica.name} for {seconds:.0f} s"

    def _pool_faults(self) -> str:
        faults = (InjectedError(500), InjectedError(503), Reset(arrived=False), Reset(arrived=True), Stall(3.0))
        seconds, rules = self.rng.uniform(5, 20), self.pool_proxy.rules
        rules.randomly(RandomFaults(faults, 0.2, self.rng.randrange(10**6)))
        self._after(seconds, "no faults for the pool", lambda: rules.randomly(None))
        return f"faults for 20 % of the requests to the pool for {seconds:.0f} s"

    def _pool_outage(self) -> str:
        seconds, rules = self.rng.uniform(8, 30), self.pool_proxy.rules
        rules.randomly(RandomFaults((InjectedError(503),), 1.0, 0))
        self._after(seconds, "the pool answers again", lambda: rules.randomly(None))
        return f"the pool answers 503 to all requests for {seconds:.0f} s"

    def _edit(self) -> str:
        """Edit a template during a drain."""
        drained = self.fleet.drained()
        return self.workloads.edit_on(drained[0]) if drained else ""

    def _orphan(self) -> str:
        key, seconds = self.workloads.orphan(), self.rng.uniform(2, 15)
        self._after(seconds, f"create {key} again", lambda: self.workloads.adopt(key))
        return f"delete {key} without its pods for {seconds:.0f} s"

    def _relabel(self) -> str:
        """Relabel an on-demand node, often one that is being drained."""
        nodes = self.fleet.on_demand()
        if len(nodes) < 2:
            return ""
        drained = self.fleet.drained() if self.rng.random() < 0.5 else []
        name, seconds = self.rng.choice(drained or nodes), self.rng.uniform(10, 30)
        self.fleet.relabel(name)
        self._after(seconds, f"node {name} is an on-demand node again", lambda: self.fleet.label_back(name))
        return f"node {name} is labeled as a spot node for {seconds:.0f} s"
