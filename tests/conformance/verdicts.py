"""Verdicts of both sides in one form, and their differences.

Three differences are accepted. DynamicResources may reject any pod that needs devices, because we accept such a pod
only if it is proved to fit. If NodeVolumeLimits fails because of the volumes of placed pods, it reports the pod that
the scheduler saw first, which a dump does not show. And if several CSI drivers are missing, it reports any of them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from predicates.kubelet import NAME as KUBELET
from tests.conformance.generate.world import Json

CLAIMS = "DynamicResources"
_ANY = ("(any reason)",)
_ANY_DRIVER = ("(any driver) CSI driver is not installed on the node",)
_IMPLICIT = "deviceclass.resource.kubernetes.io/"


class Rejection(NamedTuple):
    """A plugin and its reasons, sorted."""

    plugin: str
    reasons: tuple[str, ...]


#: By node: the rejections of the pod, in order.
PerNode: TypeAlias = Mapping[str, tuple[Rejection, ...]]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A pod and a node for which the results differ."""

    pod: str
    node: str
    scheduler: tuple[Rejection, ...]
    ours: tuple[Rejection, ...]

    def __str__(self) -> str:
        return f"{self.pod} on {self.node}:\n  scheduler: {_text(self.scheduler)}\n  ours:      {_text(self.ours)}"


def _text(rejections: Sequence[Rejection]) -> str:
    return ", ".join(f"{rejection.plugin} {list(rejection.reasons)}" for rejection in rejections) or "fits"


def of_oracle(verdicts: Iterable[Json]) -> dict[str, PerNode]:
    """Return the verdicts by pod from the oracle's response to ``explain`` with ``all``."""
    return {
        verdict["pod"]: {
            node: _rejections([*verdict["everywhere"], *filtered]) for node, filtered in verdict["nodes"].items()
        }
        for verdict in verdicts
    }


def _rejections(entries: Iterable[Json]) -> tuple[Rejection, ...]:
    return tuple(
        Rejection(entry["plugin"], _ANY if _failed_for_placed_pods(entry) else tuple(sorted(entry["reasons"] or ())))
        for entry in entries
    )


def _failed_for_placed_pods(entry: Json) -> bool:
    return bool(entry["plugin"] == "NodeVolumeLimits" and entry["code"] == "Error")


def of_lines(lines: Iterable[Json]) -> dict[str, PerNode]:
    """Return the verdicts by pod from the lines of ``rescheduler explain -o json``, without those of the kubelet."""
    return {
        line["pod"]: {
            **dict.fromkeys(line["feasible"], ()),
            **{
                node: tuple(
                    Rejection(entry["plugin"], tuple(sorted(entry["reasons"])))
                    for entry in entries
                    if entry["plugin"] != KUBELET
                )
                for node, entries in line["infeasible"].items()
            },
        }
        for line in lines
    }


class Accepted(NamedTuple):
    """The differences that are accepted for a snapshot."""

    claiming: frozenset[str] = frozenset()  #: pods that DynamicResources may reject
    any_driver: bool = False  #: more than one CSI driver can be required


def accepted(snapshot: Json) -> Accepted:
    """Return the accepted differences of *snapshot*."""
    drivers = (item for item in snapshot["items"] if item.get("kind") == "CSIDriver")
    required = [driver for driver in drivers if driver["spec"].get("preventPodSchedulingIfMissing")]
    return Accepted(_claiming(snapshot), len(required) > 1)


def _claiming(snapshot: Json) -> frozenset[str]:
    """Return the pods that need devices: by resource claims, or by a resource that a DeviceClass provides."""
    classes = [item for item in snapshot["items"] if item.get("kind") == "DeviceClass"]
    provided = {(item.get("spec") or {}).get("extendedResourceName") for item in classes}
    pods = (item for item in snapshot["items"] if item.get("kind") == "Pod")
    return frozenset(
        f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"
        for pod in pods
        if pod["spec"].get("resourceClaims")
        or any(name in provided or name.startswith(_IMPLICIT) for name in _requested(pod["spec"]))
    )


def _requested(spec: Json) -> Iterator[str]:
    yield from spec.get("overhead") or ()
    for part in (spec, *(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        yield from (part.get("resources") or {}).get("requests") or ()


def differences(
    scheduler: Mapping[str, PerNode],
    ours: Mapping[str, PerNode],
    accepted: Accepted = Accepted(),  # noqa: B008 - immutable
    only: str | None = None,
) -> Iterator[Disagreement]:
    """Yield the pods and nodes for which the results differ; *only* restricts the comparison to one plugin."""
    for pod, nodes in ours.items():
        for node, mine in nodes.items():
            expected = scheduler[pod][node]
            theirs, our = _of_plugin(expected, only), _of_plugin(mine, only)
            if accepted.any_driver:
                theirs, our = _without_driver(theirs), _without_driver(our)
            if not _equal(theirs, our, may_reject=pod in accepted.claiming):
                yield Disagreement(pod, node, expected, mine)


def _without_driver(rejections: tuple[Rejection, ...]) -> tuple[Rejection, ...]:
    suffix = _ANY_DRIVER[0].partition(")")[2]
    return tuple(
        Rejection(rejection.plugin, _ANY_DRIVER) if rejection.reasons[0].endswith(suffix) else rejection
        for rejection in rejections
    )


def _of_plugin(rejections: tuple[Rejection, ...], only: str | None) -> tuple[Rejection, ...]:
    if only is None:
        return rejections
    return tuple(rejection for rejection in rejections if rejection.plugin == only)


def _equal(expected: tuple[Rejection, ...], mine: tuple[Rejection, ...], *, may_reject: bool) -> bool:
    if may_reject:
        if _of_plugin(expected, CLAIMS) and not _of_plugin(mine, CLAIMS):
            return False
        expected = tuple(rejection for rejection in expected if rejection.plugin != CLAIMS)
        mine = tuple(rejection for rejection in mine if rejection.plugin != CLAIMS)
    return len(expected) == len(mine) and all(
        their.plugin == my.plugin and their.reasons in (_ANY, my.reasons)
        for their, my in zip(expected, mine, strict=True)
    )
