"""Declared rules: each rule says by its kind what it reads, and gets nothing else.

| kind | gets | evaluated |
|---|---|---|
| `class_rule` | the class of the pod, and the policy | once for each class |
| `pod_rule` | the pod, and the facts of the round | for each pod |
| `timed_rule` | the pod, the facts, and the time | for each pod |
| `node_rule` | the Node, and the facts about it | for each node |
| `timed_node_rule` | the Node, the facts about it, and the time | for each node |
| `drain_rule` | a node with the pods that leave it, and the round | for each node; `of_pods`: also for one pod alone |
| `plan_rule` | a node to which these were applied, and the plans before | for each node, in the order of the plans |

Each rule also declares its reasons: those that it can find, and what lifts them. So the rows of one table are the rules
(what they apply to, what they read, why they block, what removes the obstacle), joined by the reason with the severity
(``outcome.py``) and the row of ``docs/reasons.md``.

Timed rules can only compare the time with instants, and are evaluated again when one of these instants is reached.
Everything else follows from the declaration: which results are kept and until when, and which rules are evaluated for
pods without annotations. A declaration that cannot work raises :class:`TypeError` or :class:`ValueError` on import:
one without parentheses or with other parameters than its kind has, an annotation that is not read, or that nothing
lifts, or a reason in the rule's own code that it does not declare.
"""

import dis
import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import CodeType
from typing import Any, Final, NamedTuple, TypeAlias

from predicates.objects import Node, OwnerReference, Pod, PodClass
from predicates.pod_classes import POD_ANNOTATIONS
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.policy import Now, Policy
from rescheduler.planning.rules.gangs import Gangs
from rescheduler.planning.rules.lifts import Remedy
from rescheduler.planning.rules.minimum import OwnerCounts
from rescheduler.planning.waits import Cooldown


class Fate(enum.Enum):
    """What happens to a pod when its node is drained."""

    STAYS = enum.auto()  #: it ends with the node (mirror pod, DaemonSet, expendable) and is ignored
    LEAVES = enum.auto()  #: it is being deleted; the drain waits for that
    MOVES = enum.auto()


@dataclass(frozen=True, slots=True)
class Facts:
    """What rules about pods may read in addition to the pod. A verdict is computed again when any of it changes."""

    policy: Policy
    has_budget: Callable[[Pod], bool]
    #: UIDs of pods that the current drain has evicted. The drain waits for them; other terminating pods block the node.
    evicted: Collection[str] = frozenset()
    waits_for_terminating: bool = False  #: also wait for other terminating pods that are not overdue
    namespace_labels: Callable[[str], Mapping[str, str]] = lambda _: {}
    counts: OwnerCounts | None = None  #: the pods of each controller; None: not known
    gangs: Gangs | None = None  #: the groups of pods that are scheduled together; None: not known


@dataclass(frozen=True, slots=True)
class NodeContext:
    """What rules about nodes may read in addition to the Node. A verdict is computed again when any of it changes."""

    policy: Policy
    own: bool = False  #: this process runs there
    holder: str = ""  #: our identity in the annotation on drained nodes
    ordered: bool = False  #: its machine termination may have been requested
    emptied: bool = False  #: no pod has to leave it, so it need not be Ready
    control_plane: bool = False  #: it is known to belong to the control plane, whatever its labels
    cooldown: Cooldown | None = None


#: The fate that a rule decides, why it blocks the node, or None: the next rule decides. The pod is added to a blocker.
RuleResult: TypeAlias = Fate | Blocker | None
ClassFunction: TypeAlias = Callable[[PodClass, Policy], RuleResult]
PodFunction: TypeAlias = Callable[[Pod, Facts], RuleResult]
TimedFunction: TypeAlias = Callable[[Pod, Facts, Now], RuleResult]
NodeFunction: TypeAlias = Callable[[Node, NodeContext], Blocker | None]
TimedNodeFunction: TypeAlias = Callable[[Node, NodeContext, Now], Blocker | None]
#: Whether a rule applies under a policy, and whether it can apply to the pods of a class, and of a controller.
Enabled: TypeAlias = Callable[[Policy], bool]
When: TypeAlias = Callable[[PodClass], bool]
Owned: TypeAlias = Callable[[OwnerReference | None], bool]
#: What lifts the reasons of a rule: one remedy for all of them, or one for each. None: levers try nothing.
LiftedBy: TypeAlias = Remedy | Mapping[Reason, Remedy] | None


class Kind(enum.Enum):
    """The kinds of rules, each with the types of its parameters by name: those of later steps are in layers above."""

    CLASS = ("PodClass", "Policy")
    POD = ("Pod", "Facts")
    TIMED = ("Pod", "Facts", "Now")
    NODE = ("Node", "NodeContext")
    TIMED_NODE = ("Node", "NodeContext", "Now")
    DRAIN = ("NodeAndPods", "PlanningRound")
    PLAN = ("Examined", "Attempt")


#: The modules whose rules are applied: to pods, to nodes, to nodes with their pods, and after the plans for others.
_MODULES: Final = tuple(
    f"rescheduler.planning.{name}" for name in ("rules.pod_rules", "rules.candidates", "examined", "answers.node")
)


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A declared rule: a row of the table."""

    kind: Kind
    function: Callable[..., Any]
    reasons: tuple[Reason, ...] = ()  #: all that it can find; empty: it blocks nothing
    lifted_by: Mapping[Reason, Remedy] = field(default_factory=dict)  #: what removes the obstacle; levers try it
    annotations: frozenset[str] = frozenset()  #: it applies only to pods with one of them; empty: to all pods
    when: When | None = None  #: it applies only to the pods of these classes; None: to all pods
    owned: Owned | None = None  #: it applies only to pods with these controllers, or without one; None: to all pods
    enabled: Enabled | None = None  #: it applies only under these policies; None: under all
    of_pods: bool = False  #: of a drain: what it finds also stands in the way of one of the pods, evicted alone
    of_node: bool = True  #: of a drain: it is applied to nodes; otherwise another rule or step finds the same for them

    def __post_init__(self) -> None:
        function = self.function
        if function.__module__.startswith("rescheduler.") and function.__module__ not in _MODULES:
            known = ", ".join(_MODULES)
            raise TypeError(f"rule {self.name} is declared in {function.__module__}; rules are declared in {known}")
        parameters = {name: each for name, each in function.__annotations__.items() if name != "return"}
        if (found := tuple(getattr(each, "__name__", str(each)) for each in parameters.values())) != self.kind.value:
            wanted = ", ".join(self.kind.value)
            raise TypeError(f"rule {self.name} gets ({', '.join(found)}); a rule of its kind gets ({wanted})")
        if dropped := sorted(key for key in self.annotations if not key.startswith(POD_ANNOTATIONS)):
            raise ValueError(f"rule {self.name} reads the annotation {dropped[0]}; add it to POD_ANNOTATIONS")
        for name in sorted(_reasons_in(function.__code__)):
            if Reason[name] not in self.reasons:
                raise ValueError(f"rule {self.name} finds Reason.{name}; add it to the reasons that it declares")
        for reason in self.lifted_by.keys() - self.reasons:
            raise ValueError(f"rule {self.name} says what lifts Reason.{reason.name}, which it does not declare")
        for reason in self.reasons if self.annotations else ():
            if reason not in self.lifted_by:
                raise ValueError(
                    f"rule {self.name} reads an annotation; add what lifts Reason.{reason.name}: lifted_by"
                )

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.function.__name__

    @property
    def unconditional(self) -> bool:
        """Whether it may apply to any pod, so that nothing but its function tells whether it does."""
        declared = self.annotations or self.when is not None or self.owned is not None
        return self.kind in (Kind.POD, Kind.TIMED) and not declared


def _reasons_in(code: CodeType) -> set[str]:
    """Return the names of the reasons that *code* reads, also in the functions and generators within it."""
    steps = list(dis.get_instructions(code))
    pairs = ((before, step) for before, step in pairwise(steps) if step.opname == "LOAD_ATTR")
    found = {str(step.argval) for before, step in pairs if before.argval == Reason.__name__}
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return (found & Reason.__members__.keys()).union(*map(_reasons_in, inner))


def _check(reasons: Iterable[object]) -> None:
    """Raise TypeError unless all are reasons: a decorator without parentheses gets the function instead."""
    for each in reasons:
        if not isinstance(each, Reason):
            raise TypeError(
                f"{each!r} is not a Reason; a rule is declared with its reasons, such as @pod_rule(Reason.…)"
            )


def _by_reason(reasons: Iterable[Reason], lifted_by: LiftedBy) -> Mapping[Reason, Remedy]:
    """Return what lifts each of the *reasons* of a rule."""
    return dict.fromkeys(reasons, lifted_by) if isinstance(lifted_by, Remedy) else lifted_by or {}


def class_rule(*reasons: Reason, lifted_by: LiftedBy = None) -> Callable[[ClassFunction], Rule]:
    """Declare a rule that reads only what all pods of a class share."""
    _check(reasons)
    return lambda function: Rule(Kind.CLASS, function, reasons, _by_reason(reasons, lifted_by))


def node_rule(*reasons: Reason, lifted_by: LiftedBy = None) -> Callable[[NodeFunction], Rule]:
    """Declare a rule about nodes, regardless of their pods."""
    _check(reasons)
    return lambda function: Rule(Kind.NODE, function, reasons, _by_reason(reasons, lifted_by))


def timed_node_rule(*reasons: Reason, lifted_by: LiftedBy = None) -> Callable[[TimedNodeFunction], Rule]:
    """Declare a rule about nodes that reads the time."""
    _check(reasons)
    return lambda function: Rule(Kind.TIMED_NODE, function, reasons, _by_reason(reasons, lifted_by))


def pod_rule(
    *reasons: Reason,
    annotations: Iterable[str] = (),
    when: When | None = None,
    owned: Owned | None = None,
    enabled: Enabled | None = None,
    lifted_by: LiftedBy = None,
) -> Callable[[PodFunction], Rule]:
    """Declare a rule that reads the pod, its annotations or its owner, but not the time.

    With *annotations*, it applies only to pods that have one of them, and says what they are *lifted_by*; with *when*,
    only to classes for which it is true; with *owned*, only to pods for whose controller it is true (None: they have
    none); with *enabled*, only under policies for which it is true.
    """
    _check(reasons)
    lifts = _by_reason(reasons, lifted_by)
    return lambda function: Rule(Kind.POD, function, reasons, lifts, frozenset(annotations), when, owned, enabled)


def timed_rule(
    *reasons: Reason,
    annotations: Iterable[str] = (),
    when: When | None = None,
    enabled: Enabled | None = None,
    lifted_by: LiftedBy = None,
) -> Callable[[TimedFunction], Rule]:
    """Declare a rule that reads the pod and the time. The conditions are as in :func:`pod_rule`."""
    _check(reasons)
    lifts = _by_reason(reasons, lifted_by)
    return lambda function: Rule(Kind.TIMED, function, reasons, lifts, frozenset(annotations), when, enabled=enabled)


def drain_rule(
    *reasons: Reason, of_pods: bool = True, of_node: bool = True
) -> Callable[[Callable[..., Iterable[Blocker]]], Rule]:
    """Declare a rule about a node and the pods that have to leave it, regardless of the plans for other nodes."""
    _check(reasons)
    return lambda function: Rule(Kind.DRAIN, function, reasons, of_pods=of_pods, of_node=of_node)


def plan_rule(*reasons: Reason) -> Callable[[Callable[..., Iterable[Blocker]]], Rule]:
    """Declare a rule about a node and its pods that depends on the plans made before."""
    _check(reasons)
    return lambda function: Rule(Kind.PLAN, function, reasons)


def declared_in(module: Mapping[str, object]) -> tuple[Rule, ...]:
    """Return the rules that *module* (its ``globals()``) declares, in the order of their declaration."""
    return tuple(value for value in module.values() if isinstance(value, Rule))


class _Step(NamedTuple):
    """A rule that can apply to the pods of a class."""

    rule: Rule
    result: RuleResult = None  #: of a class rule; the functions of all others are called for each pod


class _Steps:
    """The steps for the pods of a class. They are found out one by one: the first ones often decide."""

    __slots__ = ("_cls", "_found", "_next", "_policy", "_rules")

    def __init__(self, cls: PodClass, rules: Sequence[Rule], policy: Policy) -> None:
        self._cls = cls
        self._rules = rules
        self._policy = policy
        self._found: list[_Step] = []
        self._next = 0  #: the index of the first of the rules that was not looked at yet

    def __iter__(self) -> Iterator[_Step]:
        position, found = 0, self._found
        while position < len(found) or self._find_next():
            yield found[position]
            position += 1

    def _find_next(self) -> bool:
        while self._next < len(self._rules):
            step = self._step(self._rules[self._next])
            self._next += 1
            if step is not None:
                self._found.append(step)
                return True
        return False

    def _step(self, rule: Rule) -> _Step | None:
        if rule.kind is Kind.CLASS:
            result = rule.function(self._cls, self._policy)
            return None if result is None else _Step(rule, result)
        return _Step(rule) if rule.when is None or rule.when(self._cls) else None


@dataclass(frozen=True, slots=True)
class PodRules:
    """The rules about pods that are *enabled*, in the order in which they are applied, and what they may read.

    The first rule that returns a result decides.
    """

    facts: Facts
    now: Now = field(compare=False)
    enabled: tuple[Rule, ...]
    by_class: dict[PodClass, _Steps] = field(default_factory=dict, repr=False, compare=False)  #: cache
    #: Those that apply to pods without annotations by their class or their controller, and those without conditions.
    of_classes: tuple[Rule, ...] = field(init=False, repr=False)
    unconditional: tuple[Rule, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        unconditional = tuple([rule for rule in self.enabled if rule.unconditional])
        of_classes = tuple([rule for rule in self.enabled if not (rule.annotations or rule in unconditional)])
        object.__setattr__(self, "unconditional", unconditional)
        object.__setattr__(self, "of_classes", of_classes)

    def at(self, now: Now) -> "PodRules":
        """Return the same rules at another time."""
        return replace(self, now=now)

    def during_drain(self, evicted: Collection[str]) -> "PodRules":
        """Return the same rules for the node of a drain that has *evicted* pods (UIDs)."""
        waits = self.facts.policy.wait_for_terminating or bool(evicted)
        facts = replace(self.facts, evicted=frozenset(evicted), waits_for_terminating=waits)
        return replace(self, facts=facts)

    def fate(self, pod: Pod) -> Fate | Blocker:
        """Return what happens to *pod* when its node is drained, or why it blocks the node.

        *pod* must not be finished; snapshots contain no finished pods.
        """
        result = next(self._decisions(pod), Fate.MOVES)
        return result if isinstance(result, Fate) else _about(pod, result)

    def blockers(self, pod: Pod) -> tuple[Blocker, ...]:
        """Return all blockers of evicting *pod*, in the order of the rules; the first is the one of :meth:`fate`.

        Rules after one that allows the eviction are ignored, and a pod that is being deleted has no further blockers.
        """
        blockers: list[Blocker] = []
        for result in self._decisions(pod):
            if isinstance(result, Fate):
                break
            blockers.append(_about(pod, result))
            if pod.cls.terminating:
                break
        return tuple(blockers)

    def none_applies(self, pod: Pod) -> bool:
        """Return whether no rule can apply to pods of the class and the controller of *pod* without annotations.

        Left out are the rules without conditions, which :meth:`one_decides` evaluates for each pod.
        """
        cls, owner, policy = pod.cls, pod.owner, self.facts.policy
        for rule in self.of_classes:
            if rule.kind is Kind.CLASS:
                if rule.function(cls, policy) is not None:
                    return False
            elif (rule.owned is None or rule.owned(owner)) and (rule.when is None or rule.when(cls)):
                return False
        return True

    def one_decides(self, pod: Pod) -> bool:
        """Return whether one of the rules without conditions decides about *pod*."""
        facts, now = self.facts, self.now
        for rule in self.unconditional:
            result = rule.function(pod, facts) if rule.kind is Kind.POD else rule.function(pod, facts, now)
            if result is not None:
                return True
        return False

    def _steps(self, cls: PodClass) -> _Steps:
        if (steps := self.by_class.get(cls)) is None:
            steps = self.by_class[cls] = _Steps(cls, self.enabled, self.facts.policy)
        return steps

    def _decisions(self, pod: Pod) -> Iterator[Fate | Blocker]:
        """Yield the results of the rules that have one, in the order of the rules."""
        facts, now = self.facts, self.now
        for rule, result in self._steps(pod.cls):
            if result is not None:
                yield result
            elif rule.owned is not None and not rule.owned(pod.owner):
                continue
            elif not rule.annotations or not rule.annotations.isdisjoint(pod.annotations):
                found = rule.function(pod, facts) if rule.kind is Kind.POD else rule.function(pod, facts, now)
                if found is not None:
                    yield found


def pod_rules(rules: Iterable[Rule], facts: Facts, now: Now) -> PodRules:
    """Return the *rules* that the policy of *facts* enables."""
    enabled = tuple([rule for rule in rules if rule.enabled is None or rule.enabled(facts.policy)])
    return PodRules(facts, now, enabled)


def _about(pod: Pod, blocker: Blocker) -> Blocker:
    return Blocker(blocker.reason, blocker.detail, pod.key)


def node_results(rules: Iterable[Rule], node: Node, facts: NodeContext, now: Now) -> tuple[Blocker, ...]:
    """Return the blockers of all *rules* about nodes, not only the first."""
    results = (
        rule.function(node, facts) if rule.kind is Kind.NODE else rule.function(node, facts, now) for rule in rules
    )
    return tuple(result for result in results if isinstance(result, Blocker))
