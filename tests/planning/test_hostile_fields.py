"""A hostile text in each field of each kind that is read: what a plan and an explanation say is printable and short."""

import copy
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest

from predicates import work
from predicates.snapshot import Snapshot
from predicates.texts import LONGEST_REASON
from predicates.wire import FILE_KINDS, Decoder, Interner, WireError
from rescheduler.planning.outcome import Plan, Reason, Rejected
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from tests.kube.samples import SAMPLES
from tests.planning.builders import CIRCUMSTANCES, HOST, ON_DEMAND, Manifest, node, pod, short, snapshot

#: Colors, a mark of direction, and more characters than any message may contain of a text from outside.
HOSTILE: Final = "x\x1b[31m\u202e\r" + "y" * 5_000

#: Texts that the API server checks in every object.
CHECKED: Final = {("metadata", "name"), ("metadata", "namespace"), ("kind",), ("apiVersion",), ("spec", "nodeName")}

#: Settings under which most rules are asked.
POLICIES: Final = (Policy(), Policy(skip_nodes_with_local_storage=False, delete_non_replicated_pods=True))

Path = tuple[str | int, ...]


def fields(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the paths of all texts in *value*, and of all objects, in which a key can be added."""
    if isinstance(value, dict):
        yield (*path, HOSTILE)
        for key, item in value.items():
            yield from fields(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from fields(item, (*path, number))
    elif isinstance(value, str) and path not in CHECKED:
        yield path


def changed(manifest: Manifest, path: Path) -> Manifest:
    """Return *manifest* with a hostile text in the field *path*."""
    result = copy.deepcopy(manifest)
    place: Any = result
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = HOSTILE
    return result


def cluster(kind: str, manifest: Manifest) -> Snapshot:
    """Return a cluster of two nodes with this object. Pods run on the on-demand node. Raises WireError."""
    snapshot, decoder = Snapshot(), Decoder(Interner())
    others = [node("node-1", ON_DEMAND), node("s", cpu="64"), pod("shop/other-1", "node-1")]
    for object_kind, each in [*((other["kind"], other) for other in others), (kind, manifest)]:
        snapshot.upsert(object_kind, decoder.decode(object_kind, msgspec.json.encode(each)))
    return snapshot


def told(snapshot: Snapshot) -> Iterator[str]:
    """Yield all texts of the plans and explanations."""
    for policy in POLICIES:
        planner = Planner(snapshot, policy)
        for verdict in planner.plan_each(CIRCUMSTANCES).rejected:
            yield from (blocker.detail for blocker in verdict.blockers)
        for each in planner.relevant_pods(CIRCUMSTANCES):
            explanation = planner.explain(each, CIRCUMSTANCES)
            yield from (blocker.detail for blocker in explanation.blockers)
            for refusals in explanation.refusals:
                yield from (reason for _, reasons in refusals for reason in reasons)


def faults(texts: Iterator[str]) -> list[str]:
    return [text[:200] for text in texts if not text.isprintable() or len(text) > LONGEST_REASON]


@pytest.mark.parametrize("sample", SAMPLES)
def test_what_is_told_is_printable_and_short(sample: str) -> None:
    kind, manifest = SAMPLES[sample]
    if kind not in FILE_KINDS:
        pytest.skip("not read from files")
    found: dict[Path, list[str]] = {}
    for path in fields(manifest):
        try:
            texts = faults(told(cluster(kind, changed(manifest, path))))
        except WireError as error:
            texts = faults(iter([str(error)]))
        if texts:
            found[path[:-1] if path[-1] == HOSTILE else path] = texts
    assert not found


@pytest.mark.parametrize("required", [True, False], ids=["required", "preferred"])
def test_a_namespace_with_too_many_selectors_holds_back_only_itself(
    monkeypatch: pytest.MonkeyPatch, *, required: bool
) -> None:
    """Each of its pods has a constraint that would be evaluated for all of them."""
    monkeypatch.setattr(work, "UNITS", 600)
    monkeypatch.setattr(work, "UNITS_PER_NODE", 0)

    def spread(*expressions: Manifest) -> list[Manifest]:
        unsatisfiable = "DoNotSchedule" if required else "ScheduleAnyway"
        constraint = {"maxSkew": 9, "topologyKey": HOST, "whenUnsatisfiable": unsatisfiable}
        return [constraint | {"labelSelector": {"matchExpressions": list(expressions)}}]

    broad = [spread({"key": f"k{n}", "operator": "DoesNotExist"}) for n in range(8)]
    theirs = [pod(f"team/p{n}-0", "od-2", cpu="10m", topologySpreadConstraints=each) for n, each in enumerate(broad)]
    own = pod("a-1", "od-1", topologySpreadConstraints=spread({"key": "app", "operator": "In", "values": ["a"]}))
    nodes = [node(name, ON_DEMAND) for name in ("od-1", "od-2")]
    planner = Planner(snapshot([*nodes, node("s-1"), own, *theirs]), Policy())
    assert short(planner.plan_node("od-1", CIRCUMSTANCES)) == {"a-1": "s-1"}
    verdict = planner.plan_node("od-2", CIRCUMSTANCES)
    if required:
        assert isinstance(verdict, Rejected)
        [blocker, *_] = verdict.blockers
        assert blocker.reason is Reason.NO_ROOM
        assert "too many different affinity terms and topology spread constraints in namespace team" in blocker.detail
    else:
        assert isinstance(verdict, Plan)
