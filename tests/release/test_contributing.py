"""Tests of CONTRIBUTING.md: the named files exist, and the examples work."""

import ast
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.builders import node, pod
from tests.predicates.asking import load, reasons

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
CHANGES = re.findall(r"^### (.+?)\n(.*?)(?=^###? )", PAGE, re.DOTALL | re.MULTILINE)
STEP = re.compile(r"^\d\. (New file )?`([^`]+)`", re.MULTILINE)
PYTHON = re.compile(r"^ *```python\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


#: The files of each change.
FILES = {
    "Add a filter plugin": 2,
    "Add a metric": 3,
    "Add a cloud provider": 3,
    "Add a reason for not draining a node": 3,
    "Add an annotation that keeps pods, and the lever that removes it": 5,
}


def test_each_change_has_few_files() -> None:
    assert {title: len({name for _, name in STEP.findall(text)}) for title, text in CHANGES} == FILES


@pytest.mark.parametrize(("title", "text"), CHANGES, ids=[title for title, _ in CHANGES])
def test_the_files_of_a_change_exist(title: str, text: str) -> None:
    files = STEP.findall(text)
    for new, name in files:
        assert new or (ROOT / name).is_file(), name
        assert (ROOT / name).parent.is_dir()
    for code in PYTHON.findall(text):
        ast.parse(_parsable(textwrap.dedent(code)))


def _parsable(code: str) -> str:
    """Return *code* as a statement."""
    return f"def change():\n{textwrap.indent(code, '  ')}"


def test_named_paths_exist() -> None:
    new = {name for new, name in STEP.findall(PAGE) if new}
    paths = set(re.findall(r"`((?:predicates|rescheduler|tests|deploy|devcluster)/[\w./-]+)`", PAGE))
    assert len(paths) > 20
    assert {path for path in paths if not (ROOT / path).exists()} <= new


def test_the_example_of_a_plugin_works() -> None:
    scope: dict[str, Any] = {}
    exec(textwrap.dedent(PYTHON.findall(PAGE)[0]), scope)
    table = load(node("a"), node("b", labels={"example.com/reserved": ""}), pod("p"))
    actual = reasons(scope["PLUGIN"], table.pods["default/p"].cls, table)
    assert actual == {"a": "", "b": "node(s) were reserved"}


def test_the_example_of_a_metric_works(tmp_path: Path) -> None:
    """It is added to a copy of the program, where the page says, and nothing else is changed."""
    counter, sample = (textwrap.dedent(found) for found in PYTHON.findall(dict(CHANGES)["Add a metric"]))
    _copy_to(tmp_path, "tests/observe")
    observe = tmp_path / "rescheduler" / "observe"
    _insert(observe / "metric_families.py", textwrap.indent(counter, " " * 8), "        self._drains = NodeDrains(")
    before = '        yield MetricSample("drain_duration_seconds"'
    _insert(observe / "events.py", textwrap.indent(sample, " " * 8), before)
    assert _printed_by(_COUNT, tmp_path) == ["2.0"]


_COUNT = """
from dataclasses import replace
from prometheus_client import CollectorRegistry
from rescheduler.observe.metrics import Metrics
from tests.observe.builders import ended

registry = CollectorRegistry()
Metrics(registry)(replace(ended(), surged=2))
print(registry.get_sample_value("spot_rescheduler_surged_pods_total"))
"""


def test_the_example_of_a_provider_works() -> None:
    [command] = re.findall(r"^ *```bash\n( *sed .*?) > ", PAGE, re.DOTALL | re.MULTILINE)
    source = subprocess.run(["bash", "-c", command], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    scope: dict[str, Any] = {"__name__": "example"}
    exec(source, scope)
    assert scope["load"](None, None).name == "example"


#: The decorator of the rule ``_local_storage``.
_BEFORE_LOCAL_STORAGE = "@pod_rule(\n    Reason.LOCAL_STORAGE,\n    when=lambda cls: bool(local_volumes"

#: Prints the reasons in a plan, in the proxy and in an explanation, for a pod that is a minute old; and when the hour
#: ends, the plans of the same planner and of the proxy.
_ASK = """
from datetime import timedelta
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.cloudpool.proxy.config import DrainSection
from rescheduler.cloudpool.proxy.service import policy
from tests.planning.builders import NOW, ON_DEMAND, node, pod, snapshot

pods = [pod("a-1", "v", created="2026-01-01T11:59:00Z"), pod("a-2", "u", created="2026-01-01T08:00:00Z")]
cluster = snapshot([node("v", ON_DEMAND), node("u", ON_DEMAND), node("w"), *pods])
planner, now = Planner(cluster, Policy()), Circumstances(NOW)
found = [*planner.plan_each(now).rejected, Planner(cluster, policy(DrainSection())).look_again("v", now)]
print(*(f"{verdict.node} {blocker}" for verdict in found for blocker in verdict.blockers), sep="\\n")
print(*(f"explained {blocker}" for blocker in planner.explain(cluster.pods["default/a-1"], now).blockers), sep="\\n")
later = Circumstances(NOW + timedelta(minutes=59))
proxy = Planner(cluster, policy(DrainSection())).look_again("v", later)
print(*sorted(plan.node for plan in planner.plan_each(later).plans), type(proxy))
"""


def test_the_example_of_a_reason_works(tmp_path: Path) -> None:
    """It is added to a copy of the program, where the page says, and nothing else is changed."""
    text = dict(CHANGES)["Add a reason for not draining a node"]
    code, rule = (textwrap.dedent(found) for found in PYTHON.findall(text))
    _copy_to(tmp_path, "tests/planning")
    planning = tmp_path / "rescheduler" / "planning"
    _insert(planning / "outcome.py", textwrap.indent(code, "    "), "    # About a pod on the node.")
    _insert(planning / "rules" / "pod_rules.py", f"{rule}\n\n", _BEFORE_LOCAL_STORAGE)
    blocker = "young-pod: pod default/a-1: it was created less than an hour ago, at 2026-01-01T11:59:00Z"
    expected = [
        f"v {blocker}",
        f"v {blocker}",
        f"explained {blocker}",
        "u v <class 'rescheduler.planning.outcome.Plan'>",
    ]
    assert _printed_by(_ASK, tmp_path) == expected


#: Prints the reasons of a node, and for each lever the part to change, the nodes that it frees, and how to try it.
_ASK_LEVERS = """
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.what_if.levers import rank_levers
from tests.planning.builders import NOW, ON_DEMAND, node, pod, snapshot

cluster = snapshot([node("v", ON_DEMAND), node("w"), pod("a-1", "v", annotations={"example.com/keep": ""})])
planner, now = Planner(cluster, Policy()), Circumstances(NOW)
planning = planner.plan_all(now)
print(*planning.rejected[0].blockers)
for lever in rank_levers(planning, planner.round(now), PriceList(), lambda: False).levers:
    print(lever.obstacle, *lever.frees, *lever.changes)
"""


def test_the_example_of_an_annotation_works(tmp_path: Path) -> None:
    """It is added to a copy of the program, where the page says, and nothing else is changed."""
    code, rule = (
        textwrap.dedent(found)
        for found in PYTHON.findall(dict(CHANGES)["Add an annotation that keeps pods, and the lever that removes it"])
    )
    _copy_to(tmp_path, "tests/planning")
    planning = tmp_path / "rescheduler" / "planning"
    _insert(tmp_path / "predicates" / "pod_classes.py", '    "example.com/keep",\n', '    "spot-rescheduler/",\n')
    _insert(planning / "outcome.py", textwrap.indent(code, "    "), "    # About the plan.")
    _insert(planning / "rules" / "pod_rules.py", f"{rule}\n\n", "@class_rule(Reason.OTHER_SCHEDULER, ")
    expected = [
        "kept-by-example: pod default/a-1: it has the annotation example.com/keep",
        "annotation example.com/keep:  v allow default/replicaset/a kept-by-example",
    ]
    assert _printed_by(_ASK_LEVERS, tmp_path) == expected


def _copy_to(path: Path, tests: str) -> None:
    """Copy the program, and the builders of the folder *tests*."""
    for folder in ("predicates", "rescheduler", tests):
        shutil.copytree(ROOT / folder, path / folder, ignore=shutil.ignore_patterns("__pycache__"))


def _printed_by(program: str, path: Path) -> list[str]:
    """Return the lines that *program* prints in the copy below *path*."""
    (path / "ask.py").write_text(program, encoding="utf-8")
    ran = subprocess.run([sys.executable, "ask.py"], cwd=path, capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    return ran.stdout.splitlines()


def _insert(path: Path, code: str, before: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1, f"{path} has {before!r} {text.count(before)} times"
    path.write_text(text.replace(before, code + before), encoding="utf-8")
