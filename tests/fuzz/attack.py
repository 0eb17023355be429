"""Hypothesis against a face: examples, and the verdict on each."""

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

from tests.fuzz.faces import Face
from tests.fuzz.http import exchanges
from tests.fuzz.process import Watched
from tests.fuzz.wire import Exchange, connect, exchange

#: Megabytes and descriptors that a process may take beyond what it had after its first examples.
_MORE_MEMORY: Final = 200.0
_MORE_DESCRIPTORS: Final = 100
_WARM: Final = 10
_EVERY: Final = 10  #: examples between two looks at what the process takes
_DAWDLING: Final = 40
_INTERNALS: Final = (b"Traceback", b"internal error", b"Internal Server Error", b'File "')


@dataclass
class Tally:
    """What was sent to a face, and what it answered, by status."""

    examples: int = 0
    answers: Counter[str] = field(default_factory=Counter)


class Appetite:
    """What a process takes beside what it took when it had just begun."""

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
        found = []
        if (more := self._process.megabytes - self._megabytes) > _MORE_MEMORY:
            found.append(f"it took {more:.0f} MB more than at the beginning")
        if (opened := self._process.descriptors - self._descriptors) > _MORE_DESCRIPTORS:
            found.append(f"it holds {opened} descriptors more than at the beginning")
        return found


def attack(attacks: st.SearchStrategy[Any], verdict: Callable[[Any], Iterable[str]], examples: int, seed: int) -> None:
    """Let hypothesis make so many *attacks*; AssertionError with the first one on which *verdict* finds anything."""

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=False,
        phases=(Phase.generate,),  # in a world that keeps state a smaller example proves nothing
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(attacks)
    def one(made: Any) -> None:
        found = list(verdict(made))
        assert not found, f"{'; '.join(found)}\nafter {made!r:.3000}"

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HypothesisWarning)  # that it could tell more of a long example
        one()


def http_attack(face: Face, tally: Tally, examples: int, seed: int) -> None:
    appetite = Appetite(face.process)

    def verdict(sent: Exchange) -> Iterable[str]:
        answer = exchange(face.port, sent, face.tls)
        tally.examples += 1
        tally.answers[status_of(answer)] += 1
        if sent.whole and not answer.startswith(b"HTTP/1.1 "):
            yield f"no answer to a proper request: {answer[:200]!r}"
        yield from wrong_with(answer, face.process)
        yield from face.settled()
        yield from face.process.complaints()
        yield from appetite.excess()

    with _dawdling(face):
        attack(exchanges(face.paths, face.documents, face.headers), verdict, examples, seed)


@contextlib.contextmanager
def _dawdling(face: Face) -> Iterator[None]:
    """Clients that have begun a request, or not even that, and say nothing more."""
    begun = (b"", b"GET ", b"POST /pool/size HTTP/1.1\r\nHost: x\r\n", b"\x16\x03\x01")
    with contextlib.ExitStack() as opened:
        for number in range(_DAWDLING):
            connection = opened.enter_context(connect(face.port))
            connection.sendall(begun[number % len(begun)])
        yield


def wrong_with(answer: bytes, process: Watched) -> Iterable[str]:
    """Whatever came back: it tells no secret, and nothing of the program's inside."""
    if process.leaks(answer):
        yield f"a secret is in the answer: {answer[:2000]!r}"
    for sign in _INTERNALS:
        if sign in answer:
            yield f"internals are in the answer: {answer[:2000]!r}"


def status_of(answer: bytes) -> str:
    return answer[9:12].decode("ascii", "replace") if answer.startswith(b"HTTP/1.") else ("none" if not answer else "?")
