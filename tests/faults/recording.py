"""The calls of a drain, recorded from a run in which nothing goes wrong: what the daemon does later joins by itself."""

import threading
from collections import Counter
from dataclasses import dataclass
from typing import Final

from deploy.local.faults.proxy import SeenRequest
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
    """The *occurrence*-th call of its kind, counted from the start of the daemon."""

    name: str  #: `str` of its ApiCall
    occurrence: int = 1
    of_pool: bool = False  #: a call of the cloudpool; otherwise of the API server
    writes: bool = False
    target: str = ""  #: path and query, with placeholders for the names of scene and site
    accept: str = ""  #: the header

    def __str__(self) -> str:
        return self.name if self.occurrence == 1 else f"{self.name} #{self.occurrence}"

    def target_in(self, made: Scene) -> str:
        return self.target.replace(_SCENE, made.name).replace(_SITE, made.site.name)


def record(at: Site, program: ProgramName) -> list[CallOfDrain]:
    """The calls of the *program* until the machine and its Node are gone, those of the API server first."""
    clock = SystemClock()
    with scene(at, may_be_missing=MAY_BE_MISSING[program]) as made, running(program, made):
        until = clock.monotonic() + _SECONDS
        while (seen := ended(made)).end != "finished":
            if clock.monotonic() > until:
                raise TimeoutError(f"a drain without faults took longer than {_SECONDS:g} s: {seen.why}")
            clock.wait(0.2, threading.Event())
        return [
            *_numbered(made.proxy.seen, made, of_pool=False),
            *_numbered(made.pool_proxy.seen, made, of_pool=True),
        ]


def _numbered(seen: list[SeenRequest], made: Scene, *, of_pool: bool) -> list[CallOfDrain]:
    counts: Counter[str] = Counter()
    calls = []
    for request in seen:
        name = str(request.call)
        counts[name] += 1
        target = request.target.replace(made.name, _SCENE).replace(made.site.name, _SITE)
        calls.append(CallOfDrain(name, counts[name], of_pool, request.call.writes, target, request.accept))
    return calls
