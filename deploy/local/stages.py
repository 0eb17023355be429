"""What kwok does with pods, and how a single pod asks for something else.

The base is kwok's fast stages: a pod is Ready as soon as it is bound, a Job's pod succeeds at once, a deleted
pod is gone at once. Annotations on a pod (on the pod template, where a controller makes it) change that, so
that one control plane serves quick and slow pods side by side:

- START_AFTER: a Go duration until the pod is Ready, or `never`
- COMPLETE_AFTER: the same for the success of a Job's pod
- TERMINATE_AFTER: the same for the end of a deleted pod; `grace` takes the pod's whole grace period
- READY_ON: how a node's name begins; on other nodes the pod never becomes Ready
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

START_AFTER = "local.spot-rescheduler/start-after"
COMPLETE_AFTER = "local.spot-rescheduler/complete-after"
TERMINATE_AFTER = "local.spot-rescheduler/terminate-after"
READY_ON = "local.spot-rescheduler/ready-on"
NEVER = "never"
GRACE = "grace"

#: a heartbeat is due well within the controller manager's grace period of 600 s; kwok's own 20 s would keep a
#: machine busy that plays thousands of nodes
HEARTBEAT_SECONDS = (120, 240)

#: kwok's pod stages, and the annotation that delays each
_DELAYED_BY = {"pod-ready": START_AFTER, "pod-complete": COMPLETE_AFTER, "pod-delete": TERMINATE_AFTER}

#: a jq expression over the pod, as every key of kwok's selectors
_ON_ITS_NODE = {
    "key": f'(.metadata.annotations["{READY_ON}"] // "") as $node'
    ' | if .spec.nodeName // "" | startswith($node) then "yes" else "no" end',
    "operator": "In",
    "values": ["yes"],
}


def write(upstream: Iterable[Path], into: Path) -> list[Path]:
    """The stages of *upstream* with the annotations built in, as files in *into*."""
    into.mkdir(parents=True, exist_ok=True)
    written = []
    for source in upstream:
        stage = yaml.safe_load(source.read_text())
        name, spec = stage["metadata"]["name"], stage["spec"]
        if name in _DELAYED_BY:
            _delay(spec, _DELAYED_BY[name])
            if name == "pod-ready":
                spec["selector"]["matchExpressions"].append(_ON_ITS_NODE)
        elif name == "node-heartbeat":
            earliest, latest = (seconds * 1000 for seconds in HEARTBEAT_SECONDS)
            spec["delay"] = {"durationMilliseconds": earliest, "jitterDurationMilliseconds": latest}
        target = into / source.name
        target.write_text(yaml.safe_dump(stage))
        written.append(target)
    return written


def _delay(spec: dict[str, Any], annotation: str) -> None:
    """Let *annotation* delay the stage: kwok takes a duration, or a time to wait for, from a jq expression."""
    value = f'.metadata.annotations["{annotation}"]'
    spec["selector"]["matchExpressions"].append({"key": value, "operator": "NotIn", "values": [NEVER]})
    # a deletion timestamp lies the grace period ahead of the deletion
    expression = f'if {value} == "{GRACE}" then .metadata.deletionTimestamp else {value} end'
    spec["delay"] = {"durationMilliseconds": 0, "durationFrom": {"jq": {"expression": expression}}}
