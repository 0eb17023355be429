"""The event queue, virtual time, and the threads of simulated processes, of which only one runs at a time.

Most events are functions that do not wait. The daemon waits in the middle of its functions, so each of its threads is
a thread of the operating system that runs only while it has the *baton*. A thread that waits runs the next events
itself, until one of them continues another thread: it gets the baton. So the order of all events follows from the
queue alone, and the course is the same for the same seed.
"""

import datetime as dt
import gc
import heapq
import itertools
import random
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, Final

from rescheduler.clock import Thread

#: New objects until a garbage collection: those of a world are many and stay alive, so collections only cost time.
_GC_THRESHOLD: Final = 100_000


class Killed(BaseException):
    """Ends the threads of a process that was killed. The program must not catch it."""


class Process:
    """A process with threads. *clock* is the clock that its threads wait by."""

    def __init__(self, engine: "Engine", name: str) -> None:
        self.name = name
        self.killed = False
        self.frozen_until = 0.0  #: the process does not run until this time (SIGSTOP)
        self.clock = ProcessClock(engine, self)

    def check(self) -> None:
        """Raise Killed if the process was killed."""
        if self.killed:
            raise Killed(self.name)


class WakingEvent(threading.Event):
    """An event of the world. It continues the thread that waits for it, so that nothing has to poll it."""

    def __init__(self, engine: "Engine") -> None:
        super().__init__()
        self.waiter: SimulatedThread | None = None
        self._engine = engine

    def set(self) -> None:
        super().set()
        if self.waiter is not None:
            thread, self.waiter = self.waiter, None
            self._engine.resume_at(self._engine.now, thread)


class SimulatedThread:
    """A thread of a process, or the driver that runs the simulation."""

    def __init__(self, engine: "Engine", process: Process, name: str, run: Callable[[], object]) -> None:
        self.process = process
        self.name = name
        self.turn = 0  #: counts its waits, so that an entry of the queue for an earlier wait has no effect
        self.ended = WakingEvent(engine)
        self.baton = threading.Lock()  #: held unless the thread is to run
        self.baton.acquire()
        self._engine = engine
        self._run = run
        self._started = False

    def start(self) -> None:
        self._started = True
        threading.Thread(target=self._main, name=self.name, daemon=True).start()
        self._engine.resume_at(self._engine.now, self)

    def _main(self) -> None:
        self.baton.acquire()
        try:
            self.process.check()
            self._run()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again by the driver
            self._engine.crashes.append(error)
        self.ended.set()
        self._engine.leave(self)

    def join(self, timeout: float | None = None) -> None:
        self._engine.wait(float("inf") if timeout is None else timeout, self.ended)

    def is_alive(self) -> bool:
        return self._started and not self.ended.is_set()


class Engine:
    """The queue of events. *start* is the wall clock time at second 0."""

    def __init__(self, start: dt.datetime, seed: int) -> None:
        gc.set_threshold(_GC_THRESHOLD)
        self.now = 0.0  #: seconds since the start
        self.crashes: list[BaseException] = []  #: errors that ended threads
        self.events = 0  #: number of events that were run
        self._start = start
        self._seed = seed
        self._queue: list[tuple[float, int, Callable[[], object] | None, SimulatedThread | None, int]] = []
        self._numbers = itertools.count()
        self._waiting: dict[SimulatedThread, None] = {}
        #: What else threads wait for: the program may set it at any time.
        self._awaited: defaultdict[threading.Event, list[SimulatedThread]] = defaultdict(list)
        self._driver = SimulatedThread(self, Process(self, "driver"), "driver", lambda: None)
        self._current = self._driver

    def random(self, name: str) -> random.Random:
        """Return the source of random numbers *name*. It does not depend on how often others were used."""
        return random.Random(f"{self._seed}/{name}")  # noqa: S311 - a simulation

    @property
    def time(self) -> dt.datetime:
        return self._start + dt.timedelta(seconds=self.now)

    @property
    def timestamp(self) -> str:
        """The time as in the API."""
        return self.timestamp_in(0)

    def timestamp_in(self, seconds: float) -> str:
        """Return the time *seconds* from now as in the API."""
        return f"{self.time + dt.timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%SZ}"

    @property
    def process(self) -> Process:
        """The process whose thread runs at present."""
        return self._current.process

    def at(self, seconds: float, act: Callable[[], object]) -> None:
        """Run *act*, which must not wait, at *seconds* since the start."""
        heapq.heappush(self._queue, (max(seconds, self.now), next(self._numbers), act, None, 0))

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        self.at(self.now + seconds, act)

    def every(self, seconds: float, act: Callable[[], object], first: float | None = None) -> None:
        """Run *act* every *seconds*, for the first time after *first*."""

        def again() -> None:
            act()
            self.after(seconds, again)

        self.after(seconds if first is None else first, again)

    def resume_at(self, seconds: float, thread: SimulatedThread) -> None:
        heapq.heappush(self._queue, (max(seconds, self.now), next(self._numbers), None, thread, thread.turn))

    def run(self, seconds: float) -> None:
        """Run all events of the next *seconds*. Raises the error that ended a thread."""
        self.sleep(seconds)
        if self.crashes:
            raise self.crashes[0]

    def wait(self, seconds: float, until: threading.Event) -> bool:
        """Let the current thread wait. Return whether *until* is set."""
        thread = self._current
        thread.process.check()
        if until.is_set():
            return True
        if isinstance(until, WakingEvent):
            until.waiter = thread
            self._pass_on(thread, seconds)
            until.waiter = None
        else:
            self._awaited[until].append(thread)
            self._pass_on(thread, seconds)
            self._awaited[until].remove(thread)
            if not self._awaited[until]:
                del self._awaited[until]
        thread.process.check()
        return until.is_set()

    def sleep(self, seconds: float) -> None:
        """Let the current thread wait for *seconds*."""
        thread = self._current
        thread.process.check()
        self._pass_on(thread, seconds)
        thread.process.check()

    def _pass_on(self, thread: SimulatedThread, seconds: float) -> None:
        """Let others run until *thread* is continued."""
        thread.turn += 1
        self._waiting[thread] = None
        if seconds != float("inf"):
            self.resume_at(self.now + max(seconds, 0.0), thread)
        if self._next() is not thread:
            thread.baton.acquire()

    def leave(self, _: SimulatedThread) -> None:
        """Let the next thread run, because the current one has ended."""
        self._next()

    def kill(self, process: Process) -> None:
        """End all threads of *process* at their waits."""
        process.killed = True
        process.frozen_until = 0.0
        for thread in [thread for thread in self._waiting if thread.process is process]:
            self.resume_at(self.now, thread)

    def _next(self) -> SimulatedThread:
        """Run events until one continues a thread, and give it the baton. Return that thread."""
        before = self._current
        while True:
            self._wake()
            now, _, act, thread, turn = heapq.heappop(self._queue)
            if act is not None:
                self.now = now
                self.events += 1
                act()
                continue
            assert thread is not None
            if thread.turn != turn or thread.ended.is_set():
                continue
            self.now = now
            if thread.process.frozen_until > now:
                self.resume_at(thread.process.frozen_until, thread)
                continue
            thread.turn += 1
            self._waiting.pop(thread, None)
            self._current = thread
            if thread is not before:
                thread.baton.release()
            return thread

    def _wake(self) -> None:
        """Continue the threads that wait for an event that is set."""
        for event, threads in self._awaited.items():
            if event.is_set():
                for thread in threads:
                    if thread in self._waiting:
                        del self._waiting[thread]
                        self.resume_at(self.now, thread)


class ProcessClock:
    """The clock of a process."""

    def __init__(self, engine: Engine, process: Process) -> None:
        self._engine = engine
        self._process = process

    def now(self) -> dt.datetime:
        return self._engine.time

    def monotonic(self) -> float:
        return self._engine.now

    def wait(self, seconds: float, until: threading.Event) -> bool:
        return self._engine.wait(seconds, until)

    def thread(self, name: str, run: Callable[[], object]) -> Thread:
        return SimulatedThread(self._engine, self._process, name, run)

    def executor(self, name: str, workers: int) -> Executor:
        return SimulatedExecutor(self, name, workers)


class SimulatedExecutor(Executor):
    """An executor of at most *workers* simulated threads."""

    def __init__(self, clock: ProcessClock, name: str, workers: int) -> None:
        self._clock = clock
        self._name = name
        self._workers = workers
        self._running: list[Thread] = []
        self._tasks: deque[Callable[[], object]] = deque()
        self._closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()

        def task() -> None:
            try:
                done.set_result(fn(*args, **kwargs))
            except Exception as error:  # noqa: BLE001 - kept for the caller
                done.set_exception(error)

        if self._closed:
            raise RuntimeError("the executor was shut down")
        self._tasks.append(task)
        self._running = [thread for thread in self._running if thread.is_alive()]
        if len(self._running) < self._workers:
            thread = self._clock.thread(self._name, self._work)
            self._running.append(thread)
            thread.start()
        return done

    def _work(self) -> None:
        while self._tasks:
            self._tasks.popleft()()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - the protocol's
        self._closed = True
        if cancel_futures:
            self._tasks.clear()
        for thread in self._running if wait else ():
            thread.join()
