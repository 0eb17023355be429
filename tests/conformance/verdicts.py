"""Verdicts of both sides in one form, and where they differ.

Two things are not held against us. A pod that needs devices may always be refused by DynamicResources: we call such
a pod movable only where we can prove it. And where NodeVolumeLimits fails over pods of the node whose volumes it
cannot make out, it names the one that came to the scheduler's knowledge first, which no dump tells.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from tests.conformance.generate.world import Json

CLAIMS = "DynamicResources"
_ANY = ("(any words)",)
_IMPLICIT = "deviceclass.resource.kubernetes.io/"


class Refusal(NamedTuple):
    """A plugin and its reasons, sorted."""

    plugin: str
    reasons: tuple[str, ...]


#: By node: who refuses the pod there, in order.
PerNode: TypeAlias = Mapping[str, tuple[Refusal, ...]]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One pod on one node, judged differently."""

    pod: str
    node: str
    scheduler: tuple[Refusal, ...]
    ours: tuple[Refusal, ...]

    def __str__(self) -> str:
        return f"{self.pod} on {self.node}:\n  scheduler: {_words(self.scheduler)}\n  ours:      {_words(self.ours)}"


def _words(refusals: Sequence[Refusal]) -> str:
    return ", ".join(f"{one.plugin} {list(one.reasons)}" for one in refusals) or "fits"


def of_oracle(verdicts: Iterable[Json]) -> dict[str, PerNode]:
    """By pod, the oracle's answer to ``explain`` with ``all``."""
    return {
        one["pod"]: {node: _refusals([*one["everywhere"], *late]) for node, late in one["nodes"].items()}
        for one in verdicts
    }


def _refusals(entries: Iterable[Json]) -> tuple[Refusal, ...]:
    return tuple(
        Refusal(one["plugin"], _ANY if _failed_over_pods(one) else tuple(sorted(one["reasons"] or ())))
        for one in entries
    )


def _failed_over_pods(entry: Json) -> bool:
    return bool(entry["plugin"] == "NodeVolumeLimits" and entry["code"] == "Error")


def of_lines(lines: Iterable[Json]) -> dict[str, PerNode]:
    """By pod, the lines of ``rescheduler explain -o json``."""
    return {
        one["pod"]: {
            **dict.fromkeys(one["feasible"], ()),
            **{
                node: tuple(Refusal(entry["plugin"], tuple(sorted(entry["reasons"]))) for entry in entries)
                for node, entries in one["infeasible"].items()
            },
        }
        for one in lines
    }


def claiming(snapshot: Json) -> frozenset[str]:
    """The pods that need devices: by resource claims, or by a resource behind which a DeviceClass stands."""
    classes = [one for one in snapshot["items"] if one.get("kind") == "DeviceClass"]
    backed = {(one.get("spec") or {}).get("extendedResourceName") for one in classes}
    pods = (one for one in snapshot["items"] if one.get("kind") == "Pod")
    return frozenset(
        f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"
        for pod in pods
        if pod["spec"].get("resourceClaims")
        or any(name in backed or name.startswith(_IMPLICIT) for name in _requested(pod["spec"]))
    )


def _requested(spec: Json) -> Iterator[str]:
    yield from spec.get("overhead") or ()
    for one in (spec, *(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        yield from (one.get("resources") or {}).get("requests") or ()


def differences(
    scheduler: Mapping[str, PerNode],
    ours: Mapping[str, PerNode],
    claiming: frozenset[str] = frozenset(),
    only: str | None = None,
) -> Iterator[Disagreement]:
    """Every pair that both sides were asked about and judge differently; *only* looks at one plugin's word."""
    for pod, nodes in ours.items():
        for node, mine in nodes.items():
            theirs = scheduler[pod][node]
            if not _alike(_about(theirs, only), _about(mine, only), may_refuse=pod in claiming):
                yield Disagreement(pod, node, theirs, mine)


def _about(refusals: tuple[Refusal, ...], only: str | None) -> tuple[Refusal, ...]:
    return refusals if only is None else tuple(one for one in refusals if one.plugin == only)


def _alike(theirs: tuple[Refusal, ...], mine: tuple[Refusal, ...], *, may_refuse: bool) -> bool:
    if may_refuse:
        if any(one.plugin == CLAIMS for one in theirs) > any(one.plugin == CLAIMS for one in mine):
            return False
        theirs = tuple(one for one in theirs if one.plugin != CLAIMS)
        mine = tuple(one for one in mine if one.plugin != CLAIMS)
    return len(theirs) == len(mine) and all(
        their.plugin == my.plugin and their.reasons in (_ANY, my.reasons)
        for their, my in zip(theirs, mine, strict=True)
    )
