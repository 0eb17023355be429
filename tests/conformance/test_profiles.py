"""Our filters agree with the scheduler's plugins under random configurations, which both sides read from one text."""

import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from predicates.filters import Filters
from predicates.scheduler import Scheduler
from rescheduler.cli.scheduler_config import scheduling
from tests.conformance import ours
from tests.conformance.generate import cluster
from tests.conformance.generate.profiles import NAMES, configuration
from tests.conformance.generate.world import Json
from tests.conformance.oracle import Oracle, explain_request
from tests.conformance.scores import scored_cluster, with_known_owners
from tests.conformance.test_scores import known_owners, our_scores, scorable, their_scores
from tests.conformance.verdicts import accepted, differences, of_oracle

CLUSTERS = 60


def _with_schedulers(snapshot: Json, seed: int) -> Json:
    """Return *snapshot* with pods of several schedulers, one of which is not in the configuration."""
    rng = Random(f"schedulers/{seed}")
    for item in snapshot["items"]:
        if item["kind"] == "Pod" and rng.random() < 0.6:
            item["spec"]["schedulerName"] = rng.choice((*NAMES, "default-scheduler"))
    return snapshot


def _configuration_for(snapshot: Json, seed: int) -> Json:
    nodes = [item for item in snapshot["items"] if item["kind"] == "Node"]
    resources = sorted({name for node in nodes for name in node["status"].get("allocatable") or ()})
    zones = {(node["metadata"].get("labels") or {}).get("topology.kubernetes.io/zone") for node in nodes}
    return configuration(seed, resources, sorted(filter(None, zones)))


def _keep_known(snapshot: Json, config: Json) -> None:
    """Drop the pods of schedulers that are not in the configuration: the oracle does not judge them."""
    known = {None, "", *(profile["schedulerName"] for profile in config["profiles"])}
    items = snapshot["items"]
    items[:] = [item for item in items if item["kind"] != "Pod" or item["spec"].get("schedulerName") in known]


def our_scheduler(oracle: Oracle, config: Json, folder: Path) -> Scheduler:
    """Return the scheduler that our reader makes of the configuration."""
    file = folder / "scheduler.json"
    file.write_text(json.dumps(config))
    return scheduling(oracle.version.minor, file, ()).scheduler("")


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


@pytest.mark.parametrize("family", ["all", "plannable"])
def test_every_verdict_under_a_profile_is_that_of_the_scheduler(oracle: Oracle, family: str, tmp_path: Path) -> None:
    verdicts, rejected = 0, Counter[str]()
    for seed in range(CLUSTERS):
        given = _with_schedulers(with_known_owners(cluster(seed, family)), seed)
        config = _configuration_for(given, seed)
        _keep_known(given, config)
        theirs = of_oracle(oracle.ask(explain_request(given) | {"config": json.dumps(config)})["verdicts"])
        mine = ours.judge(given, our_scheduler(oracle, config, tmp_path))
        found = list(differences(theirs, mine, accepted(given)))
        assert not found, f"{family} seed {seed}: {found[0]}\n{json.dumps(config['profiles'])}"
        for nodes in theirs.values():
            verdicts += len(nodes)
            rejected.update(rejections[0].plugin for rejections in nodes.values() if rejections)
    assert verdicts > 10_000
    assert len(rejected) > 5


def test_every_score_under_a_profile_is_that_of_the_scheduler(oracle: Oracle, tmp_path: Path) -> None:
    """Weights, scoring strategies, preferred terms that are added, and soft default constraints."""
    compared = spread = 0
    for seed in range(CLUSTERS):
        given = _with_schedulers(scored_cluster(seed, "plannable"), seed)
        config = _configuration_for(given, seed)
        _keep_known(given, config)
        known, table = known_owners(given), ours.load(given, our_scheduler(oracle, config, tmp_path))
        filters = Filters(table)
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
