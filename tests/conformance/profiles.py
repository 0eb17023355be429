"""Comparison of verdicts under random configurations of the scheduler, which both sides read from one text."""

import json
from pathlib import Path
from random import Random

from predicates.scheduler import Scheduler
from rescheduler.cli.options import scheduling
from tests.conformance import ours
from tests.conformance.compare import FamilyCounts
from tests.conformance.generate import cluster
from tests.conformance.generate.profiles import NAMES, configuration
from tests.conformance.generate.world import Json
from tests.conformance.oracle import Oracle, explain_request
from tests.conformance.scores import with_known_owners
from tests.conformance.verdicts import Disagreement, accepted, differences, of_oracle


def with_schedulers(snapshot: Json, seed: int) -> Json:
    """Return *snapshot* with pods of several schedulers, one of which is not in the configuration."""
    rng = Random(f"schedulers/{seed}")
    for item in snapshot["items"]:
        if item["kind"] == "Pod" and rng.random() < 0.6:
            item["spec"]["schedulerName"] = rng.choice((*NAMES, "default-scheduler"))
    return snapshot


def configuration_for(snapshot: Json, seed: int) -> Json:
    nodes = [item for item in snapshot["items"] if item["kind"] == "Node"]
    resources = sorted({name for node in nodes for name in node["status"].get("allocatable") or ()})
    zones = {(node["metadata"].get("labels") or {}).get("topology.kubernetes.io/zone") for node in nodes}
    return configuration(seed, resources, sorted(filter(None, zones)))


def keep_known(snapshot: Json, config: Json) -> None:
    """Drop the pods of schedulers that are not in the configuration: the oracle does not judge them."""
    known = {None, "", *(profile["schedulerName"] for profile in config["profiles"])}
    items = snapshot["items"]
    items[:] = [item for item in items if item["kind"] != "Pod" or item["spec"].get("schedulerName") in known]


def our_scheduler(oracle: Oracle, config: Json, folder: Path) -> Scheduler:
    """Return the scheduler that our reader makes of the configuration."""
    file = folder / "scheduler.json"
    file.write_text(json.dumps(config))
    return scheduling(oracle.version.minor, file, ()).scheduler("")


def compare(oracle: Oracle, family: str, seed: int, folder: Path, tally: FamilyCounts) -> list[Disagreement]:
    """Return the differences for the cluster and the configuration of *seed*. *folder* is for the file."""
    given = oracle.comparable(with_schedulers(with_known_owners(cluster(seed, family)), seed))
    config = configuration_for(given, seed)
    keep_known(given, config)
    theirs = of_oracle(oracle.ask(explain_request(given) | {"config": json.dumps(config)})["verdicts"])
    mine = ours.judge(given, our_scheduler(oracle, config, folder))
    found = list(differences(theirs, mine, accepted(given)))
    tally.add(theirs, len(found))
    return found
