"""Regular expressions and parsers of text from outside take linear time.

Each is measured at two lengths, and the ratio of the two times is compared with the ratio of the lengths. Both are CPU
times of this thread, so other programs on the machine do not matter. The regular expressions are found in the sources,
and the texts follow from them: for each repetition, a text that gets there, what it repeats, and an end that it
rejects.
"""

import ast
import importlib
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from re import _constants as op  # type: ignore[attr-defined]  # the parser of regular expressions has no types
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final, NamedTuple

import pytest

from predicates import node_selectors, objects, quantity, selectors, versions, wire
from predicates.pod_classes import split_labels
from rescheduler import durations, settings
from rescheduler.cli import go_flags
from rescheduler.cloudpool.proxy import paths
from rescheduler.draining import actions
from rescheduler.errors import ReschedulerError
from rescheduler.liqo.discovery import messages
from rescheduler.planning import forms, node_labels, pauses, policy, pool_shares
from rescheduler.planning.money import commitments, prices
from rescheduler.planning.rules import minimum
from rescheduler.providers.cherryservers import config

ROOT: Final = Path(__file__).parents[2]
NOW: Final = datetime(2026, 3, 1, tzinfo=UTC)
SHORT: Final = 250
FACTOR: Final = 16
#: Linear time grows by FACTOR, quadratic time by its square.
MOST: Final = 4 * FACTOR
QUICK: Final = 50e-9
ENDLESS: Final = 200e-6
#: What follows the repeated text: nothing, and characters that few expressions expect.
METHODS: Final = ("match", "fullmatch", "search", "sub", "split", "findall", "finditer")
OF_MODULE: Final = tuple(f"re.{method}" for method in METHODS)
ENDS: Final = ("", "\x00", "\n")


class Use(NamedTuple):
    """One use of a regular expression in the sources."""

    where: str
    pattern: "re.Pattern[Any]"
    method: str

    def __str__(self) -> str:
        return f"{self.where}.{self.method}"


@cache
def sources() -> Mapping[str, ast.Module]:
    """Return the modules of the program."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): ast.parse(path.read_text())
        for folder in ("predicates", "rescheduler")
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


def uses() -> Iterator[Use]:
    """Yield all uses of regular expressions in the program."""
    trees = sources()
    known = {
        f"{module}.{name}": value
        for module, tree in trees.items()
        if "re.compile" in {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        for name, value in vars(importlib.import_module(module)).items()
        if isinstance(value, re.Pattern)
    }
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in METHODS:
                yield from _of_compiled(module, ast.unparse(node.value), node.attr, known)
            elif isinstance(node, ast.Call) and (called := ast.unparse(node.func)) in OF_MODULE:
                expression = node.args[0]
                if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
                    yield Use(f"{module}:{node.lineno}", re.compile(expression.value), called.removeprefix("re."))


def _of_compiled(module: str, name: str, method: str, known: Mapping[str, "re.Pattern[Any]"]) -> Iterator[Use]:
    own = f"{module}.{name}"
    others = [key for key in known if key.endswith(f".{name.rpartition('.')[2]}")]
    for key in [own] if own in known else others:
        yield Use(key, known[key], method)


def minimal(tree: Any) -> str:
    """Return a short text that the parsed expression *tree* matches."""
    return "".join(_minimal(code, value) for code, value in tree)


def _minimal(code: Any, value: Any) -> str:
    if code is op.LITERAL:
        return chr(value)
    if code is op.IN:
        return next(iter(members(value)), "a")
    if code is op.ANY:
        return "a"
    if code is op.NOT_LITERAL:
        return "a" if value != ord("a") else "b"
    if code in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
        return minimal(value[2]) * int(value[0])
    if code is op.SUBPATTERN:
        return minimal(value[-1])
    if code is op.BRANCH:
        return minimal(value[1][0])
    return ""


def members(ranges: Any) -> list[str]:
    """Return some characters of a set: those at the ends of its ranges; for a negated set, one that is not in it."""
    found = []
    for code, value in ranges:
        if code is op.NEGATE:
            expected = re.compile("[^" + "".join(re.escape(character) for character in members(ranges[1:])) + "]")
            return [character for character in "a0 -" if expected.match(character)]
        if code is op.LITERAL:
            found.append(chr(value))
        elif code is op.RANGE:
            found += [chr(value[0]), chr(value[1])]
        elif code is op.CATEGORY:
            found += {op.CATEGORY_DIGIT: ["0", "1"], op.CATEGORY_SPACE: [" ", "\n"]}.get(value, ["a"])
    return found


def pumps(tree: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield what leads to each repetition in the parsed expression *tree*, and what it repeats."""
    for code, value in tree:
        if code in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
            yield before, minimal(value[2])
            for inner, argument in value[2]:
                if inner is op.IN:
                    yield from ((before, character) for character in members(argument))
            yield from pumps(value[2], before)
        elif code is op.SUBPATTERN:
            yield from pumps(value[-1], before)
        elif code is op.BRANCH:
            for branch in value[1]:
                yield from pumps(branch, before)
        before += _minimal(code, value)


def hostile(pattern: "re.Pattern[Any]") -> Iterator[tuple[str, str, str]]:
    """Yield texts to try: a beginning, what is repeated, an end."""
    tree = parser.parse(pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode())
    pairs = {*pumps(tree), ("", minimal(tree)), ("", minimal(tree)[:-1]), ("", " "), ("", ",")}
    yield from ((before, pump, end) for before, pump in sorted(pairs) if pump for end in ENDS)


def call(pattern: "re.Pattern[Any]", method: str, text: str) -> Callable[[], object]:
    subject: Any = text if isinstance(pattern.pattern, str) else text.encode()
    if method == "sub":
        return lambda: pattern.sub(subject[:0], subject)
    if method == "finditer":
        return lambda: list(pattern.finditer(subject))
    return partial(getattr(pattern, method), subject)


def pumped(use: Use, before: str, pump: str, end: str, length: int) -> Callable[[], object]:
    """Return a call of *use* with a text of about this *length*."""
    return call(use.pattern, use.method, before + pump * (length // len(pump)) + end)


def seconds(act: Callable[[], object]) -> float:
    """Return the CPU time of *act*: the least of three runs, each repeated until it can be measured."""
    repeats = 1
    while (taken := _measured(act, repeats)) < 50e-6:
        repeats *= 4
    return min(taken, _measured(act, repeats), _measured(act, repeats)) / repeats


def _measured(act: Callable[[], object], repeats: int) -> float:
    started = time.thread_time()
    for _ in range(repeats):
        act()
    return time.thread_time() - started


def growth(make: Callable[[int], Callable[[], object]]) -> float:
    """Return how many times longer the long text takes than the short one.

    It is measured at a length between them first, so that a function that takes cubic time ends as well. Calls that
    take less than QUICK seconds for each character are not compared: quadratic time is many times longer. Nor are those
    that take more than ENDLESS seconds: nothing linear takes so long.
    """
    ratio = 0.0
    for factor in (math.isqrt(FACTOR), FACTOR):
        short, long = make(SHORT), make(SHORT * factor)
        once = _measured(long, 1) / (SHORT * factor)
        if once < QUICK:
            continue
        if once > ENDLESS and seconds(long) / (SHORT * factor) > ENDLESS:  # the first call also fills caches
            return math.inf
        ratio = seconds(long) / seconds(short)
        for _ in range(3):  # the measurement is repeated, because the caches of the machine matter
            if ratio > MOST / FACTOR * factor:
                ratio = min(ratio, seconds(long) / seconds(short))
        if ratio > 2 * MOST / FACTOR * factor:
            return math.inf
    return ratio


def test_regular_expressions_take_linear_time() -> None:
    """All in one test, so that workers that collect tests need not parse the program."""
    found = {str(use): use for use in uses()}.values()
    texts = ((use, text) for use in found for text in hostile(use.pattern))
    slow = [(str(use), use.pattern.pattern, *text) for use, text in texts if growth(partial(pumped, use, *text)) > MOST]
    assert len(found) > 60
    assert slow == []


def test_all_regular_expressions_are_found() -> None:
    """All are constants of modules: others would not be measured."""
    compiled, calls = set(), 0
    for module, tree in sources().items():
        calls += sum(isinstance(node, ast.Call) and ast.unparse(node.func) == "re.compile" for node in ast.walk(tree))
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if ast.unparse(node.value.func) == "re.compile":
                    compiled.add(f"{module}.{ast.unparse(target)}")
    assert len(compiled) == calls > 40
    assert compiled - {use.where for use in uses()} == set()


def test_no_other_module_compiles_regular_expressions() -> None:
    """A constraint of msgspec would compile its pattern, and these modules those of their callers."""
    for module, tree in sources().items():
        for node in ast.walk(tree):
            assert not (isinstance(node, ast.Call) and {"pattern"} & {word.arg for word in node.keywords}), module
            imported = {alias.name for alias in node.names} if isinstance(node, ast.Import) else set()
            imported |= {node.module or ""} if isinstance(node, ast.ImportFrom) else set()
            assert not imported & {"fnmatch", "glob", "regex", "parse"}, module


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"([+-]?)(0*)(\d*)(?:\.(\d*))?([eEinumkKMGTP]*[-+]?\d*)", "fullmatch"),
        (r",(?![^(]*\))", "split"),
        (r"\s*\{\{", "sub"),
        ("(a|b)*[ab]*c", "fullmatch"),
    ],
)
def test_slow_expressions_are_noticed(pattern: str, method: str) -> None:
    compiled = re.compile(pattern)

    def slow(before: str, pump: str, end: str) -> bool:
        return growth(lambda length: call(compiled, method, before + pump * length + end)) > MOST

    assert any(slow(*text) for text in hostile(compiled))


def raised(parse: Callable[..., object], *arguments: object) -> object:
    """Return what *parse* returns, or the error that it raises."""
    try:
        return parse(*arguments)
    except (ValueError, ReschedulerError) as error:
        return error


def selector(key: str, values: str) -> objects.LabelSelector:
    return objects.LabelSelector(match_expressions=(objects.Requirement(key=key, operator="In", values=tuple(values)),))


Text = Callable[[int], str]

#: Parsers, and the texts of a given length.
PARSERS: Final[dict[str, tuple[Callable[[str], object], tuple[Text, ...]]]] = {
    "quantities": (
        quantity.parse.__wrapped__,
        (
            lambda n: "0" * n + "x",
            lambda n: "0" * n,
            lambda n: "1" * n,
            lambda n: "0." + "0" * n + "1",
            lambda n: "1e" + "9" * n,
            lambda n: "E" * n + "1",
            lambda n: "1" * n + "Ki",
        ),
    ),
    "durations": (
        durations.nanoseconds,
        (lambda n: "1h" * n, lambda n: "1" * n, lambda n: "1h" * n + "x", lambda n: "." * n, lambda n: "1." * n),
    ),
    "durations of annotations": (durations.period, (lambda n: "1h" * n, lambda n: "9" * n + "s")),
    "times": (forms.instant, (lambda n: "2026-01-01T00:00:00." + "0" * n + "Z", lambda n: "2" * n)),
    "label keys": (
        selectors.key_errors.__wrapped__,
        (lambda n: "a" * n + "/b", lambda n: "a." * n + "/b", lambda n: "a-" * n, lambda n: "/" * n),
    ),
    "label values": (selectors.value_errors, (lambda n: "a-" * n, lambda n: "\ud800" * n)),
    "label selectors": (
        lambda text: selectors.compile_selector(selector(text, text)),
        (lambda n: "a" * n, lambda n: "a." * n),
    ),
    "integers of node selectors": (node_selectors._parse_int64, (lambda n: "0" * n, lambda n: "+" * n + "1")),
    "versions": (versions.parse_minor, (lambda n: "1." + "9" * n, lambda n: "1.36." * n)),
    "names": (settings.object_name, (lambda n: "a-" * n, lambda n: "a." * n)),
    "namespace selectors": (
        policy.parse_selector,
        (lambda n: "," * n, lambda n: "a in (b),c" + ",(" * n, lambda n: "a" + " " * n, lambda n: "a in (" + "b," * n),
    ),
    "drain windows": (pauses.parse_window, (lambda n: "Mon," * n, lambda n: "-" * n)),
    "pauses": (
        lambda text: pauses.manual_pause({pauses.PAUSED: text, pauses.PAUSE_REASON: text}, NOW),
        (lambda n: "2026-01-01T00:00:00." + "0" * n, lambda n: "\x1b" * n, lambda n: " a" * n),
    ),
    "minimums of replicas": (lambda text: minimum.floor_of(text, 3), (lambda n: "1" * n, lambda n: "1%" * n)),
    "marks of nodes": (actions.parse, (lambda n: "{" * n, lambda n: '{"a":' * n, lambda n: "1" * n)),
    "names of objects that cannot be decoded": (
        lambda text: wire.name_of(text.encode()),
        (lambda n: '"metadata" ' * n, lambda n: '"metadata"' + " " * n, lambda n: '"metadata":' + "[" * n),
    ),
    "labels of bound pods": (
        lambda text: split_labels(text.encode()),
        (lambda n: '{"topology.kubernetes.io/zone":"' + "a" * n + '"}', lambda n: "{" + '"a":"b",' * n + '"a":"b"}'),
    ),
    "shares of pools": (pool_shares.parse_share, (lambda n: "1" * n + "%", lambda n: " " * n + "1")),
    "headroom": (policy.parse_headroom, (lambda n: "1" * n + "%", lambda n: " " * n)),
    "lists of namespaces": (policy.parse_names, (lambda n: "," * n, lambda n: "a," * n, lambda n: "a-" * n)),
    "labels of nodes": (
        node_labels.NodeLabels.parse,
        (lambda n: "a," * n, lambda n: "a=" * n, lambda n: "a in (" * n, lambda n: "(" * n, lambda n: "!" * n),
    ),
    "addresses": (
        settings.ListenAddress.parse,
        (lambda n: ":" * n, lambda n: "[" * n + "]:1", lambda n: ":" + "1" * n),
    ),
    "price files": (
        prices.parse,
        (lambda n: "[" * n, lambda n: '{"a":' * n, lambda n: "a,b\n" * n, lambda n: '"' * n, lambda n: "," * n),
    ),
    "files of commitments": (
        commitments.parse,
        (lambda n: "[" * n, lambda n: '{"a":' * n, lambda n: "- a\n" * n, lambda n: "a: " * n),
    ),
    "durations of flags": (
        go_flags.parse_duration,
        (lambda n: "1h" * n, lambda n: "1d" * n, lambda n: "1" * n + "d", lambda n: "1d" + "." * n + "d"),
    ),
    "descriptions of Liqo clusters": (
        messages.parse,
        (
            lambda n: "[" * n,
            lambda n: "a: " * n,
            lambda n: "- " * n,
            lambda n: "a:\n" * n,
            lambda n: "&a " * n,
            lambda n: '"' + "\\n" * n,
            lambda n: "? " * n,
            lambda n: "{a: " * n,
            lambda n: "\n" * n,
            lambda n: "#" * n,
            lambda n: "".join(f"k{i}: v\n" for i in range(n // 8)),
        ),
    ),
    "templates of cloud-init": (
        lambda text: config.render(text, {}),
        (lambda n: " " * n, lambda n: "{{" * n, lambda n: "{{" + " " * n, lambda n: "{{-" * n, lambda n: "{{ /*" * n),
    ),
    "paths of requests": (
        lambda text: paths.route("POST", text),
        (lambda n: "/" * n, lambda n: "/.." * n, lambda n: "%25" * n, lambda n: "/a;" * n, lambda n: "%u002f" * n),
    ),
}


@pytest.mark.parametrize(
    ("parse", "make"),
    [
        pytest.param(parse, text, id=f"{name}-{number}")
        for name, (parse, texts) in PARSERS.items()
        for number, text in enumerate(texts)
    ],
)
def test_parsers_take_linear_time(parse: Callable[[str], object], make: Text) -> None:
    assert growth(lambda length: partial(raised, parse, make(length))) <= MOST


#: Parsers of other values than one text.
OTHERS: Final = frozenset({"rescheduler.cli.what_if.parse", "rescheduler.simulation.times.parsed"})


def test_all_parsers_are_measured() -> None:
    """All functions whose name begins with "parse", and whose first argument is a text."""
    found = set()
    for module, tree in sources().items():
        for scope in (node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef)):
            for node in scope.body:
                if isinstance(node, ast.FunctionDef) and node.name.startswith("parse") and _takes_text(node):
                    found.add(".".join(filter(None, (module, getattr(scope, "name", ""), node.name))))
    measured = {f"{parse.__module__}.{parse.__qualname__}" for parse, _ in PARSERS.values()}
    assert len(found) > 10
    assert found - measured - OTHERS == set()


def _takes_text(function: ast.FunctionDef) -> bool:
    arguments = [argument for argument in function.args.args if argument.arg not in ("self", "cls")]
    return bool(arguments) and "str" in ast.unparse(arguments[0].annotation or ast.Constant(None)).split(" | ")
