"""Random clusters before both sides, verdict by verdict; what differs is made small and kept."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tests.conformance import ours
from tests.conformance.generate import cluster
from tests.conformance.generate.world import Json
from tests.conformance.oracle import Oracle, OracleError, explain_request
from tests.conformance.shrink import shrink
from tests.conformance.verdicts import Disagreement, PerNode, claiming, differences, of_oracle

CASES = Path(__file__).parent / "cases"

#: Our side: from a snapshot, by pod, the verdicts on nodes.
Judge: TypeAlias = Callable[[Json], Mapping[str, PerNode]]


@dataclass
class Tally:
    """What was counted in one family."""

    clusters: int = 0
    verdicts: int = 0
    refused: int = 0
    first: Counter[str] = field(default_factory=Counter)  #: refusals by the plugin that the scheduler names
    disagreements: int = 0

    def add(self, verdicts: Mapping[str, PerNode], found: int) -> None:
        self.clusters += 1
        self.disagreements += found
        for nodes in verdicts.values():
            for refusals in nodes.values():
                self.verdicts += 1
                self.refused += bool(refusals)
                if refusals:
                    self.first[refusals[0].plugin] += 1


@dataclass(frozen=True, slots=True)
class Found:
    """A cluster on which the two sides differ: how, or what our side raised in place of an answer."""

    family: str
    seed: int
    snapshot: Json
    disagreements: tuple[Disagreement, ...]
    raised: str = ""

    @property
    def kind(self) -> str:
        """What the first difference is about: the error's name, or the plugins on which the sides differ."""
        return self.raised.partition(":")[0] or " ".join(sorted(_kind(self.disagreements[0])))

    def __str__(self) -> str:
        return f"{self.family} seed {self.seed}: {self.raised or self.disagreements[0]}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both sides, and what of their answers is compared."""

    oracle: Oracle
    judge: Judge = ours.judge
    only: str | None = None

    def run(self, family: str, seed: int, tally: Tally) -> Found | None:
        """The cluster of *seed* before both sides."""
        snapshot = cluster(seed, family)
        self.oracle.send(explain_request(snapshot))
        raised, mine = "", dict[str, PerNode]()
        try:
            mine = dict(self.judge(snapshot))
        except Exception as error:  # noqa: BLE001 - whatever our side raises is a finding
            raised = f"{type(error).__name__}: {error}"
        theirs = of_oracle(self.oracle.receive()["verdicts"])
        found = tuple(differences(theirs, mine, claiming(snapshot), self.only))
        tally.add({pod: theirs[pod] for pod in mine}, len(found) or bool(raised))
        return Found(family, seed, snapshot, found, raised) if found or raised else None

    def differ(self, snapshot: Json) -> tuple[Disagreement, ...]:
        """How the two sides differ on *snapshot*. Raises OracleError, and what our side raises."""
        theirs = of_oracle(self.oracle.explain(snapshot))
        return tuple(differences(theirs, self.judge(snapshot), claiming(snapshot), self.only))

    def small(self, found: Found) -> Json:
        """The smallest snapshot that still differs in the same plugins, or raises the same kind of error."""

        def shows(snapshot: Json) -> bool:
            try:
                differing = self.differ(snapshot)
            except OracleError:
                return False
            except Exception as error:  # noqa: BLE001 - whatever our side raises is a finding
                return bool(found.raised) and found.raised.startswith(type(error).__name__)
            return not found.raised and bool(kinds & {_kind(one) for one in differing})

        kinds = {_kind(one) for one in found.disagreements[:1]}
        return shrink(found.snapshot, shows)


def _kind(one: Disagreement) -> frozenset[str]:
    """The plugins that only one side names, or that give other reasons."""
    named = set(one.scheduler) ^ set(one.ours)
    return frozenset(refusal.plugin for refusal in named) or frozenset({"order"})


def keep(snapshot: Json, about: str, folder: Path = CASES) -> Path:
    """Write *snapshot* as a case that the tests run for ever; its name is its content's digest."""
    folder.mkdir(exist_ok=True)
    content = json.dumps({"about": about, "snapshot": snapshot}, indent=1, sort_keys=True) + "\n"
    digest = hashlib.sha256(json.dumps(snapshot, sort_keys=True).encode()).hexdigest()[:12]
    path = folder / f"{digest}.json"
    path.write_text(content)
    return path


def cases() -> Iterator[tuple[str, Json]]:
    """The kept cases: name and snapshot."""
    for path in sorted(CASES.glob("*.json")):
        yield path.stem, json.loads(path.read_text())["snapshot"]
