"""NodeVolumeLimits: a node attaches as many CSI volumes as its CSINode says (``nodevolumelimits/csi.go``).

The alpha gate VolumeLimitScaling is off: ``preventPodSchedulingIfMissing`` of a CSIDriver says nothing.
"""

from collections import Counter
from typing import Final, NamedTuple

import numpy as np

from predicates.csi_translation import CSIVolume, TranslationError, inline_volume, plugin_of
from predicates.framework import Codes, Plugin, Reasons, Refusal, Scope
from predicates.indexes.attachments import NAMELESS, Attachments, mounted, untranslatable, volume_of_claim
from predicates.indexes.csi_nodes import CSINodes
from predicates.nodes import Flags, Rows
from predicates.objects import Claim, PodClass
from predicates.snapshot import Snapshot
from predicates.storage import failed, find_claim, no_such_claim, not_owned

NAME: Final = "NodeVolumeLimits"
REASON: Final = "node(s) exceed max volume count"

#: Codes: the first three, and from there on what keeps the volumes of pods on the node from being told.
_EXCEEDED, _BROKEN, _BROKEN_WITHOUT_CSI, _SPOILED = 1, 2, 3, 4


class _Wanted(NamedTuple):
    """The volumes of the pod in question.

    Where they cannot be told, the texts why: on nodes with a CSINode, and on those without, where no in-tree
    volume counts.
    """

    volumes: tuple[CSIVolume, ...] = ()
    error: str | None = None
    error_without_csi: str | None = None


def _reads(pod: PodClass) -> PodClass | None:
    if pod.claims or any(plugin_of(one) for one in pod.disks):
        return pod
    return None


def _refuse(pod: PodClass, snapshot: Snapshot, rows: Rows) -> Refusal | None:
    wanted, nodes = _wanted(pod, snapshot), snapshot.index(CSINodes).sync()
    texts = {_EXCEEDED: REASON, _BROKEN: wanted.error or "", _BROKEN_WITHOUT_CSI: wanted.error_without_csi or ""}
    codes: Codes
    if wanted.error is not None or wanted.error_without_csi is not None:
        codes = np.where(
            nodes.present[rows],
            _BROKEN if wanted.error is not None else 0,
            _BROKEN_WITHOUT_CSI if wanted.error_without_csi is not None else 0,
        )
    elif wanted.volumes:
        attachments = snapshot.index(Attachments).sync()
        codes = _exceeded(wanted.volumes, nodes, attachments, rows).astype(np.int64)
        if attachments.spoiled:
            texts |= _spoil(codes, attachments, nodes.limited, rows)
    else:
        return None

    def reasons(code: int) -> Reasons:
        return (texts[code],)

    return Refusal(codes, reasons) if codes.any() else None


def _wanted(pod: PodClass, snapshot: Snapshot) -> _Wanted:
    volumes: dict[CSIVolume, None] = {}
    with_csi: str | None = None
    for claim, volume in mounted(pod):
        if claim is None:
            try:
                found = inline_volume(volume)
            except TranslationError as error:
                with_csi = with_csi or failed(NAME, untranslatable(volume, error))
                continue
        else:
            of = find_claim(snapshot, pod.namespace, claim.name)
            if (text := _trouble(pod.namespace, claim, found=of is not None)) is not None:
                return _Wanted((), with_csi or text, text)
            found = volume_of_claim(of, snapshot) if of is not None else None
        if found is not None:
            volumes[found] = None
    return _Wanted(tuple(volumes), with_csi)


def _trouble(namespace: str, claim: Claim, *, found: bool) -> str | None:
    """Why the claim of a pod that is made anew cannot be looked up; it never owns one that is there already."""
    if not claim.name:
        return failed(NAME, NAMELESS)
    if not found:
        return f"looking up PVC {namespace}/{claim.name}: {no_such_claim(claim.name)}"
    return failed(NAME, not_owned(namespace, claim)) if claim.ephemeral else None


def _exceeded(volumes: tuple[CSIVolume, ...], nodes: CSINodes, attachments: Attachments, rows: Rows) -> Flags:
    """Where a driver would get more volumes than it may; those that pods of the node use already come for free."""
    exceeded: Flags = np.zeros(len(nodes.present[rows]), np.bool_)
    for driver, number in Counter(one.driver for one in volumes).items():
        if (limits := nodes.limits.get(driver)) is None:
            continue
        limit, more = limits[rows], np.full(len(nodes.present), number)
        for one in volumes:
            if one.driver == driver and (there := attachments.pods.get(one)):
                more[list(there)] -= 1
        count, new = attachments.counts.get(driver), more[rows]
        # Subtracted, not added up: the limit of a driver without one is the largest number there is.
        exceeded |= (new > 0) & (new > (limit if count is None else limit - count[rows]))
    return exceeded


def _spoil(codes: Codes, attachments: Attachments, limited: Flags, rows: Rows) -> dict[int, str]:
    """Mark the nodes whose pods' volumes cannot be told; the scheduler gives up on those, if they have limits."""
    texts = sorted({next(iter(errors)) for errors in attachments.spoiled.values()})
    numbers = {text: number for number, text in enumerate(texts, _SPOILED)}
    spoiled: Codes = np.zeros(len(limited), np.int64)
    for row, errors in attachments.spoiled.items():
        if limited[row]:
            spoiled[row] = numbers[next(iter(errors))]
    np.copyto(codes, spoiled[rows], where=spoiled[rows] != 0)
    return {number: failed(NAME, text) for text, number in numbers.items()}


PLUGIN: Final = Plugin(NAME, Scope.PODS, _reads, _refuse)
