"""The question of planning is asked in one place: answers do not start trials, and place no pods by themselves."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from rescheduler.planning.answers.node import all_obstacles, single
from rescheduler.planning.examined import examine
from rescheduler.planning.outcome import Plan, Rejected
from rescheduler.planning.placement.packing import Effort, Stuck
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from rescheduler.planning.question import Question, after, ask, at_once, opened
from tests.planning.builders import CIRCUMSTANCES, HOST, ON_DEMAND, Manifest, node, pod, snapshot

PLANNING: Final = Path(__file__).parents[2] / "rescheduler" / "planning"

#: What only the question and the modules of placement call.
RESERVED: Final = ("pack", "place_or_explain", "trial")


def calls(text: str) -> Iterator[str]:
    """Yield the reserved functions and methods that a module calls."""
    for each in ast.walk(ast.parse(text)):
        if isinstance(each, ast.Call):
            name = getattr(each.func, "attr", getattr(each.func, "id", ""))
            if name in RESERVED:
                yield name


def test_only_the_question_starts_trials_and_places_pods() -> None:
    modules = {path.relative_to(PLANNING): path.read_text() for path in PLANNING.rglob("*.py")}
    placing = {str(path) for path, text in modules.items() if any(calls(text)) and path.parts[0] != "placement"}
    # `pack` of the other two compresses what is stored.
    assert placing == {"question.py", "memory.py", "money/savings_form.py"}


def test_a_trial_elsewhere_is_found() -> None:
    assert list(calls("with shared.snapshot.trial() as trial:\n    pack(room, trial, pods)")) == ["trial", "pack"]


CLUSTER: Final[list[Manifest]] = [node("od-1", ON_DEMAND), node("od-2", ON_DEMAND), node("s", cpu="3")]


@pytest.mark.parametrize(
    ("sizes", "fit"),
    [((1, 2), True), ((2, 2), False)],
)
def test_the_pods_of_several_nodes_are_placed_together_or_the_trial_is_unchanged(
    sizes: tuple[int, int], *, fit: bool
) -> None:
    pods = [pod(f"app-{number}", f"od-{number}", cpu=str(size)) for number, size in enumerate(sizes, 1)]
    cluster = snapshot([*CLUSTER, *pods])
    shared = Planner(cluster, Policy()).round(CIRCUMSTANCES)

    candidates = [examine(name, shared).candidate for name in ("od-1", "od-2")]
    before = cluster.nodes.free.copy()
    with opened(shared, Effort(100), shared.pending) as attempt:
        answer = ask(Question.of(*candidates), attempt)
        changed = bool((cluster.nodes.free != before).any())
    assert (isinstance(answer, Stuck), changed) == (not fit, fit)
    if not isinstance(answer, Stuck | Rejected):
        assert [plan.node for plan in answer] == ["od-1", "od-2"]
    assert not (cluster.nodes.free != before).any()


def test_what_is_known_to_stay_has_no_plan_and_only_its_pods_without_a_place() -> None:
    """With *only_room*, nothing is carried out, whether the pods fit or not."""
    cluster = snapshot([*CLUSTER, pod("a-1", "od-1"), pod("b-1", "od-2", nodeSelector={HOST: "none"})])
    shared = Planner(cluster, Policy()).round(CIRCUMSTANCES)

    fitting, pinned = (Question.of(examine(name, shared).candidate) for name in ("od-1", "od-2"))
    with opened(shared, Effort(100), shared.pending) as attempt:
        mark = attempt.trial.savepoint()
        assert ask(fitting, attempt, only_room=True) == ()
        assert isinstance(ask(pinned, attempt, only_room=True), Stuck)
        assert attempt.trial.savepoint() == mark
        assert isinstance(at_once(pinned, attempt), Stuck)
        assert isinstance(single(ask(fitting, attempt)), Plan)


def test_the_state_after_plans_knows_what_they_use() -> None:
    """The room of a pod that yields is taken once: another drain cannot have it as well."""
    objects = [
        *(node("od-1", ON_DEMAND), node("od-2", ON_DEMAND), node("s", cpu="2")),
        *(pod("pause-0", "s", cpu="2", priority=-1), pod("a-1", "od-1", cpu="2"), pod("b-1", "od-2", cpu="2")),
    ]
    planner = Planner(snapshot(objects), Policy(allow_returning_plans=True))
    [plan] = planner.plan_all(CIRCUMSTANCES).plans
    shared, other = planner.round(CIRCUMSTANCES), {"od-1": "od-2", "od-2": "od-1"}[plan.node]
    with after([plan], shared, Effort(0)) as attempt:
        assert attempt.preempted == {"uid-pause-0"}
        assert isinstance(all_obstacles(examine(other, shared), attempt), Rejected)
