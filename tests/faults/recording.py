"""Recording of the calls of a drain from a run without faults, so that new calls are tested automatically."""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from devcluster.faults.proxy import SeenRequest
from rescheduler.clock import SystemClock
from tests.faults.outcome import ended
from tests.faults.programs import MAY_BE_MISSING, ProgramName, running
from tests.faults.scene import Scene, scene
from tests.faults.sites import Site

_SCENE: Final = "{scene}"
_SITE: Final = "{site}"
_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class CallOfDrain:
    """The *occurrence*-th call of its name, counted from the start of the program."""

    name: str  #: `str` of its ApiCall
    occurrence: int = 1
    of_pool: bool = False  #: sent to the cloudpool, not to the API server
    writes: bool = False
    target: str = ""  #: path and query, with placeholders for the names of scene and site
    accept: str = ""  #: value of the header

    def __str__(self) -> str:
        return self.name if self.occurrence == 1 else f"{self.name} #{self.occurrence}"

    def target_in(self, env: Scene) -> str:
        return self.target.replace(_SCENE, env.name).replace(_SITE, env.site.name)


def record(at: Site, program: ProgramName) -> list[CallOfDrain]:
    """Return the calls of the *program* until the machine and its Node are gone, API server calls first."""
    clock = SystemClock()
    with scene(at, may_be_missing=MAY_BE_MISSING[program]) as env, running(program, env):
        until = clock.monotonic() + _SECONDS
        while (seen := ended(env)).end != "finished":
            if clock.monotonic() > until:
                raise TimeoutError(f"a drain without faults took longer than {_SECONDS:g} s: {seen.why}")
            clock.wait(0.2, threading.Event())
        names = {env.name: _SCENE, env.site.name: _SITE}
        return [*numbered(env.proxy.seen, names), *numbered(env.pool_proxy.seen, names)]


def numbered(seen: Iterable[SeenRequest], names: Mapping[str, str]) -> list[CallOfDrain]:
    """Return the calls of a run, with placeholders instead of *names* in their targets."""
    counts: Counter[str] = Counter()
    calls = []
    for request in seen:
        call, target = request.call, request.target
        counts[str(call)] += 1
        for name, placeholder in names.items():
            target = target.replace(name, placeholder)
        calls.append(CallOfDrain(str(call), counts[str(call)], call.of_pool, call.writes, target, request.accept))
    return calls
