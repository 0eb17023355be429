"""The configuration file of kube-scheduler: plugins, arguments, profiles, unknown plugins and errors."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rescheduler.cli import main
from tests.cli.dumps import write_dump
from tests.planning.builders import HOST, ON_DEMAND, ZONE, node, pod, repels

API = "kubescheduler.config.k8s.io/v1"
ENFORCED = "node(s) didn't match scheduler-enforced node affinity"
TAINT = {"key": "only", "effect": "NoSchedule"}
GPU = "vendor.example/gpu"


RATIO = {"type": "RequestedToCapacityRatio"}
SHAPE = {"shape": [{"utilization": 0}, {"utilization": 100, "score": 10}]}


def fit(**args: Any) -> dict[str, Any]:
    return {"NodeResourcesFit": args}


def config(*profiles: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"apiVersion": API, "kind": "KubeSchedulerConfiguration", "profiles": list(profiles), **fields}


def profile(name: str = "default-scheduler", args: dict[str, Any] | None = None, **plugins: Any) -> dict[str, Any]:
    """Return a profile with the arguments of plugins by name, and the plugins by extension point."""
    configured = [{"name": name, "args": each} for name, each in (args or {}).items()]
    return {"schedulerName": name, "plugins": plugins, "pluginConfig": configured}


def off(*names: str) -> dict[str, Any]:
    return {"disabled": [{"name": name} for name in names]}


def on(*names: str) -> dict[str, Any]:
    return {"enabled": [{"name": name} for name in names]}


def in_zone(*zones: str) -> dict[str, Any]:
    expression = {"key": ZONE, "operator": "In", "values": list(zones)}
    return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}


def enforced(*zones: str) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": in_zone(*zones)}
    return {"NodeAffinity": {"apiVersion": API, "kind": "NodeAffinityArgs", "addedAffinity": required}}


def spread(when: str, key: str = HOST, skew: int = 1) -> dict[str, Any]:
    constraint = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when}
    return {"PodTopologySpread": {"defaultingType": "List", "defaultConstraints": [constraint]}}


#: Without these, the scheduler does not start.
RUNS = ("PrioritySort", "DefaultBinder")
IPA = on("InterPodAffinity")
CONSTRAINT = spread("DoNotSchedule")["PodTopologySpread"]["defaultConstraints"][0]


def matching(operator: str, *values: str) -> dict[str, Any]:
    """Return added affinity whose second term has this requirement."""
    required = in_zone("b")
    expression = {"key": "number", "operator": operator, "values": list(values)}
    required["nodeSelectorTerms"].append({"matchExpressions": [expression]})
    return {"NodeAffinity": {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def planned(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path, items: list[Any], file: Any, *flags: str
) -> tuple[dict[str, Any], str]:
    """Return the plan of node od with the configuration *file*, and the errors."""
    snapshot, path = write_dump(tmp_path, items), tmp_path / "scheduler.yaml"
    path.write_text(yaml.safe_dump(file))
    with pytest.raises(SystemExit):
        main(["plan", "--snapshot", str(snapshot), "-o", "json", f"--scheduler-config={path}", *flags])
    out, err = capfdbinary.readouterr()
    return next(each for each in json.loads(out)["nodes"] if each["node"] == "od"), err.decode()


NODES = [node("od", ON_DEMAND), node("s", zone="b")]
TAINTED = [node("od", ON_DEMAND), node("s", zone="b", taints=[TAINT])]
SEEKS_A: dict[str, Any] = {"nodeSelector": {ZONE: "a"}}
SEEKS_B: dict[str, Any] = {"nodeSelector": {ZONE: "b"}}
WITH_GPU: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", GPU: "1"}}}]}
HUGE: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "hugepages-2Mi": "2Mi"}}}]}
REPELLED = [*NODES, pod("x-1", "s"), pod("w-1", "od", affinity=repels("x"))]
#: Two pods of one owner: the second one is on the spot node.
TWINS = [*NODES, node("t", zone="c", cpu="100m"), pod("w-1", "od"), pod("w-2", "s")]

#: the cluster, the configuration → the texts of the blockers; none: the node drains
CASES: dict[str, tuple[list[Any], dict[str, Any], list[str]]] = {
    "defaults": ([*TAINTED, pod("w-1", "od")], config(), ["tolerate"]),
    "no profiles": ([*NODES, pod("w-1", "od")], {"apiVersion": API, "kind": "KubeSchedulerConfiguration"}, []),
    "a plugin that is off": (
        [*TAINTED, pod("w-1", "od", **SEEKS_B)], config(profile(multiPoint=off("TaintToleration"))), [],
    ),
    "a plugin that is off as a filter": (
        [*TAINTED, pod("w-1", "od", **SEEKS_B)], config(profile(filter=off("TaintToleration"))), [],
    ),
    "taints of drained nodes are not checked either": (
        [*TAINTED, pod("w-1", "od")], config(profile(filter=off("TaintToleration"))), ["on this node again"],
    ),
    "a node selector without NodeAffinity": (
        [*NODES, pod("w-1", "od", **SEEKS_A)], config(profile(multiPoint=off("NodeAffinity"))), [],
    ),
    "a node selector": ([*NODES, pod("w-1", "od", **SEEKS_A)], config(), ["matches no spot node"]),
    "a plugin that is off for scores only": (
        [*TAINTED, pod("w-1", "od")], config(profile(score=off("TaintToleration"))), ["tolerate"],
    ),
    "all off, one on": (
        REPELLED, config(profile(multiPoint=off("*") | on(*RUNS, "NodeResourcesFit", "TaintToleration"))), [],
    ),
    "all off as filters, one on": (
        REPELLED, config(profile(filter=off("*") | on("InterPodAffinity"))), ["anti-affinity"],
    ),
    "off and on again": (
        REPELLED, config(profile(multiPoint=off("InterPodAffinity") | on("InterPodAffinity"))), ["anti-affinity"],
    ),
    "off everywhere, on as a filter": (
        REPELLED, config(profile(multiPoint=off("*") | on(*RUNS), preFilter=IPA, filter=IPA)), ["anti-affinity"],
    ),
    "added affinity that the spot node matches": ([*NODES, pod("w-1", "od")], config(profile(args=enforced("b"))), []),
    "added affinity": ([*NODES, pod("w-1", "od")], config(profile(args=enforced("a"))), [ENFORCED]),
    "added affinity without the plugin": (
        [*NODES, pod("w-1", "od")], config(profile(args=enforced("a"), filter=off("NodeAffinity"))), [],
    ),
    "an extended resource": ([*NODES, pod("w-1", "od", **WITH_GPU)], config(), [GPU]),
    "an ignored resource": (
        [*NODES, pod("w-1", "od", **WITH_GPU)],
        config(profile(args={"NodeResourcesFit": {"ignoredResources": [GPU]}})), [],
    ),
    "another ignored resource": (
        [*NODES, pod("w-1", "od", **WITH_GPU)],
        config(profile(args={"NodeResourcesFit": {"ignoredResources": ["vendor.example/nic"]}})), [GPU],
    ),
    "an ignored group": (
        [*NODES, pod("w-1", "od", **WITH_GPU)],
        config(profile(args={"NodeResourcesFit": {"ignoredResourceGroups": ["vendor.example"]}})), [],
    ),
    "a native resource is never ignored": (
        [*NODES, pod("w-1", "od", **HUGE)],
        config(profile(args={"NodeResourcesFit": {"ignoredResources": ["hugepages-2Mi"]}})), ["hugepages-2Mi"],
    ),
    "hard default constraints": (TWINS, config(profile(args=spread("DoNotSchedule"))), ["topology spread"]),
    "hard default constraints with room": (TWINS, config(profile(args=spread("DoNotSchedule", skew=3))), []),
    "soft default constraints": (TWINS, config(profile(args=spread("ScheduleAnyway"))), []),
    "default constraints on a label that the node lacks": (
        TWINS, config(profile(args=spread("DoNotSchedule", key="rack"))), ["missing required label"],
    ),
    "default constraints without a type of defaulting": (
        TWINS, config(profile(args={"PodTopologySpread": {"defaultingType": ""}})), [],
    ),
    "a profile without a name is the default one": (
        [*TAINTED, pod("w-1", "od", **SEEKS_B)], config(profile("", multiPoint=off("TaintToleration"))), [],
    ),
    "an extension point and a strategy without content": (
        [*NODES, pod("w-1", "od")], config(profile(args=fit(scoringStrategy=None), filter=None)), [],
    ),
    "a shape without a score, which is 0": (
        [*NODES, pod("w-1", "od")],
        config(profile(args=fit(scoringStrategy=RATIO | {"requestedToCapacityRatio": SHAPE}))), [],
    ),
    "another profile": (
        [*TAINTED, pod("w-1", "od", schedulerName="loose", **SEEKS_B)],
        config(profile(), profile("loose", multiPoint=off("TaintToleration"))), [],
    ),
    "the default profile beside another one": (
        [*TAINTED, pod("w-1", "od")], config(profile(), profile("loose", multiPoint=off("TaintToleration"))),
        ["tolerate"],
    ),
    "a scheduler that is not in the file": (
        [*NODES, pod("w-1", "od", schedulerName="third")], config(profile(), profile("loose")),
        ["its scheduler is third"],
    ),
    "an unknown plugin": (
        [*NODES, pod("w-1", "od")], config(profile(multiPoint=on("Coscheduling"))), ["runs Coscheduling"],
    ),
    "an unknown plugin in another profile": (
        [*NODES, pod("w-1", "od")], config(profile(), profile("other", multiPoint=on("Coscheduling"))), [],
    ),
    "an unknown plugin at one point": (
        [*NODES, pod("w-1", "od")], config(profile(permit=on("Coscheduling"))), ["runs Coscheduling"],
    ),
    "an extender": (
        [*NODES, pod("w-1", "od")], config(profile(), extenders=[{"urlPrefix": "http://e", "filterVerb": "filter"}]),
        ["runs http://e"],
    ),
    "an extender that only scores": (
        [*NODES, pod("w-1", "od")],
        config(profile(), extenders=[{"urlPrefix": "http://e", "prioritizeVerb": "p", "weight": 2}]), [],
    ),
    "an extender for a resource that the pod does not request": (
        [*NODES, pod("w-1", "od")],
        config(profile(), extenders=[{"urlPrefix": "u", "filterVerb": "f", "managedResources": [{"name": GPU}]}]), [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("items", "file", "blocked"), CASES.values(), ids=CASES)
def test_pods_are_judged_by_the_profile_of_the_file(
    items: list[Any],
    file: dict[str, Any],
    blocked: list[str],
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    verdict, _ = planned(capfdbinary, tmp_path, items, file)
    texts = [blocker["detail"] for blocker in verdict["blockers"]]
    assert verdict["drainable"] is not bool(blocked), texts
    for expected in blocked:
        assert any(expected in text for text in texts), texts


def test_plugins_that_are_assumed_never_to_reject_do_not_block(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    file = config(
        profile(multiPoint=on("Coscheduling", "Own")), extenders=[{"urlPrefix": "http://e", "filterVerb": "filter"}]
    )
    items = [*NODES, pod("w-1", "od")]
    verdict, err = planned(capfdbinary, tmp_path, items, file)
    assert [blocker["reason"] for blocker in verdict["blockers"]] == ["other-scheduler"]
    note = "rescheduler: warning: the rules of {} are not known: pods of {} stay (--assume-plugins={})"
    for name, of in (
        ("Coscheduling", "scheduler default-scheduler"),
        ("Own", "scheduler default-scheduler"),
        ("http://e", "all schedulers of the file"),
    ):
        assert note.format(name, of, name) in err.splitlines()
    assumed = [f"--assume-plugins={name}" for name in ("Coscheduling", "Own", "http://e")]
    verdict, err = planned(capfdbinary, tmp_path, items, file, *assumed)
    assert (verdict["drainable"], "not known" in err) == (True, False)


@pytest.mark.parametrize("url", ["https://user:s3cret@e.example/x", "https://e.example/x?token=s3cret"])
def test_credentials_of_an_extender_are_not_shown(
    url: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    file = config(profile(), extenders=[{"urlPrefix": url, "filterVerb": "filter"}])
    verdict, err = planned(capfdbinary, tmp_path, [*NODES, pod("w-1", "od")], file)
    [blocker] = verdict["blockers"]
    assert "runs https://e.example/x, whose rules are not known" in blocker["detail"]
    assert "s3cret" not in json.dumps(verdict) + err
    flag = "--assume-plugins=https://e.example/x"
    verdict, _ = planned(capfdbinary, tmp_path, [*NODES, pod("w-1", "od")], file, flag)
    assert verdict["drainable"]


def test_an_assumed_plugin_that_the_file_does_not_have_is_named(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    file = config(profile(multiPoint=on("Own")))
    _, err = planned(capfdbinary, tmp_path, NODES, file, "--assume-plugins=Own", "--assume-plugins=own")
    [note] = [line for line in err.splitlines() if "--assume-plugins" in line]
    assert note.endswith("--assume-plugins=own has no effect: no unknown plugin or extender has this name")


def test_arguments_that_are_not_used_are_named(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    args = {
        "InterPodAffinity": {"hardPodAffinityWeight": 5},
        "DefaultPreemption": {"minCandidateNodesPercentage": 5},
        "VolumeBinding": {"bindTimeoutSeconds": 5},
    }
    _, err = planned(capfdbinary, tmp_path, NODES, config(profile(args=args)))
    [note] = [line for line in err.splitlines() if "is not used" in line]
    argument = "scheduler default-scheduler: the argument hardPodAffinityWeight of InterPodAffinity"
    assert note.endswith(f"{argument} is not used; the scheduler may choose other nodes than the plan")


@pytest.mark.parametrize(
    ("for_all", "own", "named"),
    [(30, None, 30), (30, 50, 50), (30, 0, 0), (100, None, 0), (0, 99, 99)],
)
def test_a_scheduler_that_scores_a_part_of_the_nodes_is_named(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], for_all: int, own: int | None, named: int
) -> None:
    of_profile = profile() | ({} if own is None else {"percentageOfNodesToScore": own})
    _, err = planned(capfdbinary, tmp_path, NODES, config(of_profile, percentageOfNodesToScore=for_all))
    notes = [line for line in err.splitlines() if "percentageOfNodesToScore" in line]
    assert len(notes) == bool(named)
    assert all(
        f"default-scheduler: with percentageOfNodesToScore {named}, it may choose other" in note for note in notes
    )


#: a file → the end of the error
WRONG: dict[str, tuple[str, str]] = {
    "empty": ("", "it is empty; expected at least one key"),
    "not YAML": ("profiles: [", "line 1, column 12"),
    "another kind": (
        "apiVersion: v1\nkind: ConfigMap\n",
        f"expected apiVersion {API} and kind KubeSchedulerConfiguration, got v1 and ConfigMap",
    ),
    "an older version": (
        "apiVersion: kubescheduler.config.k8s.io/v1beta3\nkind: KubeSchedulerConfiguration\n",
        "got kubescheduler.config.k8s.io/v1beta3 and KubeSchedulerConfiguration",
    ),
    "a key that does not exist": (
        json.dumps(config(profile() | {"plugin": {}})), "unknown field `plugin` - at `$.profiles[0]`",
    ),
    "an extension point that does not exist": (
        json.dumps(config(profile(filters=on("X")))), "unknown field `filters` - at `$.profiles[0].plugins`",
    ),
    "a weight that is no number": (
        json.dumps(config(profile(score={"enabled": [{"name": "ImageLocality", "weight": "2"}]}))),
        "Expected `int | null`, got `str` - at `$.profiles[0].plugins.score.enabled[0].weight`",
    ),
    "a plugin twice": (
        json.dumps(config(profile(filter=on("NodeName", "NodeName")))),
        "profiles[0].plugins.filter.enabled: expected each plugin once, got NodeName twice",
    ),
    "a profile twice": (
        json.dumps(config(profile("a"), profile("a"))), "profiles: expected each schedulerName once, got a twice",
    ),
    "all plugins on": (
        json.dumps(config(profile(), profile("b", multiPoint=on("*")))),
        "profiles[1].plugins.multiPoint.enabled: expected the name of a plugin, got *",
    ),
    "arguments of a plugin twice": (
        json.dumps(config(profile() | {"pluginConfig": [{"name": "NodeAffinity"}, {"name": "NodeAffinity"}]})),
        "profiles[0].pluginConfig: expected each plugin once, got NodeAffinity twice",
    ),
    "arguments of another plugin": (
        json.dumps(config(profile(args=fit(kind="NodeAffinityArgs")))),
        f"expected apiVersion {API} and kind NodeResourcesFitArgs, got apiVersion {API} and kind NodeAffinityArgs",
    ),
    "arguments of an older version": (
        json.dumps(config(profile(args=fit(apiVersion="kubescheduler.config.k8s.io/v1beta3")))),
        "got apiVersion kubescheduler.config.k8s.io/v1beta3 and kind NodeResourcesFitArgs",
    ),
    "a kind that is no text": (json.dumps(config(profile(args=fit(kind=3)))), "and kind NodeResourcesFitArgs, got"),
    "a plugin that does not filter": (
        json.dumps(config(profile(filter=on("NodeName", "ImageLocality")))),
        "profiles[0].plugins.filter.enabled: expected plugins that filter, got ImageLocality, which does not",
    ),
    "a plugin that does not score": (
        json.dumps(config(profile(score=on("NodeName")))),
        "profiles[0].plugins.score.enabled: expected plugins that score, got NodeName, which does not",
    ),
    "nothing that sorts pods": (
        json.dumps(config(profile(multiPoint=off("*") | on("NodeResourcesFit")))),
        "profiles[0].plugins.queueSort: expected a plugin that is enabled, such as PrioritySort",
    ),
    "nothing that binds pods": (
        json.dumps(config(profile(bind=off("DefaultBinder")))),
        "profiles[0].plugins.bind: expected a plugin that is enabled, such as DefaultBinder",
    ),
    "an ignored resource that is no name": (
        json.dumps(config(profile(args=fit(ignoredResources=[GPU, "a/b/c"])))),
        "args.ignoredResources[1]: expected a name such as vendor.example/gpu, got 'a/b/c'",
    ),
    "an ignored group with a resource": (
        json.dumps(config(profile(args=fit(ignoredResourceGroups=[GPU])))),
        f"args.ignoredResourceGroups[0]: expected a name without a slash, such as vendor.example, got '{GPU}'",
    ),
    "added affinity with another operator": (
        json.dumps(config(profile(args=matching("Is", "b")))),
        "args.addedAffinity: term 1 of requiredDuringSchedulingIgnoredDuringExecution: expected keys with an operator",
    ),
    "added affinity without values": (
        json.dumps(config(profile(args=matching("In")))), "expected keys with an operator",
    ),
    "added affinity to more than a text": (
        json.dumps(config(profile(args=matching("Gt", "b")))), "expected keys with an operator",
    ),
    "default constraints on no label": (
        json.dumps(config(profile(args=spread("DoNotSchedule", key="a b")))),
        "args.defaultConstraints[0].topologyKey: expected the key of a node label",
    ),
    "the same default constraint twice": (
        json.dumps(config(profile(args={"PodTopologySpread": {
            "defaultingType": "List", "defaultConstraints": [CONSTRAINT, CONSTRAINT | {"maxSkew": 2}],
        }}))),
        f"args.defaultConstraints[1]: expected each topologyKey once for DoNotSchedule, got {HOST} twice",
    ),
    "a shape that is not used": (
        json.dumps(config(profile(args=fit(scoringStrategy=RATIO | {
            "type": "MostAllocated", "requestedToCapacityRatio": SHAPE,
        })))),
        "args.scoringStrategy.requestedToCapacityRatio: expected none, because the type is MostAllocated",
    ),
    "a strategy without a type": (
        json.dumps(config(profile(args=fit(scoringStrategy={})))),
        "Object missing required field `type` - at `$.scoringStrategy`",
    ),
    "a misspelt key of an extender": (
        json.dumps(config(profile(), extenders=[{"urlPrefix": "http://e", "filterverb": "f"}])),
        "Object contains unknown field `filterverb` - at `$.extenders[0]`",
    ),
    "an argument that does not exist": (
        json.dumps(config(profile(args={"NodeResourcesFit": {"ignored": []}}))),
        "profiles[0].pluginConfig[0].args: Object contains unknown field `ignored`",
    ),
    "a skew of 0": (
        json.dumps(config(profile(args=spread("DoNotSchedule", skew=0)))),
        "profiles[0].pluginConfig[0].args.defaultConstraints[0].maxSkew: expected more than 0, got 0",
    ),
    "constraints beside those of the system": (
        json.dumps(config(profile(args={"PodTopologySpread": {"defaultConstraints": [{"maxSkew": 1}]}}))),
        "args.defaultConstraints: expected none if defaultingType is System, or List",
    ),
    "a strategy that does not exist": (
        json.dumps(config(profile(args={"NodeResourcesFit": {"scoringStrategy": {"type": "Most"}}}))),
        "Invalid enum value 'Most' - at `$.scoringStrategy.type`",
    ),
    "a ratio without its shape": (
        json.dumps(config(profile(args={"NodeResourcesFit": {"scoringStrategy": RATIO}}))),
        "args.scoringStrategy.requestedToCapacityRatio: expected its shape",
    ),
    "another defaulting type": (
        json.dumps(config(profile(args={"PodTopologySpread": {"defaultingType": "Some"}}))),
        "args.defaultingType: expected System or List, got Some",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "error"), WRONG.values(), ids=WRONG)
def test_a_wrong_file_gets_one_clear_line(
    text: str, error: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / "scheduler.yaml"
    path.write_text(text)
    with pytest.raises(SystemExit) as ended:
        main(["plan", f"--scheduler-config={path}"])
    out, err = capfdbinary.readouterr()
    assert (ended.value.code, out) == (2, b"")
    [line] = err.decode().splitlines()
    assert line.startswith(f"rescheduler: scheduler configuration {path}: ")
    assert error in line


def test_assumed_plugins_need_a_file(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--assume-plugins=X"])
    assert ended.value.code == 2
    assert "--assume-plugins: expected --scheduler-config" in capfdbinary.readouterr().err.decode()


def test_a_rehearsal_of_a_configuration_lists_the_verdicts_that_it_changes(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    snapshot, path = write_dump(tmp_path, [*NODES, pod("w-1", "od")]), tmp_path / "other.yaml"
    path.write_text(yaml.safe_dump(config(profile(args=enforced("a")))))
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--snapshot", str(snapshot), "-o", "json", "--what-if", f"scheduler {path}"])
    assert ended.value.code == 0
    result = json.loads(capfdbinary.readouterr().out)["what_if"]["scheduler"]
    assert [(each["node"], each["drainable"]) for each in result["nodes"]] == [("od", False)]
    assert [(each["pod"], each["rejected_by"]) for each in result["pods"]] == [
        ("default/w-1", {"s": f"NodeAffinity: {ENFORCED}"})
    ]


def rehearsed(
    capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path, file: Any, items: list[Any], *texts: str
) -> tuple[dict[str, Any], str]:
    """Return what the changes *texts* change, in which FILE is the path of the configuration *file*, and the errors.

    Those of *texts* that begin with a dash are flags.
    """
    snapshot, path = write_dump(tmp_path, items), tmp_path / "an other.yaml"
    path.write_text(yaml.safe_dump(file))
    changes = [text if text[0] == "-" else f"--what-if={text.replace('FILE', str(path))}" for text in texts]
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--snapshot", str(snapshot), "-o", "json", *changes])
    out, err = capfdbinary.readouterr()
    assert ended.value.code == 0, err
    return json.loads(out)["what_if"]["scheduler"], err.decode()


@pytest.mark.parametrize("texts", [("scheduler FILE", "scheduler 1.35"), ("scheduler 1.35", "scheduler  FILE ")])
def test_a_version_and_a_configuration_are_rehearsed_together(
    texts: tuple[str, ...], tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    file = config(profile(args=enforced("a")))
    result, _ = rehearsed(capfdbinary, tmp_path, file, [*NODES, pod("w-1", "od")], *texts)
    assert result["version"] == "1.35"
    assert [each["rejected_by"] for each in result["pods"]] == [{"s": f"NodeAffinity: {ENFORCED}"}]


def test_a_rehearsal_names_the_plugins_whose_rules_are_not_known(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    file = config(profile(multiPoint=on("Own")))
    texts = ("scheduler FILE", "scheduler 1.35")
    result, err = rehearsed(capfdbinary, tmp_path, file, [*NODES, pod("w-1", "od")], *texts)
    note = "rescheduler: warning: the rules of Own are not known: pods of scheduler default-scheduler stay"
    assert err.count(note) == 1
    assert [[each["reason"] for each in changed["why"]] for changed in result["nodes"]] == [["other-scheduler"]]


def test_a_rehearsal_assumes_of_a_plugin_what_is_assumed_now(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    now = tmp_path / "now.yaml"
    now.write_text(yaml.safe_dump(config(profile(multiPoint=on("Own", "Old")))))
    flags = (f"--scheduler-config={now}", "--assume-plugins=Own", "--assume-plugins=Old")
    file = config(profile(multiPoint=on("Own")))
    result, err = rehearsed(capfdbinary, tmp_path, file, [*NODES, pod("w-1", "od")], "scheduler FILE", *flags)
    assert (result["nodes"], result["pods"]) == ([], [])
    assert "not known" not in err
    assert "no effect" not in err
