"""The daemon in the simulated cluster: the program itself, with its clock, its connections and its names simulated."""

import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from rescheduler.clock import Clock
from rescheduler.errors import ReschedulerError
from rescheduler.housekeeping.composition import Host, assemble, daemon_policy
from rescheduler.housekeeping.daemon_parts import DaemonState
from rescheduler.housekeeping.loop import Loop
from rescheduler.kube.client import Client
from rescheduler.kube.elector import Seat
from rescheduler.kube.recorder import Recorder
from rescheduler.observe.events import Event
from rescheduler.observe.pages import ServedPages
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.policy import Policy
from rescheduler.providers.base import CloudProvider
from rescheduler.settings import ListenAddress, PageHosts, Running
from rescheduler.simulation.api import ApiServer
from rescheduler.simulation.engine import Engine, Process
from rescheduler.simulation.transport import Network, PoolTransport, SimulatedSource

#: Seconds until the kubelet starts a container again that has ended.
RESTART_SECONDS: Final = 10.0

#: The pace of one replica in a cluster where only the daemon changes what it does not watch: its Lease is renewed every
#: minute, its watches last for 45 minutes, and it rests for half an hour at most.
SLOW: Final = 30.0


class SimulatedSeat(Seat):
    """The place of a process in the network namespace of its pod."""

    def __init__(self, pod: str, lease: str, names: Callable[[], str]) -> None:
        self.tag = hashlib.sha256(f"{pod}/{lease}".encode()).hexdigest()[:16]
        self._names = names

    def identity(self, pod_name: str = "") -> str:
        return f"{pod_name}_{self.tag}.{self._names()}"

    def close(self) -> None:
        pass


class SimulatedHost(Host):
    """The machine of a simulated process."""

    def __init__(self, clock: Clock, pod: str, names: Callable[[], str], settings: "DaemonSettings") -> None:
        self.clock = clock
        self.pace = settings.pace
        self.is_read = settings.is_read
        self._pod = pod
        self._names = names

    def seat(self, lease: str) -> Seat:
        return SimulatedSeat(self._pod, lease, self._names)

    def recorder(self, client: Client, clock: Clock, component: str) -> Recorder:
        return Recorder(client, clock, component, self._names, self._pod)

    def serve(
        self,
        pages: ServedPages,  # noqa: ARG002
        address: ListenAddress,  # noqa: ARG002
        hosts: PageHosts,  # noqa: ARG002
    ) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext("simulated")


@dataclass(frozen=True, slots=True)
class DaemonSettings:
    """The settings of a daemon, as ``rescheduler run`` makes them of its flags."""

    policy: Policy
    running: Running
    prices: PriceList = field(default_factory=PriceList)
    pace: float = 1.0  #: by which the times of the election, of watches and of rests are multiplied
    is_read: bool = True  #: whether it plans as if somebody could read its metrics


class Replica:
    """A pod of the daemon, whose container is started again when it ends."""

    def __init__(
        self,
        engine: Engine,
        server: ApiServer,
        network: Network,
        provider: Callable[[Clock], CloudProvider],
        settings: DaemonSettings,
        name: str,
        report: Callable[[Event], None],
    ) -> None:
        self.name = name
        self.stopped = False
        self.errors: list[str] = []  #: of starts that failed
        self._engine = engine
        self._server = server
        self._network = network
        self._provider = provider
        self._settings = replace(settings, running=replace(settings.running, pod_name=name))
        self._report = report
        self._names = engine.random(f"names of {name}")
        self._process: Process | None = None
        self._state: DaemonState | None = None

    def start(self) -> None:
        """Start the container."""
        self._process = Process(self._engine, self.name)
        self._process.clock.thread(self.name, self._run).start()

    def kill(self) -> None:
        """Kill the process (SIGKILL). It is started again."""
        if self._process is not None:
            self._engine.kill(self._process)
            self._process = None
            self._engine.after(RESTART_SECONDS, self._restart)

    def freeze(self, seconds: float) -> None:
        """Let the process not run for *seconds* (SIGSTOP, SIGCONT)."""
        if self._process is not None:
            self._process.frozen_until = self._engine.now + seconds

    def stop(self) -> None:
        """Ask the process to end (SIGTERM). It is not started again."""
        self.stopped = True
        if self._state is not None:
            self._state.stop()

    def _restart(self) -> None:
        if not self.stopped:
            self.start()

    def _run(self) -> None:
        process = self._process
        assert process is not None
        try:
            with contextlib.ExitStack() as parts:
                self._assembled(parts, process).run()
        except ReschedulerError as error:
            self.errors.append(f"{self._engine.timestamp} {error}")
            self._engine.after(RESTART_SECONDS, self._restart)

    def _assembled(self, parts: contextlib.ExitStack, process: Process) -> Loop:
        settings, clock = self._settings, process.clock
        pool = PoolTransport(self._engine, self._server, self._network, process)
        client = Client(SimulatedSource(pool), clock)
        self._state = DaemonState(clock, settings.running, self._report)
        provider = self._provider(clock)
        parts.callback(provider.close)
        host = SimulatedHost(clock, self.name, lambda: f"{self._names.getrandbits(64):016x}", settings)
        policy = daemon_policy(settings.policy, settings.running.timing)
        return assemble(parts, client, provider, self._state, policy, settings.prices, settings.running, host)
