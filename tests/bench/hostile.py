"""``plan`` on a cluster in which tenants wrote hostile texts, beside the same cluster without them.

In one comparison, short texts take their place that are as invalid as the hostile ones, so both plans are the same: the
difference is what the length of the texts costs. The other one is with the cluster that nobody has written to: the
plans differ, because pods with unreadable owners or unknown schedulers keep their nodes.
"""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.bench.big import big
from tests.bench.planning import process
from tests.bench.result import Result

#: One pod in so many has hostile texts in all fields that the API server does not check.
EVERY: Final = 100
#: So many pods have the longest annotations that the API server accepts (256 KiB together).
LONGEST: Final = 20
ROUNDS: Final = 3

COLORED: Final = "\x1b[31m\u202e" + "9" * 2_000
DURATION: Final = "1h" * 120_000
SHORT: Final = "\x1b"

#: Annotations that rules read.
READ: Final = (
    "karpenter.sh/do-not-disrupt",
    "karpenter.sh/do-not-evict",
    "spot-rescheduler/do-not-evict",
    "spot-rescheduler/surge",
    "spot-rescheduler/max-share-per-spot-pool",
    "spot-rescheduler/min-on-demand-replicas",
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
    "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes",
    "scheduling.k8s.io/group-name",
    "gang.scheduling.koordinator.sh/min-available",
)


def run() -> Iterator[Result]:
    """Yield the ratios of the shortest of several runs of the whole process, in turns."""
    with TemporaryDirectory() as folder:
        plain, short, hostile = (Path(folder) / f"{name}.json" for name in ("plain", "short", "hostile"))
        big(plain, on_demand=400, spot=600)
        cluster = plain.read_text()
        plain.write_text(json.dumps(json.loads(cluster)))  # all in the same format
        short.write_text(json.dumps(changed(json.loads(cluster), SHORT, SHORT, SHORT)))
        hostile.write_text(json.dumps(changed(json.loads(cluster))))
        runs = [[process(path)[0] for path in (plain, short, hostile)] for _ in range(ROUNDS)]
        without, with_short, with_hostile = (min(seconds) for seconds in zip(*runs, strict=True))
    what = "plan, 400 + 600 nodes, 30,000 pods, hostile texts in every free field"
    for beside, seconds in {"beside short ones": with_short, "beside none": without}.items():
        ratio, each = with_hostile / seconds, f"{with_hostile:.2f} s"
        yield Result(f"{what} {beside}: whole process", each, f"{seconds:.2f} s", ratio, "× as long", 1.2, 1.05)


def changed(cluster: Any, text: str = COLORED, owner_text: str = COLORED * 60, duration: str = DURATION) -> Any:
    """Return *cluster* with the texts in its pods."""
    numbers = count()
    for item in cluster["items"]:
        if item["kind"] == "Pod" and "ownerReferences" in item["metadata"]:
            number = next(numbers)
            annotations = item["metadata"].setdefault("annotations", {})
            if number < LONGEST:
                annotations["karpenter.sh/do-not-disrupt"] = duration
            elif not number % EVERY:
                annotations |= dict.fromkeys((*READ, text), text)
                owner = item["metadata"]["ownerReferences"][0]
                owner[("kind", "name", "uid", "apiVersion")[number // EVERY % 4]] = owner_text
                item["spec"]["schedulerName"] = text
    return cluster
