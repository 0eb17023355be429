"""Our filters agree with the scheduler's plugins under random configurations, which both sides read from one text."""

import json
from pathlib import Path
from random import Random

import pytest

from predicates.filters import Filters
from tests.cli.test_scheduler_config import CASES, WRONG
from tests.conformance import ours
from tests.conformance.compare import FamilyCounts
from tests.conformance.generate.profiles import configuration
from tests.conformance.generate.world import Json
from tests.conformance.oracle import Oracle, PluginError, explain_request
from tests.conformance.profiles import compare, configuration_for, keep_known, our_scheduler, with_schedulers
from tests.conformance.scores import scored_cluster, with_known_owners
from tests.conformance.test_scores import known_owners, our_scores, requests_less_than_nothing, scorable, their_scores
from tests.conformance.verdicts import accepted, differences, of_oracle

CLUSTERS = 60


def test_the_plugins_of_a_profile_are_those_of_the_scheduler(oracle: Oracle, tmp_path: Path) -> None:
    """The order of the filters and the weights of the scores."""
    for seed in range(CLUSTERS):
        config = configuration(seed, ["vendor/gpu"], ["a", "b"])
        listed = oracle.ask({"mode": "plugins", "snapshot": {"items": []}, "config": json.dumps(config)})
        mine = our_scheduler(oracle, config, tmp_path)
        for name, sets in listed.items():
            profile = mine.profile(name)
            theirs = [each["Name"] for each in sets["Filter"]["Enabled"] or ()]
            assert [
                each for each in profile.filters if each != "SchedulingGates" and each not in profile.before
            ] == theirs, (seed, name)
            weights = {each["Name"]: each["Weight"] for each in sets["Score"]["Enabled"] or ()}
            assert dict(profile.weights) == {
                each: weight for each, weight in weights.items() if each != "DynamicResources"
            }


#: Wrong files that the oracle does not check: it takes only the profiles from a file.
NOT_CHECKED = ("empty", "not YAML", "another kind", "an older version", "a profile twice")


@pytest.mark.parametrize("name", [name for name in WRONG if name not in NOT_CHECKED])
def test_the_scheduler_refuses_each_file_that_is_refused_here(oracle: Oracle, name: str) -> None:
    with pytest.raises(PluginError):
        oracle.ask({"mode": "plugins", "snapshot": {"items": []}, "config": WRONG[name][0]})


@pytest.mark.parametrize("name", [name for name in CASES if "unknown plugin" not in name])
def test_the_scheduler_accepts_each_file_that_is_accepted_here(oracle: Oracle, name: str) -> None:
    oracle.ask({"mode": "plugins", "snapshot": {"items": []}, "config": json.dumps(CASES[name][1])})


@pytest.mark.parametrize("family", ["all", "plannable"])
def test_every_verdict_under_a_profile_is_that_of_the_scheduler(oracle: Oracle, family: str, tmp_path: Path) -> None:
    tally = FamilyCounts()
    for seed in range(CLUSTERS):
        found = compare(oracle, family, seed, tmp_path, tally)
        assert not found, f"{family} seed {seed}: {found[0]}"
    assert tally.verdicts > 10_000
    assert len(tally.first) > 5


def test_hard_default_constraints_of_replica_sets_are_those_of_the_scheduler(oracle: Oracle, tmp_path: Path) -> None:
    """Pods with other owners, which the scheduler does not know, are left out unless they have constraints."""
    compared = rejected = 0
    for seed in range(20):
        given = oracle.comparable(with_schedulers(with_known_owners(scored_cluster(seed, "plannable")), seed))
        config = configuration_for(given, seed)
        keep_known(given, config)
        rng = Random(seed)
        for each in config["profiles"]:
            others = [args for args in each["pluginConfig"] if args["name"] != "PodTopologySpread"]
            each["pluginConfig"] = [*others, {"name": "PodTopologySpread", "args": _hard_constraint(rng)}]
        theirs = of_oracle(oracle.ask(explain_request(given) | {"config": json.dumps(config)})["verdicts"])
        mine = ours.judge(given, our_scheduler(oracle, config, tmp_path))
        owned = {_key(item) for item in given["items"] if item["kind"] == "Pod" and _selected(item)}
        theirs, mine = ({key: nodes for key, nodes in side.items() if key in owned} for side in (theirs, mine))
        assert not list(differences(theirs, mine, accepted(given))), f"seed {seed}"
        compared += sum(map(len, theirs.values()))
        verdicts = [verdict for nodes in theirs.values() for verdict in nodes.values()]
        rejected += sum(any(each.plugin == "PodTopologySpread" for each in verdict) for verdict in verdicts)
    assert compared > 2000
    assert rejected > compared // 10


def _hard_constraint(rng: Random) -> Json:
    key = rng.choice(("topology.kubernetes.io/zone", "kubernetes.io/hostname"))
    constraint = {"maxSkew": rng.randint(1, 3), "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
    return {"defaultingType": "List", "defaultConstraints": [constraint]}


def _key(item: Json) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"


def _selected(item: Json) -> bool:
    owners = item["metadata"].get("ownerReferences") or ()
    return bool(item["spec"].get("topologySpreadConstraints")) or any(each["kind"] == "ReplicaSet" for each in owners)


def test_every_score_under_a_profile_is_that_of_the_scheduler(oracle: Oracle, tmp_path: Path) -> None:
    """Weights, scoring strategies, preferred terms that are added, and soft default constraints."""
    compared = spread = 0
    for seed in range(CLUSTERS):
        given = oracle.comparable(with_schedulers(scored_cluster(seed, "plannable"), seed))
        config = configuration_for(given, seed)
        keep_known(given, config)
        known, table = known_owners(given), ours.load(given, our_scheduler(oracle, config, tmp_path))
        filters = Filters(table)
        if requests_less_than_nothing(table):
            continue
        names = [pod.key for pod in table.pods.values() if scorable(pod, table)]
        request = {"mode": "score", "snapshot": given, "pods": names, "config": json.dumps(config)}
        for scored in oracle.ask(request)["scores"]:
            pod = table.pods[scored["pod"]]
            mine = our_scores(table, filters, pod, owned=(pod.namespace, pod.owner.name if pod.owner else "") in known)
            text = f"seed {seed}: {scored['pod']}\n{json.dumps(config['profiles'])}"
            assert mine == their_scores(scored), text
            compared += len(mine)
            spread += len({by_plugin["total"] for by_plugin in mine.values()}) > 1
    assert compared > 2000
    assert spread > compared // 100
