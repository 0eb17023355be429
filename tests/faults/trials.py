"""One run: a scene, a program that drains it, faults or kills at its calls, and the outcome."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Literal

import httpx2

from devcluster.faults.catalog import DEFAULT_SECONDS, FaultSeconds
from devcluster.faults.exchange import ProxiedRequest
from devcluster.faults.injected import Hook, InjectedFault
from devcluster.faults.proxy import FaultProxy
from devcluster.faults.rules import FaultRule
from rescheduler.clock import SystemClock
from rescheduler.settings import LEASE
from tests.cluster.ready_watch import ReadyWatch
from tests.faults import jumping_clock
from tests.faults.beside import BESIDE, CHANGE, Beside, BesideName
from tests.faults.outcome import Ended, ended, too_many_missing, violations
from tests.faults.programs import LANDING_SECONDS, MAY_BE_MISSING, REQUESTS, ProgramName, started
from tests.faults.recording import CallOfDrain
from tests.faults.scene import PODS, WEB, Scene, scene
from tests.faults.sites import KEY, Site
from tests.invariants.rules import Rules
from tests.invariants.scenes import STAYING
from tests.invariants.watchdog import Watchdog

#: Time limit of a run; a retried drain finishes well within it.
PATIENCE_SECONDS: Final = 75.0
_POLL_SECONDS: Final = 0.4
#: Time limit of the drain in progress when the patience is over.
_LAST_DRAIN_SECONDS: Final = 60.0
#: Time limit for the recovery of expired marks.
_ABANDONED_SECONDS: Final = 30.0
#: Clock jump in seconds. Other installations consider marks abandoned that are an hour old by their clocks.
_JUMPS: Final = {"clock-forward": 1500.0, "clock-back": -1500.0}

#: In addition to the faults of the proxy.
JUMPS: Final = tuple(_JUMPS)


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A disturbance at *call*: a fault of `all_faults` or `JUMPS` by name, or a kill of the daemon.

    With *seconds* the fault lasts this long after its first occurrence; it affects *times* calls in a row.
    """

    call: CallOfDrain
    kind: str
    seconds: float = 0.0
    times: int = 1

    def __str__(self) -> str:
        lasting = f" for {self.seconds:g} s" if self.seconds else ""
        again = f", {self.times} times" if self.times > 1 else ""
        return f"{self.call} × {self.kind}{lasting}{again}"


KILLS: Final = ("killed-before", "killed-after")


def kill_by(kind: str, kill: Callable[[], None]) -> Hook:
    """Return the fault of a call at which *kill* ends the program; *kind* is one of KILLS."""

    def act(_: ProxiedRequest) -> bool:
        kill()
        return False

    return Hook("before" if kind == "killed-before" else "after", act)


#: What changes while the killed program is not running: a pod arrives on the node, the templates of all owners are
#: edited, or the node is labeled as a spot node until it takes pods again.
Meanwhile = Literal["", "late pod", "edit", "relabel"]


@dataclass(frozen=True, slots=True)
class FaultTrial:
    """The faults and kills in a run of *program*, and what changes while it is not running.

    *broken*: the safeguard to disable in the daemon, for tests of the observer.
    *beside*: what disturbs the rolling update.
    """

    troubles: tuple[Disturbance, ...]
    meanwhile: Meanwhile = ""
    program: ProgramName = "daemon"
    broken: str = ""
    beside: BesideName = ""

    def __str__(self) -> str:
        of = "" if self.program == "daemon" else f"{self.program}: "
        also = (f" + {each}" for each in (self.meanwhile, self.beside) if each)
        return of + " + ".join(map(str, self.troubles)) + "".join(also)


@dataclass(frozen=True, slots=True)
class TrialPace:
    """Time limits of a run: after *patience* seconds it is judged at the end of the drain in progress.

    *seconds* are the durations of the faults.
    """

    patience: float = PATIENCE_SECONDS
    seconds: FaultSeconds = DEFAULT_SECONDS


DEFAULT_PACE: Final = TrialPace()


@dataclass(slots=True)
class TrialResult:
    """The outcome of a trial."""

    trial: FaultTrial
    ended: Ended
    violations: list[str]
    seconds: float
    reached: tuple[Disturbance, ...]  #: the faults and kills that took effect
    exits: int  #: number of unprompted exits of the program
    answers: list[str]  #: see `DrainingProgram.answers`; of the last process
    log: list[str] = field(default_factory=list)  #: log of the programs if the trial failed or did not finish

    @property
    def failed(self) -> bool:
        return self.ended.end == "neither" or bool(self.violations)

    def __str__(self) -> str:
        unreached = "" if self.reached else ", not reached"
        exits = f", exited {self.exits} ×" if self.exits else ""
        wrong = "; ".join([*self.ended.why, *self.violations])
        verdict = "FAILED: " if self.failed else ""
        return f"{verdict}{self.trial}: {self.ended.end} after {self.seconds:.1f} s{unreached}{exits} {wrong}".rstrip()


def play(at: Site, trial: FaultTrial, pace: TrialPace) -> TrialResult:
    """Play *trial* in a new scene."""
    stale = [trouble.call for trouble in trial.troubles if trouble.kind == "stale-list"]
    allowed = MAY_BE_MISSING[trial.program]

    def prepare(env: Scene) -> None:
        _list_before(env, stale)
        env.web_annotations = BESIDE[trial.beside](env).annotations if trial.beside else {}

    with scene(at, prepare, may_be_missing=allowed) as env, contextlib.ExitStack() as ends:
        beside = BESIDE[trial.beside](env)
        ends.enter_context(beside.built())
        least = ends.enter_context(_least_ready(env))
        with Watchdog(env.plane, _rules(env, trial), env.server) as observer:
            run = _TrialRun(env, trial, pace.seconds, beside)
            try:
                result = run.play(pace.patience)
            finally:
                run.end()
        result.violations += map(str, observer.violations)
        if trial.program == "surge" and (fewest := least()) < PODS[WEB]:
            result.violations.append(f"{WEB} had {fewest} Ready pods, of {PODS[WEB]}")
        if result.failed or result.ended.end != "finished":
            result.log = run.messages()
    return result


@contextlib.contextmanager
def _least_ready(env: Scene) -> Iterator[Callable[[], int]]:
    """Yield a function that returns the lowest number of Ready pods of WEB by now, as a watch reports them."""
    watched = ReadyWatch(env.plane, env.site.name)
    watched.pods.start()
    watched.judge([WEB])
    yield lambda: watched.least[WEB] if watched.pods.running else -1
    watched.pods.stop()


def _rules(env: Scene, trial: FaultTrial) -> Rules:
    name = env.site.name
    behind = max((-_JUMPS.get(trouble.kind, 0.0) for trouble in trial.troubles), default=0.0)
    return Rules(
        landing_timeout=LANDING_SECONDS,
        staying=STAYING,
        first_runs=True,
        moves_per_pod_and_day=0.0,
        on_demand=f"{KEY}-on-demand={name}",
        spot=f"{KEY}-spot={name}",
        nodes=f"{KEY}={name}",
        namespace=name,
        lease="" if trial.program in REQUESTS else LEASE,
        user=env.site.user,
        abandoned=_ABANDONED_SECONDS + max(behind, 0.0),
    )


def _list_before(env: Scene, calls: Sequence[CallOfDrain]) -> None:
    """Give the proxy older lists, without pods, to replay as stale responses."""
    headers = {"authorization": f"Bearer {env.plane.token}"}
    with httpx2.Client(base_url=env.proxy.url, verify=env.trusted, headers=headers, trust_env=False) as client:
        for call in calls:
            response = client.get(call.target_in(env), headers={"accept": call.accept})
            if response.status_code != HTTPStatus.NOT_FOUND:  # a kind that is not installed, for which the daemon asks
                response.raise_for_status()
    env.proxy.rules.forget()


class _TrialRun:
    def __init__(self, env: Scene, trial: FaultTrial, seconds: FaultSeconds, beside: Beside) -> None:
        self._scene, self._trial, self._beside = env, trial, beside
        self._begun = not trial.beside  #: whether the disturbance beside the rolling update has begun
        self._before = env.web_now()
        self._clock = SystemClock()
        self._lock = threading.Lock()  #: guards the running program, which hooks kill
        self._killed = False
        self._exits = 0
        self._wrong: list[str] = []
        self._faults: list[InjectedFault] = []
        for trouble in trial.troubles:
            call, proxy = trouble.call, env.pool_proxy if trouble.call.of_pool else env.proxy
            fault = self._fault(trouble, proxy, seconds)
            proxy.rules.add(FaultRule(call.name, fault, call.occurrence, trouble.seconds, trouble.times))
            self._faults.append(fault)
        env.proxy.watcher = self._watch
        self._program = started(trial.program, env, trial.broken)
        self._programs = [self._program]

    def play(self, patience: float) -> TrialResult:
        began = self._clock.monotonic()
        while True:
            now = ended(self._scene)
            self._wrong += too_many_missing(self._scene, now)
            spent = self._clock.monotonic() - began
            undecided = now.end == "neither" and spent < patience + _LAST_DRAIN_SECONDS
            if now.end == "finished" or (spent > patience and not undecided) or self._is_over(now):
                break
            if self._begun:
                self._beside.go_on()
            if now.end == "rolled back" and self._scene.relabeled and not self._killed:
                self._scene.relabel(spot=False)
            with self._lock:
                self._tend()
            self._clock.wait(_POLL_SECONDS, threading.Event())
        if self._beside.lasts and self._scene.web_now() != self._before:
            self._wrong.append(f"{WEB} is not as before: {self._before}, {self._scene.web_now()}")
        wrong = sorted({*self._wrong, *violations(self._scene)})
        answers = self._program.answers()
        return TrialResult(self._trial, now, wrong, spent, self._reached(), self._exits, answers)

    def end(self) -> None:
        self._program.kill()
        self._scene.proxy.watcher = lambda _: None

    def _watch(self, request: ProxiedRequest) -> None:
        if not self._begun and str(request.call) == CHANGE:
            self._beside.begin()
            self._begun = True

    def _is_over(self, now: Ended) -> bool:
        """Return whether the drain was rolled back by a disturbance that lasts, and all kills have happened."""
        over = self._beside.lasts and self._begun and now.end == "rolled back"
        return over and not self._killed and len(self._reached()) == len(self._trial.troubles)

    def messages(self) -> list[str]:
        """Return the log messages of the programs in the order of their runs."""
        lines: list[dict[str, Any]] = [line for program in self._programs for line in program.lines]
        return [" ".join(str(line.get(name, "")) for name in ("time", "level", "node", "message")) for line in lines]

    def _tend(self) -> None:
        """Act as the kubelet: restart the program and renew its tokens."""
        if self._scene.proxy.has_expired_tokens:
            self._scene.site.write_kubeconfig()
        if self._killed:
            self._killed = False
            self._scene.release_lease()
            self._change()
            self._restart()
        elif not self._program.running:
            self._exits += 1
            self._restart()

    def _change(self) -> None:
        match self._trial.meanwhile:
            case "late pod":
                self._scene.add_late_pod()
            case "edit":
                self._scene.edit_templates()
            case "relabel":
                self._scene.relabel(spot=True)

    def _restart(self) -> None:
        self._program = started(self._trial.program, self._scene, self._trial.broken)
        self._programs.append(self._program)

    def _fault(self, trouble: Disturbance, proxy: FaultProxy, seconds: FaultSeconds) -> InjectedFault:
        def kill() -> None:
            with self._lock:
                self._program.kill()
                self._killed = True

        def jump(_: ProxiedRequest) -> bool:
            jumping_clock.jump(self._scene.clock_offset, _JUMPS[trouble.kind])
            return True

        if trouble.kind in KILLS:
            return kill_by(trouble.kind, kill)
        if trouble.kind in _JUMPS:
            return Hook("before", jump)
        return proxy.all_faults(seconds)[trouble.kind]

    def _reached(self) -> tuple[Disturbance, ...]:
        if self._trial.beside and not (self._begun and self._beside.happened()):
            return ()
        seen = [*self._scene.proxy.seen, *self._scene.pool_proxy.seen]
        return tuple(
            trouble
            for trouble, fault in zip(self._trial.troubles, self._faults, strict=True)
            if sum(request.fault is fault for request in seen) >= trouble.times
        )
