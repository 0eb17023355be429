"""What undoes a drain is seen: pods on a node that was emptied, a second drain of it, a leftover that moves twice."""

from collections.abc import Callable
from typing import Final

import msgspec
import pytest

from devcluster.audit import AuditEvent
from devcluster.manifests import ON_DEMAND
from tests.cluster.beside import SideBySide
from tests.invariants.history import History
from tests.invariants.scripted import BEGIN, RULES, HistoryScript

PINNED: Final = {ON_DEMAND: "true"}


def empties(script: HistoryScript) -> None:
    """Empty the node `od`: a leftover goes to `od-2`, the other pods to `spot`."""
    script.node("od-2", ON_DEMAND)
    script.pod("web-0", selector=PINNED)
    script.after(1)
    script.mark()
    for number in range(4):
        script.evict(f"web-{number}")
        script.pod(f"new-{number}", "spot" if number else "od-2", created=True, selector={} if number else PINNED)
        script.after(1)
    script.release()
    script.after(1)


def nothing_more(_: HistoryScript) -> None:
    pass


def a_pod_comes_back(script: HistoryScript) -> None:
    script.delete("new-1")
    script.pod("late", "od")


def it_is_emptied_again(script: HistoryScript) -> None:
    a_pod_comes_back(script)
    script.mark()
    script.evict("late")
    script.after(1)
    script.release()


def the_leftover_moves_again(script: HistoryScript) -> None:
    script.node("od-2", ON_DEMAND, "draining")
    script.evict("new-0")
    script.pod("newer", "od-3", selector=PINNED)
    script.after(1)


CASES: Final[dict[Callable[[HistoryScript], None], list[str]]] = {
    nothing_more: [],
    a_pod_comes_back: ["pod default/late was bound to od at 00:00:06, which was emptied at 00:00:05"],
    it_is_emptied_again: [
        "pod default/late was bound to od at 00:00:06, which was emptied at 00:00:05",
        "node od was emptied 2 times",
    ],
    the_leftover_moves_again: ["leftovers of web were moved 2 times by us"],
}


def evictions(script: HistoryScript) -> tuple[AuditEvent, ...]:
    """Return the evictions in the script as those of the audit log."""
    times = {"requestReceivedTimestamp": BEGIN, "stageTimestamp": BEGIN, "userAgent": "spot-rescheduler/0"}
    sent = [each for each in script.writes if each.kind == "pods/eviction"]
    events = [{"objectRef": {"namespace": each.namespace, "name": each.name}, **times} for each in sent]
    return tuple(msgspec.convert({"verb": "create", "user": {}, **each}, AuditEvent) for each in events)


@pytest.mark.parametrize("happens", CASES, ids=lambda case: case.__name__)
def test_what_undoes_a_drain_is_seen(happens: Callable[[HistoryScript], None]) -> None:
    script = HistoryScript()
    empties(script)
    happens(script)
    history = History(BEGIN, script.at, tuple(script.revisions), tuple(script.writes))
    assert SideBySide(history, RULES, evictions(script)).undone() == CASES[happens]
