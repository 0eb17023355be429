"""Compares our verdicts with those of the scheduler on random clusters, and shrinks and saves the differences."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from predicates.scheduler import Scheduler
from tests.conformance import ours
from tests.conformance.generate import cluster
from tests.conformance.generate.world import Json
from tests.conformance.oracle import Oracle, OracleError, explain_request
from tests.conformance.shrink import shrink
from tests.conformance.verdicts import Disagreement, PerNode, accepted, differences, of_oracle

CASES = Path(__file__).parent / "cases"

#: Our side: returns the verdicts of a snapshot by pod, by the rules of a scheduler.
Evaluate: TypeAlias = Callable[[Json, Scheduler], Mapping[str, PerNode]]


@dataclass
class FamilyCounts:
    """The counts of one family."""

    clusters: int = 0
    verdicts: int = 0
    rejected: int = 0
    first: Counter[str] = field(default_factory=Counter)  #: rejections by the plugin that the scheduler reports
    disagreements: int = 0

    def add(self, verdicts: Mapping[str, PerNode], disagreements: int) -> None:
        """Add the verdicts of a cluster."""
        self.clusters += 1
        self.disagreements += disagreements
        for nodes in verdicts.values():
            for rejections in nodes.values():
                self.verdicts += 1
                self.rejected += bool(rejections)
                if rejections:
                    self.first[rejections[0].plugin] += 1


@dataclass(frozen=True, slots=True)
class Difference:
    """A cluster for which the results differ, or for which our side raised an exception."""

    family: str
    seed: int
    snapshot: Json
    disagreements: tuple[Disagreement, ...]
    raised: str = ""

    @property
    def kind(self) -> str:
        """The type of the exception, or the plugins that differ in the first disagreement."""
        return self.raised.partition(":")[0] or " ".join(sorted(_kind(self.disagreements[0])))

    def __str__(self) -> str:
        return f"{self.family} seed {self.seed}: {self.raised or self.disagreements[0]}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both sides of the comparison, and optionally the only plugin to compare."""

    oracle: Oracle
    evaluate: Evaluate = ours.judge
    only: str | None = None
    scale: int = 1  #: of the clusters

    def run(self, family: str, seed: int, tally: FamilyCounts) -> Difference | None:
        """Compare the results for the cluster of *seed*; return None if they agree."""
        snapshot = self.oracle.comparable(cluster(seed, family, self.scale))
        self.oracle.send(explain_request(snapshot))
        raised, mine = "", dict[str, PerNode]()
        try:
            mine = dict(self.evaluate(snapshot, self.oracle.scheduler))
        except Exception as error:  # noqa: BLE001 - any exception of our side is a difference
            raised = f"{type(error).__name__}: {error}"
        expected = of_oracle(self.oracle.receive()["verdicts"])
        disagreements = tuple(differences(expected, mine, accepted(snapshot), self.only))
        tally.add({pod: expected[pod] for pod in mine}, len(disagreements) or bool(raised))
        return Difference(family, seed, snapshot, disagreements, raised) if disagreements or raised else None

    def differ(self, snapshot: Json) -> tuple[Disagreement, ...]:
        """Return the disagreements about *snapshot*. Raises OracleError and any exception of our side."""
        expected = of_oracle(self.oracle.explain(snapshot))
        mine = self.evaluate(snapshot, self.oracle.scheduler)
        return tuple(differences(expected, mine, accepted(snapshot), self.only))

    def shrink(self, difference: Difference) -> Json:
        """Return a minimal snapshot that still differs in the same plugins, or raises the same type of exception."""

        def reproduces(snapshot: Json) -> bool:
            try:
                disagreements = self.differ(snapshot)
            except OracleError:
                return False
            except Exception as error:  # noqa: BLE001 - any exception of our side is a difference
                return bool(difference.raised) and difference.raised.startswith(type(error).__name__)
            return not difference.raised and bool(kinds & set(map(_kind, disagreements)))

        kinds = set(map(_kind, difference.disagreements[:1]))
        return shrink(difference.snapshot, reproduces)


def _kind(disagreement: Disagreement) -> frozenset[str]:
    """Return the plugins that only one side reports, or that have different reasons."""
    rejections = set(disagreement.scheduler) ^ set(disagreement.ours)
    return frozenset(rejection.plugin for rejection in rejections) or frozenset({"order"})


def keep(snapshot: Json, about: str, folder: Path = CASES) -> Path:
    """Save *snapshot* as a test case, named by the digest of its content, and return the path."""
    folder.mkdir(exist_ok=True)
    content = json.dumps({"about": about, "snapshot": snapshot}, indent=1, sort_keys=True) + "\n"
    digest = hashlib.sha256(json.dumps(snapshot, sort_keys=True).encode()).hexdigest()[:12]
    path = folder / f"{digest}.json"
    path.write_text(content)
    return path


def cases() -> Iterator[tuple[str, Json]]:
    """Yield the saved test cases: name and snapshot."""
    for path in sorted(CASES.glob("*.json")):
        yield path.stem, json.loads(path.read_text())["snapshot"]
