"""Names of nodes as pages print them, workloads and namespaces are accepted where names are expected."""

import json
from pathlib import Path

import pytest

from rescheduler.cli import main
from rescheduler.planning.node_info import full_name
from tests.planning.builders import ON_DEMAND, SYSTEM_POD, node, pod
from tests.sample import files

SHORT, DOMAIN = "ip-10-0-75-124", ".eu-west-1.compute.internal"


@pytest.mark.parametrize(
    ("name", "known", "full"),
    [
        ("a", ["a", "a.x"], "a"),
        ("a", ["a.x", "b.x"], "a.x"),
        ("a", ["a.x", "a.y"], "a"),
        ("a", ["ab.x"], "a"),
        ("", ["a.x"], ""),
        ("a.x", ["a.x.y"], "a.x.y"),
    ],
)
def test_a_short_name_is_completed_if_it_is_unique(name: str, known: list[str], full: str) -> None:
    assert full_name(name, known) == full


def run(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "-f", str(files.DUMP)])
    out, err = capfd.readouterr()
    return ended.value.code, out, err


LINES = {
    "a node": ("explain", "{}"),
    "a node of which more is like": ("plan", "--survive=off", "--what-if=add-spot 2 like {}"),
    "a node that may be drained": ("plan", "--survive=off", "--what-if=allow node/{} scale-down-disabled"),
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_nodes_may_have_their_short_names(capfd: pytest.CaptureFixture[str], line: tuple[str, ...]) -> None:
    short, full = (run(capfd, *(word.format(name) for word in line)) for name in (SHORT, SHORT + DOMAIN))
    assert short[0] == full[0] == 0
    texts = [" ".join(out.replace(DOMAIN, "").split()) for _, out, _ in (short, full)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", ["data/deployment/spark-worker", "data/Deployment/spark-worker", "data/spark-worker",
                                  "data/deployments.apps/spark-worker", "deploy/spark-worker",
                                  "data/deploy/spark-worker", "Deployments.apps/spark-worker"])  # fmt: skip
def test_a_workload_selects_its_pods(capfd: pytest.CaptureFixture[str], name: str) -> None:
    code, out, _ = run(capfd, "explain", name)
    assert (code, out.count("(Deployment\n  data/spark-worker)")) == (0, 4)
    assert out.count("Pod data/") == 4


def test_a_workload_of_several_namespaces_needs_one(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    objects = [node("od", ON_DEMAND), node("spot"), pod("a/web-1", "od"), pod("b/web-1", "od"), SYSTEM_POD]
    file = tmp_path / "two.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))
    for name, code in (("rs/web", 2), ("replicaset/web", 2), ("a/rs/web", 0), ("b/web", 0)):
        with pytest.raises(SystemExit) as ended:
            main(["explain", "-f", str(file), name])
        out, error = capfd.readouterr()
        assert (ended.value.code, f"{name} is in the namespaces a, b: expected one, such as a/{name}" in error) == (
            code,
            code == 2,
        )
        assert [f"Pod {each}/web-1" in out for each in "ab"] == [name[0] == "a", name[0] == "b"]


def test_a_namespace_selects_its_pods_on_on_demand_nodes(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capfd, "explain", "ci")
    assert (code, out.count("\nPod ci/") > 3, "\nPod data/" in out) == (0, True, False)


@pytest.mark.parametrize("name", ["nothing", "data/nothing", "data/job/spark-worker", "a/b/c/d", "no/deployment/x",
                                  "deploy/nothing"])  # fmt: skip
def test_unknown_names_are_usage_errors(capfd: pytest.CaptureFixture[str], name: str) -> None:
    code, _, err = run(capfd, "explain", name)
    assert (code, f"{name}: no such node, and no such pod" in err) == (2, True)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("ip-10-0-75-12", SHORT),
        ("data/spark-workr", "data/spark-worker"),
        ("ci/deployment/ci-cach", "ci/deployment/ci-cache"),
    ],
)
def test_an_unknown_name_is_answered_with_a_similar_one(
    capfd: pytest.CaptureFixture[str], name: str, near: str
) -> None:
    code, _, err = run(capfd, "explain", name)
    assert (code, err.rstrip().endswith(f"; did you mean {near}?")) == (2, True)
    if name.startswith("ip-"):
        changes = (f"add-spot 1 like {name}", f"allow node/{name} scale-down-disabled")
        errors = [run(capfd, "plan", "--what-if", change)[2] for change in changes]
        assert [error.rstrip().endswith(f"; did you mean {near}?") for error in errors] == [True, True]
