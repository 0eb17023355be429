"""The option ``--what-if`` of ``rescheduler plan``: its syntax, and its field in the JSON output."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from predicates.quantity import QuantityError
from predicates.quantity import parse as parse_quantity
from predicates.snapshot import Snapshot
from predicates.versions import parse_minor
from rescheduler.cli.go_flags import Option
from rescheduler.cli.scheduler_config import scheduling
from rescheduler.cli.what_if_settings import setting_change, setting_options
from rescheduler.errors import UsageError
from rescheduler.planning.controller_names import ControllerName
from rescheduler.planning.outcome import Planning
from rescheduler.planning.policy import Policy
from rescheduler.planning.what_if.added_spot import AddSpot
from rescheduler.planning.what_if.changes import BudgetChange, OtherScheduler, SettingChange, Unpin, Untaint
from rescheduler.planning.what_if.comparison import Hypothesis, HypotheticalPlan, Rehearsal
from rescheduler.planning.what_if.lost_spot import LoseSpot, UnplacedPod
from rescheduler.settings import Scheduling

_MOST_NODES: Final = 1000


class ChangeText(click.types.StringParamType):
    """The text of a change. In the environment variable, semicolons separate several changes."""

    envvar_list_splitter = ";"


what_if_option: Final = Option(
    "--what-if",
    ChangeText(),
    to="what_if_texts",
    multiple=True,
    metavar="CHANGE",
    help="Show the plan before and after a change. Repeatable: all changes are applied together, lost spot nodes last. "
    "SETTING=VALUE (a setting of planning, such as skip-nodes-with-local-storage=false); "
    "unpin NAMESPACE/KIND/NAME (ci/deployment/cache); untaint KEY (a taint of the spot nodes); "
    "budget NAMESPACE/NAME maxUnavailable=N (or minAvailable); "
    "add-spot N like NODE; add-spot N cpu=8,memory=32Gi; "
    "scheduler VERSION or scheduler FILE (another kube-scheduler: lists the pods and nodes whose verdict changes); "
    "lose-spot zone=ZONE, lose-spot node=NODE or lose-spot 30% (nodes spread evenly over the list by name).",
)

_SCHEDULER: Final = "scheduler VERSION (such as 1.37) or scheduler FILE (a KubeSchedulerConfiguration)"
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_NUMBER_OR_PERCENT: Final = re.compile(r"[0-9]{1,9}|[0-9]{1,3}%")
_Parse: TypeAlias = Callable[[Sequence[str]], Hypothesis | None]


def parsed(texts: Iterable[str], policy: Policy, known: Scheduling) -> list[Hypothesis]:
    """Parse all values of ``--what-if`` in the running command. Raises UsageError with the expected syntax."""
    params = click.get_current_context().command.params
    hypotheses: list[Hypothesis] = []
    for text in texts:
        hypothesis = parse(text, policy, params, known)
        if isinstance(hypothesis, SettingChange):  # several settings can change parts of the same field
            policy = replace(policy, **{hypothesis.field: hypothesis.value})
        hypotheses.append(hypothesis)
    return hypotheses


def parse(text: str, policy: Policy, params: Sequence[click.Parameter], known: Scheduling) -> Hypothesis:
    """Parse one value of ``--what-if``. *params* are the options of the command, for settings, and *known* is
    the present scheduler.

    Raises UsageError with the expected syntax.
    """
    if not text.isprintable():
        raise UsageError(f"--what-if {text!r}: expected printable characters")
    words = text.split()
    if words[:1] == ["scheduler"]:
        if (other := _scheduler(words[1:], known)) is None:
            raise UsageError(f"--what-if {text!r}: expected {_SCHEDULER}")
        return other
    form, read = _FORMS.get(words[0] if words else "", ("", None))
    if read is not None:
        if (change := read(words[1:])) is None:
            raise UsageError(f"--what-if {text!r}: expected {form}")
        return change
    return _setting(text, policy, params)


def _setting(text: str, policy: Policy, params: Sequence[click.Parameter]) -> SettingChange:
    name, equals, value = text.strip().partition("=")
    name = name.removeprefix("--")
    if not equals or not name or " " in name:
        forms = ", ".join([*(form for form, _ in _FORMS.values()), _SCHEDULER])
        raise UsageError(f"--what-if {text!r}: expected SETTING=VALUE, {forms}")
    options = setting_options(policy, params)
    if name not in options:
        known = ", ".join(known for known, option in options.items() if not option.hidden)
        raise UsageError(f"--what-if {text!r}: unknown setting {name}: expected one of {known}")
    try:
        return setting_change(options[name], value, policy)
    except UsageError as error:
        raise UsageError(f"--what-if {text!r}: {error}") from None


def _unpin(words: Sequence[str]) -> Hypothesis | None:
    parts = words[0].split("/") if len(words) == 1 else ()
    if len(parts) != 3 or not all(parts):  # noqa: PLR2004
        return None
    namespace, kind, name = parts
    return Unpin(ControllerName(namespace, kind, name))


def _untaint(words: Sequence[str]) -> Hypothesis | None:
    return Untaint(words[0]) if len(words) == 1 and not set(words[0]) & set("=:") else None


def _budget(words: Sequence[str]) -> Hypothesis | None:
    if len(words) != 2 or not re.fullmatch("[^/]+/[^/]+", words[0]):  # noqa: PLR2004
        return None
    field, _, value = words[1].partition("=")
    if field not in ("maxUnavailable", "minAvailable") or not _NUMBER_OR_PERCENT.fullmatch(value):
        return None
    return BudgetChange(words[0], field, value if value.endswith("%") else int(value))


def _add_spot(words: Sequence[str]) -> Hypothesis | None:
    if not words or not _NUMBER.fullmatch(words[0]) or not 0 < int(words[0]) <= _MOST_NODES:
        return None
    if words[1:2] == ["like"] and len(words) == 3:  # noqa: PLR2004
        return AddSpot(int(words[0]), like=words[2])
    amounts = _amounts(words[1]) if len(words) == 2 else None  # noqa: PLR2004
    if amounts is None or not {"cpu", "memory"} <= amounts.keys() <= {"cpu", "memory", "pods"}:
        return None
    pods = amounts.get("pods", "110")
    if not _NUMBER.fullmatch(pods):
        return None
    return AddSpot(int(words[0]), cpu=amounts["cpu"], memory=amounts["memory"], pods=int(pods))


def _amounts(text: str) -> dict[str, str] | None:
    pairs = [part.partition("=") for part in text.split(",")]
    amounts = {name: amount for name, _, amount in pairs}
    try:
        positive = all(parse_quantity(amount).millis > 0 for amount in amounts.values())
    except QuantityError:
        return None
    return amounts if positive and len(amounts) == len(pairs) else None


def _scheduler(words: Sequence[str], known: Scheduling) -> Hypothesis | None:
    """Return the change to another version, or to the configuration in a file. *known* is the present scheduler."""
    if len(words) != 1:
        return None
    if (minor := parse_minor(words[0])) is not None:
        return OtherScheduler(lambda _: replace(known, minor=minor).scheduler(""))
    if not Path(words[0]).is_file():
        return None
    file = scheduling(None, Path(words[0]), ())
    configured = tuple(profile.name for profile in file.profiles), file.unknown
    return OtherScheduler(lambda now: replace(file, minor=now.version.minor).scheduler(""), configured)


def unknown_schedulers(texts: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each scheduler among the changes whose version is not one of the known ones."""
    for words in map(str.split, texts):
        minor = parse_minor(words[1]) if len(words) == 2 and words[0] == "scheduler" else None  # noqa: PLR2004
        if minor is not None and (assumption := Scheduling(minor).assumption("")) is not None:
            yield assumption


def _lose_spot(words: Sequence[str]) -> Hypothesis | None:
    if len(words) != 1:
        return None
    name, _, value = words[0].partition("=")
    if value and name in ("zone", "node"):
        return LoseSpot(zone=value) if name == "zone" else LoseSpot(node=value)
    percent = words[0].removesuffix("%")
    if percent == words[0] or not _NUMBER.fullmatch(percent) or not 0 < int(percent) <= 100:  # noqa: PLR2004
        return None
    return LoseSpot(percent=int(percent))


_FORMS: Final[Mapping[str, tuple[str, _Parse]]] = {
    "unpin": ("unpin NAMESPACE/KIND/NAME", _unpin),
    "untaint": ("untaint KEY", _untaint),
    "budget": ("budget NAMESPACE/NAME maxUnavailable=N or minAvailable=N", _budget),
    "add-spot": (
        f"add-spot N like NODE or add-spot N cpu=8,memory=32Gi[,pods=110], N at most {_MOST_NODES}",
        _add_spot,
    ),
    "lose-spot": ("lose-spot zone=ZONE, lose-spot node=NODE or lose-spot N%", _lose_spot),
}


def what_if_json(
    changes: Sequence[str],
    planning: Planning,
    outcome: HypotheticalPlan,
    summaries: tuple[dict[str, Any], dict[str, Any]],
) -> dict[str, Any]:
    """Return the object of the field ``what_if``. *summaries* are the summaries before and after the changes."""
    before, after = (
        {**summary, "drainable": [plan.node for plan in planned.plans]}
        for summary, planned in zip(summaries, (planning, outcome.planning), strict=True)
    )
    result: dict[str, Any] = {"changes": list(changes), "before": before, "after": after}
    if outcome.lost is not None:
        result["lost"] = {
            "nodes": outcome.lost.nodes,
            "without_place": _pods(outcome.lost.unplaced),
            "without_place_after_drains": _pods(outcome.lost.unplaced_after_drains),
        }
    if outcome.rehearsal is not None:
        result["scheduler"] = _rehearsal_json(outcome.rehearsal, outcome.snapshot)
    return result


def _rehearsal_json(rehearsal: Rehearsal, after: Snapshot) -> dict[str, Any]:
    return {
        "version": str(after.scheduler.version),
        "nodes": [
            {
                "node": node.node,
                "drainable": node.drains,
                "why": [{"pod": each.pod, "reason": str(each.reason), "detail": each.detail} for each in node.why],
            }
            for node in rehearsal.nodes
        ],
        "pods": [
            {"pod": pod.pod, "node": pod.node, "rejected_by": dict(pod.rejected), "accepted_by": dict(pod.accepted)}
            for pod in rehearsal.pods
        ],
    }


def _pods(unplaced: Iterable[UnplacedPod]) -> list[dict[str, Any]]:
    return [
        {"pod": pod.pod, "controller": str(pod.controller), "priority": pod.priority, "why": pod.why}
        for pod in unplaced
    ]
