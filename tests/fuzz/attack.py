"""Attacks on a target with inputs from hypothesis, and checks after each example."""

import contextlib
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import hypothesis
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st
from hypothesis.errors import HypothesisWarning

from tests.fuzz.http import exchanges
from tests.fuzz.process import Watched
from tests.fuzz.targets import AttackTarget
from tests.fuzz.wire import Exchange, connect, exchange

#: Limits of growth after the first examples: megabytes and file descriptors.
_MORE_MEMORY: Final = 200.0
_MORE_DESCRIPTORS: Final = 100
_WARM: Final = 10
_EVERY: Final = 10  #: number of examples between two measurements
_IDLE_CLIENTS: Final = 40
_INTERNALS: Final = (b"Traceback", b"internal error", b"Internal Server Error", b'File "')


@dataclass
class AttackTally:
    """The number of examples, and of responses by status."""

    examples: int = 0
    answers: Counter[str] = field(default_factory=Counter)


class ResourceGrowth:
    """Growth of a process's memory and descriptors since its warm-up."""

    def __init__(self, process: Watched) -> None:
        self._process = process
        self._seen = 0
        self._megabytes, self._descriptors = 0.0, 0

    def excess(self) -> list[str]:
        self._seen += 1
        if self._seen == _WARM:
            self._megabytes, self._descriptors = self._process.megabytes, self._process.descriptors
        if self._seen <= _WARM or self._seen % _EVERY:
            return []
        problems = []
        if (more := self._process.megabytes - self._megabytes) > _MORE_MEMORY:
            problems.append(f"memory grew by {more:.0f} MB")
        if (opened := self._process.descriptors - self._descriptors) > _MORE_DESCRIPTORS:
            problems.append(f"{opened} more open descriptors than after the start")
        return problems


def attack(attacks: st.SearchStrategy[Any], verdict: Callable[[Any], Iterable[str]], examples: int, seed: int) -> None:
    """Run *examples* attacks; raise AssertionError on the first one for which *verdict* yields a problem."""

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=False,
        phases=(Phase.generate,),  # shrinking does not work with a stateful world
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(attacks)
    def check(example: Any) -> None:
        problems = list(verdict(example))
        assert not problems, f"{'; '.join(problems)}\nafter {example!r:.3000}"

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HypothesisWarning)  # about shortened reports of long examples
        check()


def http_attack(target: AttackTarget, tally: AttackTally, examples: int, seed: int) -> None:
    growth = ResourceGrowth(target.process)

    def verdict(sent: Exchange) -> Iterable[str]:
        response = exchange(target.port, sent, target.tls)
        tally.examples += 1
        tally.answers[status_of(response)] += 1
        if sent.whole and not response.startswith(b"HTTP/1.1 "):
            yield f"no answer to a valid request: {response[:200]!r}"
        yield from leaks_in(response, target.process)
        yield from target.restore()
        yield from target.process.problems()
        yield from growth.excess()

    with _idle_clients(target):
        attack(exchanges(target.paths, target.documents, target.headers), verdict, examples, seed)


@contextlib.contextmanager
def _idle_clients(target: AttackTarget) -> Iterator[None]:
    """Open connections with no request or only part of one, and keep them idle."""
    begun = (b"", b"GET ", b"POST /pool/size HTTP/1.1\r\nHost: localhost\r\n", b"\x16\x03\x01")
    with contextlib.ExitStack() as opened:
        for number in range(_IDLE_CLIENTS):
            connection = opened.enter_context(connect(target.port))
            connection.sendall(begun[number % len(begun)])
        yield


def leaks_in(response: bytes, process: Watched) -> Iterable[str]:
    """Report secrets and internals in a response."""
    if process.leaks(response):
        yield f"a secret is in the answer: {response[:2000]!r}"
    for sign in _INTERNALS:
        if sign in response:
            yield f"internals are in the answer: {response[:2000]!r}"


def status_of(response: bytes) -> str:
    return (
        response[9:12].decode("ascii", "replace")
        if response.startswith(b"HTTP/1.")
        else ("none" if not response else "?")
    )
