"""The programs that drain a scene's node: the daemon, and the cloudpool proxy with a client."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Literal, Protocol

import httpx2

from rescheduler.clock import SystemClock
from tests.acceptance.program import LoggedProgram
from tests.cluster.daemon import QUICK
from tests.faults import jumping_clock
from tests.faults.scene import Scene
from tests.faults.sites import KEY, account
from tests.invariants.broken import SAFEGUARDS

#: "surge" is the daemon where a budget allows nothing, so that a rolling update has to move its pods. The client of
#: "proxy" requests an empty pool, that of "termination" the termination of the machine.
ProgramName = Literal["daemon", "proxy", "termination", "surge"]

#: The requests to the cloudpool proxy, for a machine.
REQUESTS: Final[dict[ProgramName, Callable[[str], tuple[str, dict[str, Any]]]]] = {
    "proxy": lambda _: ("/pool/size", {"desiredSize": 0}),
    "termination": lambda machine: ("/pool/terminate", {"machineId": machine, "decrementDesiredSize": True}),
}

#: Retry a failed drain within a second.
LANDING_SECONDS: Final = 20.0
DAEMON_FLAGS: Final = (
    "--node-drain-delay=0",
    "--failure-pause=1s",
    "--failure-pause-max=1s",
    "--node-cooldown=1s",
    "--node-cooldown-max=1s",
    f"--landing-timeout={LANDING_SECONDS:g}s",
    "--pod-eviction-timeout=15s",
    "--max-moves-per-pod-per-day=0",
    "--return-wait=0",
)

#: Number of pods that the budget allows to be missing. The proxy removes a node only if all its pods can be evicted.
MAY_BE_MISSING: Final[dict[ProgramName, int]] = {"daemon": 1, "proxy": 2, "termination": 2, "surge": 0}

_POOL_PACE: Final = {"settleTime": "1s", "pollInterval": "200ms"}
_RETRY_SECONDS: Final = 0.5
_ANSWER_SECONDS: Final = 60.0


class DrainingProgram(Protocol):
    """The process under test, which drains nodes and can be killed."""

    @property
    def running(self) -> bool: ...

    @property
    def lines(self) -> list[dict[str, Any]]: ...

    def kill(self) -> None: ...

    def answers(self) -> list[str]:
        """Return the reasons of failed drains in their Events, or the statuses of the responses of the proxy.

        A drain must have ended. A response that is still expected is awaited.
        """
        ...


def started(name: ProgramName, of: Scene, broken: str = "") -> DrainingProgram:
    """Start the program and wait until it runs. *broken*: the safeguard to disable in the daemon, if any."""
    if name in REQUESTS:
        return CloudpoolProxy(of, name)
    surge = ("--surge=blocked",) if name == "surge" else ()
    program = DrainingDaemon(of, surge, partial(_without, broken, _main(of)) if broken else _main(of))
    program.__enter__()
    return program


@contextlib.contextmanager
def running(name: ProgramName, of: Scene) -> Iterator[DrainingProgram]:
    program = started(name, of)
    try:
        yield program
    finally:
        program.kill()


def daemon_command(of: Scene) -> tuple[str, ...]:
    """Return the arguments of `rescheduler`."""
    pool = {
        "id": of.name,
        "backend": {"url": of.pool_proxy.url, "timeout": "3s"},
        "refreshInterval": "100ms",
        "cacheAge": "1s",
        "orderTimeout": "2s",
        **_POOL_PACE,
    }
    config = of.site.folder / "cloud.json"
    config.write_text(json.dumps({"pools": [pool]}))
    name = of.site.name
    return (
        "run",
        f"--kubeconfig={of.kubeconfig}",
        *QUICK,
        *DAEMON_FLAGS,
        f"--namespace={name}",
        f"--memory-name={account(name)}-memory",
        f"--savings-name={account(name)}-savings",
        f"--on-demand-node-label={KEY}-on-demand={name}",
        f"--spot-node-label={KEY}-spot={name}",
        "--cloud-provider=cloudpool",
        f"--cloud-config={config}",
    )


class DrainingDaemon(LoggedProgram):
    """The daemon."""

    def __init__(self, of: Scene, flags: Sequence[str], main: Callable[[Sequence[str]], None]) -> None:
        super().__init__(of.log, *daemon_command(of), *flags, main=main)
        self._scene = of

    def answers(self) -> list[str]:
        """Return the reasons of failed drains of the node."""
        selector = f"involvedObject.name={self._scene.node},reason=DrainFailed"
        events = self._scene.plane.api.items("/api/v1/events", fieldSelector=selector)
        return [event["message"].partition(":")[0] for event in events for _ in range(event.get("count", 1))]


class CloudpoolProxy:
    """The proxy, and a client that repeats a request until the proxy reports success, or that the machine is gone."""

    def __init__(self, of: Scene, name: ProgramName) -> None:
        auth = {"kubeConfigPath": str(of.kubeconfig)}
        document = {
            "apiServer": {"url": of.proxy.url, "auth": auth, "timeout": "5s"},
            "backend": {"url": of.pool_proxy.url, "timeout": "3s", **_POOL_PACE},
            "drain": {"evictionTimeout": "15s", "maxGracefulTermination": "2s"},
        }
        config = of.site.folder / "proxy.json"
        config.write_text(json.dumps(document))
        memory = f"--memory-name={account(of.site.name)}-memory"
        addresses = (
            f"--namespace={of.site.name}",
            memory,
            "--host=127.0.0.1",
            "--port=0",
            "--listen-address=127.0.0.1:0",
        )
        self._program = LoggedProgram(of.log, "proxy", f"--config-file={config}", *addresses, "-v=3", main=_main(of))
        self._request = REQUESTS[name](of.machine)
        self._answers: list[str] = []
        self._ended = threading.Event()
        self._clock = SystemClock()
        self._program.__enter__()
        self._client = threading.Thread(target=self._ask, name="client-of-proxy", daemon=True)
        self._client.start()

    @property
    def running(self) -> bool:
        return self._program.running

    @property
    def lines(self) -> list[dict[str, Any]]:
        return self._program.lines

    def kill(self) -> None:
        """Send SIGKILL; the client stops its requests."""
        self._program.kill()
        self._ended.set()

    def answers(self) -> list[str]:
        """Return the statuses of the responses."""
        self._client.join(_ANSWER_SECONDS)
        return list(self._answers)

    def _ask(self) -> None:
        path, body = self._request
        while not self._clock.wait(_RETRY_SECONDS, self._ended):
            with contextlib.suppress(httpx2.TransportError):
                if not (url := self._program.proxy_url()):
                    continue
                response = httpx2.post(f"{url}{path}", json=body, timeout=_ANSWER_SECONDS, trust_env=False)
                self._answers.append(str(response.status_code))
                if response.is_success or response.status_code == httpx2.codes.NOT_FOUND:
                    return


def _without(safeguard: str, main: Callable[[Sequence[str]], None], arguments: Sequence[str]) -> None:
    SAFEGUARDS[safeguard]()
    main(arguments)


def _main(of: Scene) -> Callable[[Sequence[str]], None]:
    return partial(jumping_clock.main, str(of.clock_offset))
