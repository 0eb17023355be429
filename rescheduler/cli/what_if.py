"""The option ``--what-if`` of ``rescheduler plan``: its syntax, its settings, and its output. Separate from
``plan``: it is a language of its own, with its own errors.
"""

import enum
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from predicates.quantity import QuantityError
from predicates.quantity import parse as parse_quantity
from predicates.scheduler import Scheduler
from predicates.snapshot import Snapshot
from predicates.texts import did_you_mean
from predicates.versions import parse_minor
from rescheduler.cli.go_flags import Option
from rescheduler.cli.policy_options import ANY_SCHEDULER, NODE_LABELS
from rescheduler.cli.tree_lines import page_lines
from rescheduler.errors import UsageError
from rescheduler.pages.plan_facts import survival_facts
from rescheduler.pages.plan_tree import survival
from rescheduler.pages.tree import BLANK, HEADING, Line, styled
from rescheduler.planning.controllers import ControllerName
from rescheduler.planning.forms import and_more, count, number
from rescheduler.planning.money.worth import AddedSpot
from rescheduler.planning.node_labels import NodeLabel, NodeLabels
from rescheduler.planning.outcome import Planning, Reason
from rescheduler.planning.policy import NamespaceScope, Policy, namespace_scope, parse_names
from rescheduler.planning.what_if.added_spot import AddSpot
from rescheduler.planning.what_if.changes import (
    BudgetChange,
    Lift,
    LiftAll,
    LiftNode,
    OtherScheduler,
    SettingChange,
    Unpin,
    UnpinSelector,
    Untaint,
)
from rescheduler.planning.what_if.comparison import (
    Hypothesis,
    HypotheticalPlan,
    LoseEachPool,
    LoseSpot,
    LostSpot,
    Rehearsal,
    UnplacedPod,
)
from rescheduler.planning.what_if.lifting import OF_NODES, OF_PODS, WITH_KEY
from rescheduler.planning.what_if.overview import Overview, Totals
from rescheduler.settings import Scheduling

# The settings of ``--what-if``: planning flags with a different value.

#: Parameter → function that returns the scope of namespaces with the flag set to a text; "" removes the limit.
_SCOPES: Final[Mapping[str, Callable[[NamespaceScope, str], NamespaceScope]]] = {
    "namespaces": lambda scope, text: namespace_scope(_names(text), scope.excluded, scope.selector_text),
    "exclude_namespaces": lambda scope, text: namespace_scope(scope.included, _names(text), scope.selector_text),
    "namespace_selector": lambda scope, text: namespace_scope(scope.included, scope.excluded, text),
}

#: The parameter whose opposite is the field ``budgets_in_steps`` of the policy.
_AT_ONCE: Final = "budgets_at_once"


def setting_options(policy: Policy, params: Sequence[click.Parameter]) -> dict[str, click.Option]:
    """Return the options among *params* that affect planning, by name, including hidden options."""
    lists = {field.name: isinstance(getattr(policy, field.name), tuple) for field in fields(policy)}
    options = (param for param in params if isinstance(param, click.Option))
    return {
        option.opts[0].removeprefix("--"): option
        for option in options
        if option.name in _SCOPES
        or option.name == _AT_ONCE
        or lists.get(option.name or "") == (option.multiple and option.type is not NODE_LABELS)
    }


def setting_change(option: click.Option, text: str, policy: Policy) -> SettingChange:
    """Return the change of *policy* that sets *option* to *text*. Raises UsageError if *text* is not valid."""
    assert option.name is not None
    change = _change(option, option.name, text, policy)
    after = replace(policy, **{change.field: change.value})
    if after.on_demand_label.same_as(after.spot_label):
        raise UsageError("both labels would be the same: expected two labels")
    return change


def _change(option: click.Option, name: str, text: str, policy: Policy) -> SettingChange:
    if name in _SCOPES:
        return SettingChange("namespaces", _SCOPES[name](policy.namespaces, text))
    try:
        value = option.type.convert(text, option, None)
    except click.UsageError as error:
        raise UsageError(error.message) from None
    if name == _AT_ONCE:
        return SettingChange("budgets_in_steps", not value)
    return SettingChange(name, _as_field(value, getattr(policy, name), multiple=option.multiple))


def _as_field(value: Any, before: Any, *, multiple: bool) -> Any:
    """Convert the *value* of an option to a field of the policy, whose value was *before*."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(before, enum.Enum):
        return type(before)(value)
    if isinstance(value, Decimal):
        return float(value)
    if not multiple or isinstance(value, tuple | NodeLabels):
        return value
    if not value:
        raise UsageError(f"expected a name, or {ANY_SCHEDULER} for all")
    return () if value == ANY_SCHEDULER else (value,)


def _names(text: str) -> tuple[str, ...]:
    return parse_names(text) if text.strip() else ()


_MOST_NODES: Final = 1000


class ChangeText(click.types.StringParamType):
    """The text of a change. In the environment variable, semicolons separate several changes."""

    envvar_list_splitter = ";"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Remove the line breaks of a command that was pasted from a page."""
        text: str = super().convert(value, param, ctx)
        return re.sub(r"\s*\n\s*", " ", re.sub(r"(?<=[/=])\s*\n\s*", "", text))


what_if_option: Final = Option(
    "--what-if",
    ChangeText(),
    to="what_if_texts",
    multiple=True,
    metavar="CHANGE",
    help="Show the plan before and after a change. Repeatable: all changes are applied together, lost spot nodes last. "
    "SETTING=VALUE (a setting of planning, such as skip-nodes-with-local-storage=false); "
    "allow NAMESPACE/KIND/NAME REASON (data/deployment/etl local-storage), allow node/NAME REASON or allow all REASON "
    "(an annotation or label of all pods and nodes); "
    "unpin NAMESPACE/KIND/NAME (ci/deployment/cache); unpin selector KEY=VALUE (of all pods; any label selector); "
    "untaint KEY (a taint of the spot nodes); "
    "budget NAMESPACE/NAME maxUnavailable=N (or minAvailable); "
    "add-spot N like NODE; add-spot N type=TYPE,zone=ZONE; add-spot N cpu=8,memory=32Gi; "
    "scheduler VERSION or scheduler FILE (another kube-scheduler: lists the pods and nodes whose verdict changes); "
    "lose-spot zone=ZONE, pool=POOL, node=NODE or lose-spot 30% (nodes spread evenly over the list by name).",
)

_SCHEDULER: Final = "scheduler VERSION (such as 1.37) or scheduler FILE (a KubeSchedulerConfiguration)"
_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_NUMBER_OR_PERCENT: Final = re.compile(r"[0-9]{1,9}|[0-9]{1,3}%")
_Parse: TypeAlias = Callable[[Sequence[str]], Hypothesis | None]


def parsed(texts: Iterable[str], policy: Policy, known: Scheduling) -> tuple[list[Hypothesis], list[str]]:
    """Parse all values of ``--what-if`` in the running command. *known* is the present scheduler.

    Return the hypotheses, and what is not known about the schedulers among them. Raises UsageError with the expected
    syntax.
    """
    params = click.get_current_context().command.params
    hypotheses: list[Hypothesis] = []
    notes: list[str] = []
    for text in texts:
        if text.split()[:1] == ["scheduler"]:
            known, unknown = _scheduler(text, known)
            hypotheses.append(_rehearsal_of(known))
            notes += unknown
            continue
        hypothesis = parse(text, policy, params)
        if isinstance(hypothesis, SettingChange):  # several settings can change parts of the same field
            policy = replace(policy, **{hypothesis.field: hypothesis.value})
        hypotheses.append(hypothesis)
    return hypotheses, notes


def parse(text: str, policy: Policy, params: Sequence[click.Parameter]) -> Hypothesis:
    """Parse one value of ``--what-if`` that names no scheduler. *params* are the options of the command, for settings.

    Raises UsageError with the expected syntax.
    """
    _check_printable(text)
    words = text.split()
    form, read = _FORMS.get(words[0] if words else "", ("", None))
    if read is not None:
        if (change := read(words[1:])) is None:
            near = did_you_mean(words[-1], Reason) if words[0] == "allow" and words[-1] not in {*Reason} else ""
            raise UsageError(f"--what-if {text!r}: expected {form}{near}")
        return change
    return _setting(text, policy, params)


def _check_printable(text: str) -> None:
    if not text.isprintable():
        raise UsageError(f"--what-if {text!r}: expected printable characters")


def _setting(text: str, policy: Policy, params: Sequence[click.Parameter]) -> SettingChange:
    name, equals, value = text.strip().partition("=")
    name = name.removeprefix("--")
    if not equals or not name or " " in name:
        forms = ", ".join([*(form for form, _ in _FORMS.values()), _SCHEDULER])
        near = did_you_mean(text.split(maxsplit=1)[0], _FORMS) if text.strip() else ""
        raise UsageError(f"--what-if {text!r}: expected SETTING=VALUE, {forms}{near}")
    options = setting_options(policy, params)
    if name not in options:
        known = ", ".join(known for known, option in options.items() if not option.hidden)
        raise UsageError(
            f"--what-if {text!r}: unknown setting {name}: expected one of {known}{did_you_mean(name, options)}"
        )
    try:
        return setting_change(options[name], value, policy)
    except UsageError as error:
        raise UsageError(f"--what-if {text!r}: {error}") from None


def _unpin(words: Sequence[str]) -> Hypothesis | None:
    if words[:1] == ["selector"]:
        return _unpin_selector(" ".join(words[1:]))
    parts = words[0].split("/") if len(words) == 1 else ()
    if len(parts) != 3 or not all(parts):  # noqa: PLR2004
        return None
    namespace, kind, name = parts
    return Unpin(ControllerName(namespace, kind, name))


def _unpin_selector(text: str) -> Hypothesis | None:
    try:
        [demands] = NodeLabels.parse(text).alternatives
    except UsageError:
        return None
    return UnpinSelector(tuple(NodeLabel(each.key, tuple(sorted(each.values)), each.negated) for each in demands))


def _allow(words: Sequence[str]) -> Hypothesis | None:
    parts = words[0].split("/") if len(words) == 2 else ()  # noqa: PLR2004
    reason = next((reason for reason in Reason if reason == words[-1]), None) if parts else None
    if reason is None:
        return None
    if reason in OF_NODES and len(parts) == 2 and parts[0] == "node" and parts[1]:  # noqa: PLR2004
        return LiftNode(parts[1], reason)
    if reason in OF_PODS and len(parts) == 3 and all(parts):  # noqa: PLR2004
        return Lift(ControllerName(*parts), reason)
    if reason in WITH_KEY | OF_NODES.keys() and parts == ["all"]:
        return LiftAll(reason)
    return None


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
    pairs = [part.partition("=") for part in words[1].split(",")] if len(words) == 2 else []  # noqa: PLR2004
    given = {name: value for name, _, value in pairs}
    size = {name: given[name] for name in ("cpu", "memory", "pods") if name in given}
    of_size, of_type = {"cpu", "memory"} <= size.keys(), not size and bool(given.get("type") or given.get("group"))
    allowed = {"type", "zone", *size} if size else {"type", "zone", "group"}
    if len(given) != len(pairs) or not given.keys() <= allowed or not all(given.values()):
        return None
    if not (of_size or of_type) or not _are_amounts(size.values()) or not _NUMBER.fullmatch(size.get("pods", "110")):
        return None
    kind, zone = given.get("type", ""), given.get("zone", "")
    if not of_size:
        return AddSpot(int(words[0]), type=kind, zone=zone, group=given.get("group", ""))
    pods = int(size.get("pods", "110"))
    return AddSpot(int(words[0]), cpu=size["cpu"], memory=size["memory"], pods=pods, type=kind, zone=zone)


def _are_amounts(texts: Iterable[str]) -> bool:
    try:
        return all(parse_quantity(text).millis > 0 for text in texts)
    except QuantityError:
        return False


def _scheduler(text: str, known: Scheduling) -> tuple[Scheduling, tuple[str, ...]]:
    """Return the scheduler that *text* describes: *known* with another version, or with the configuration in a file.

    What is not known about its version or its plugins follows.
    """
    _check_printable(text)
    name = text.strip().removeprefix("scheduler").strip()
    if (minor := parse_minor(name)) is not None:
        other = replace(known, minor=minor)
        return other, tuple(filter(None, [other.assumption("")]))
    if not _is_file(name):
        raise UsageError(f"--what-if {text!r}: expected {_SCHEDULER}")
    from rescheduler.cli.scheduler_config import configured  # noqa: PLC0415 - imported on demand

    other = configured(known.minor, Path(name), known.assumed)
    return other, other.notes


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except OSError:  # the name is too long, or its folder may not be read
        return False


def _rehearsal_of(other: Scheduling) -> OtherScheduler:
    """Return the change to *other*. Without a version, it has that of the present scheduler."""
    profiles = tuple(profile.name for profile in other.profiles)

    def rules(now: Scheduler) -> Scheduler:
        return (other if other.minor is not None else replace(other, minor=now.version.minor)).scheduler("")

    return OtherScheduler(rules, profiles, other.unknown)


def _lose_spot(words: Sequence[str]) -> Hypothesis | None:
    if len(words) != 1:
        return None
    name, _, value = words[0].partition("=")
    if words[0] == "each-pool":
        return LoseEachPool()
    if value and name in ("zone", "node", "pool"):
        by_name = {"zone": LoseSpot(zone=value), "node": LoseSpot(node=value), "pool": LoseSpot(pool=value)}
        return by_name[name]
    percent = words[0].removesuffix("%")
    if percent == words[0] or not _NUMBER.fullmatch(percent) or not 0 < int(percent) <= 100:  # noqa: PLR2004
        return None
    return LoseSpot(percent=int(percent))


_ADD_SPOT: Final = (
    "add-spot N like NODE, add-spot N type=TYPE[,zone=ZONE][,group=GROUP] or "
    "add-spot N cpu=8,memory=32Gi[,pods=110,type=TYPE,zone=ZONE]"
)

_FORMS: Final[Mapping[str, tuple[str, _Parse]]] = {
    "allow": (
        "allow NAMESPACE/KIND/NAME REASON, allow all REASON or allow node/NAME REASON, with a reason of the plan",
        _allow,
    ),
    "unpin": ("unpin NAMESPACE/KIND/NAME or unpin selector KEY=VALUE", _unpin),
    "untaint": ("untaint KEY", _untaint),
    "budget": ("budget NAMESPACE/NAME maxUnavailable=N or minAvailable=N", _budget),
    "add-spot": (
        f"{_ADD_SPOT}, N at most {_MOST_NODES}",
        _add_spot,
    ),
    "lose-spot": (
        "lose-spot zone=ZONE, lose-spot pool=POOL, lose-spot each-pool, lose-spot node=NODE or lose-spot N%",
        _lose_spot,
    ),
}


def what_if_facts(
    changes: Sequence[str],
    overviews: tuple[Overview, Overview],
    outcome: HypotheticalPlan,
    summaries: tuple[dict[str, Any], dict[str, Any]],
    added: AddedSpot | None,
) -> dict[str, Any]:
    """Return the facts of the field ``what_if``.

    *overviews* and *summaries* are those before and after the changes, which add the spot nodes *added*.
    """
    before, after = (
        {**summary, "drainable": [plan.node for plan in each.planning.plans]}
        for summary, each in zip(summaries, overviews, strict=True)
    )
    result: dict[str, Any] = {"changes": list(changes), "before": before, "after": after}
    if added is not None and not overviews[0].prices.empty:
        result["added_spot"] = {
            "nodes": added.nodes,
            "cost_per_month": number(added.cost_per_month),
            "counted_per_month": number(added.counted_per_month),
        }
        change = added.net_change_per_month(*(each.freed.balance_per_month for each in overviews))
        result["net_change_per_month"] = number(change)
    if outcome.lost is not None:
        result["lost"] = {
            "nodes": outcome.lost.nodes,
            "without_place": _pods(outcome.lost.unplaced),
            "without_place_after_drains": _pods(outcome.lost.unplaced_after_drains),
            "judged": outcome.lost.judged,
        }
    if outcome.each_pool is not None:
        now, after_drains = outcome.each_pool
        result["each_pool"] = {"now": survival_facts(now), "after_drains": survival_facts(after_drains)}
    if outcome.rehearsal is not None:
        result["scheduler"] = _rehearsal_facts(outcome.rehearsal, outcome.snapshot)
    return result


def _rehearsal_facts(rehearsal: Rehearsal, after: Snapshot) -> dict[str, Any]:
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


# The plans before and after ``--what-if``, side by side.

_GIB: Final = 1 << 30

#: Maximum number of nodes, or of controllers, that are listed.
_LISTED: Final = 20

#: The widths of the title column and of the amount columns.
_TITLE: Final = 26
_AMOUNT: Final = 16


def comparison(
    changes: Sequence[str],
    before: Overview,
    after: Overview,
    outcome: HypotheticalPlan,
    added: AddedSpot | None,
) -> Iterator[Line]:
    """Yield the lines of the page that compares the plans *before* and *after* the *changes*, which add *added*."""
    yield styled(f"What if: {'; '.join(changes)}", HEADING)
    yield BLANK
    yield styled(_row("", ("before", "after", "difference")), HEADING)
    for title, old, new, places in _rows(before, after):
        difference = "" if old is None or new is None or old == new else f"{new - old:+,.{places}f}"
        amounts = ("" if amount is None else f"{amount:,.{places}f}" for amount in (old, new))
        yield Line(_row(title, (*amounts, difference)))
    if added is not None and not before.prices.empty:
        yield from _added_lines(added, before, after)
    for title, names in _differences(before.planning, after.planning):
        yield from _listed(title, names)
    if outcome.rehearsal is not None:
        yield from _rehearsal_lines(outcome.rehearsal)
    if outcome.lost is not None:
        yield from _lost_spot_lines(outcome.lost)
    for when, certificate in zip(("now", "after the plan's drains"), outcome.each_pool or (), strict=False):
        yield BLANK
        yield Line(f"With each pool of spot nodes lost {when}:")
        yield from page_lines(filter(None, [survival(certificate)]))


def _row(title: str, amounts: Iterable[str]) -> str:
    return (f"{title:{_TITLE}}" + "".join(f"{amount:>{_AMOUNT}}" for amount in amounts)).rstrip()


def _rows(before: Overview, after: Overview) -> Iterator[tuple[str, Decimal | None, Decimal | None, int]]:
    """Yield rows: a title, the amounts before and after, and the number of decimal places to show."""

    def row(title: str, old: float, new: float, places: int = 0) -> tuple[str, Decimal, Decimal, int]:
        return title, Decimal(old), Decimal(new), places

    old, new = before.planning, after.planning
    yield row("on-demand nodes", old.on_demand_nodes, new.on_demand_nodes)
    yield row("spot nodes", old.spot_nodes, new.spot_nodes)
    yield row("nodes that can be drained", len(old.plans), len(new.plans))
    yield row("pods that move", old.moved_pods, new.moved_pods)
    yield row("vCPU freed", before.freed.cpu / 1000, after.freed.cpu / 1000, 1)
    yield row("memory freed (GiB)", before.freed.memory / _GIB, after.freed.memory / _GIB, 1)
    if not before.prices.empty:
        currency = f" ({before.prices.currency})" if before.prices.currency else ""
        yield f"freed per month{currency}", _price(before.freed), _price(after.freed), 2
        net = before.freed.saved_per_month, after.freed.saved_per_month
        if any(totals.worth.net is not None for totals in (before.freed, after.freed)):
            yield f"saved per month{currency}", *net, 2


def _added_lines(added: AddedSpot, before: Overview, after: Overview) -> Iterator[Line]:
    """Yield what the spot nodes *added* cost, and what remains of the savings after it."""
    currency = f" ({before.prices.currency})" if before.prices.currency else ""

    def amount(title: str, value: Decimal | None, form: str = ",.2f") -> Line:
        text = "not known" if value is None else f"{value:{form}}"
        return Line(f"{title + currency:{_TITLE + 2 * _AMOUNT}}{text:>{_AMOUNT}}")

    yield amount("cost of added spot nodes per month", added.cost_per_month)
    if added.counted_per_month:
        yield amount("of which pods' share, counted above", added.counted_per_month)
    change = added.net_change_per_month(before.freed.balance_per_month, after.freed.balance_per_month)
    yield amount("net change per month", change, "+,.2f")
    if after.prices is not before.prices:
        yield Line("Added nodes without a price have that of the cheapest spot node, by size.")


def _price(freed: Totals) -> Decimal | None:
    """Return the monthly price of the freed nodes; 0 if there are none, even if no price is known."""
    return freed.per_month if freed.nodes else Decimal(0)


def _differences(before: Planning, after: Planning) -> list[tuple[str, list[str]]]:
    old, new = ({plan.node: None for plan in planning.plans} for planning in (before, after))
    gained = [node for node in new if node not in old]
    fewer = [node for node in old if node not in new]
    return [("Can also be drained:", gained), ("Can no longer be drained:", fewer)]


def _listed(title: str, lines: Sequence[str]) -> Iterator[Line]:
    if not lines:
        return
    yield BLANK
    yield Line(title)
    yield from (Line(line, 1) for line in lines[:_LISTED])
    if rest := and_more(len(lines) - _LISTED, before=""):
        yield Line(rest, 1)


def _rehearsal_lines(rehearsal: Rehearsal) -> Iterator[Line]:
    """Yield what the other scheduler changes, and why. A node is listed with its first blocker."""
    if not rehearsal.nodes and not rehearsal.pods:
        yield BLANK
        yield Line("The verdicts on all pods and nodes are the same by these rules.")
    stay = [f"{node.node}: {node.why[0]}" for node in rehearsal.nodes if not node.drains]
    drain = [f"{node.node}: today {node.why[0]}" for node in rehearsal.nodes if node.drains]
    yield from _listed(f"Nodes that stay by these rules: {len(stay)}", stay)
    yield from _listed(f"Nodes that drain by these rules: {len(drain)}", drain)
    lost = [_of_pod(pod.pod, pod.rejected, "fewer") for pod in rehearsal.pods if pod.rejected]
    gained = [_of_pod(pod.pod, pod.accepted, "more") for pod in rehearsal.pods if pod.accepted]
    yield from _listed(f"Pods that fewer spot nodes accept: {len(lost)}", lost)
    yield from _listed(f"Pods that more spot nodes accept: {len(gained)}", gained)


def _of_pod(pod: str, nodes: Mapping[str, str], how: str) -> str:
    node, why = next(iter(nodes.items()))
    return f"{pod}: {count(len(nodes), f'{how} spot node')}, such as {node} ({why})"


def _lost_spot_lines(lost: LostSpot) -> Iterator[Line]:
    for when, unplaced in (("now", lost.unplaced), ("after the plan's drains", lost.unplaced_after_drains)):
        start = f"With {count(len(lost.nodes), 'spot node')} lost {when}"
        if unplaced:
            yield from _listed(f"{start}, pods without a place: {len(unplaced)}", _grouped(unplaced))
        elif not lost.judged:
            yield BLANK
            yield Line(f"{start}: not judged within the limit of simulated pods.")
        else:
            yield BLANK
            yield Line(f"{start}, all their pods fit elsewhere.")


def _grouped(unplaced: Iterable[UnplacedPod]) -> list[str]:
    """Return a line for each priority and controller. *unplaced* is sorted by both."""
    lines = []
    for (priority, controller), group in groupby(unplaced, key=lambda pod: (pod.priority, pod.controller)):
        pods = list(group)
        lines.append(f"priority {priority}, {controller}: {count(len(pods), 'pod')}: {pods[0].why}")
    return lines
