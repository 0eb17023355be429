"""kwok's simulation of pods, and the annotations that change it for a pod.

It is based on kwok's fast stages: a pod is Ready as soon as it is bound, the pods of a Job succeed immediately, and a
deleted pod disappears immediately. Annotations on a pod, or on a controller's pod template, change that:

- START_AFTER: a Go duration until the pod is Ready, or `never`
- COMPLETE_AFTER: a Go duration until a pod of a Job succeeds, or `never`
- TERMINATE_AFTER: a Go duration until a deleted pod disappears, `never`, or `grace` for the pod's grace period
- READY_ON: a prefix of node names; on other nodes the pod never becomes Ready
- REFUSED_ON: a prefix of node names; the kubelets of these nodes do not admit the pod, which fails

A pod with readiness gates becomes Ready when somebody has set the conditions that they name, as with a real kubelet.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

START_AFTER = "local.spot-rescheduler/start-after"
COMPLETE_AFTER = "local.spot-rescheduler/complete-after"
TERMINATE_AFTER = "local.spot-rescheduler/terminate-after"
READY_ON = "local.spot-rescheduler/ready-on"
REFUSED_ON = "local.spot-rescheduler/refused-on"
NEVER = "never"
GRACE = "grace"

#: Well below the controller manager's grace period of 600 s. kwok's default of 20 s would cost too much CPU time with
#: thousands of nodes.
HEARTBEAT_SECONDS = (120, 240)

#: kwok's pod stages, and the annotation that delays each stage.
_DELAYED_BY = {"pod-ready": START_AFTER, "pod-complete": COMPLETE_AFTER, "pod-delete": TERMINATE_AFTER}

#: The key is a jq expression on the pod, like all keys of kwok's selectors.
_ON_ITS_NODE = {
    "key": f'(.metadata.annotations["{READY_ON}"] // "") as $node'
    ' | if .spec.nodeName // "" | startswith($node) then "yes" else "no" end',
    "operator": "In",
    "values": ["yes"],
}

_REFUSED = {
    "key": f'.metadata.annotations["{REFUSED_ON}"] as $node'
    ' | if $node != null and (.spec.nodeName // "" | startswith($node)) then "yes" else "no" end',
    "operator": "In",
    "values": ["yes"],
}

#: What a kubelet writes about a pod that it does not admit (``rejectPod`` in ``pkg/kubelet/kubelet.go``).
_REFUSES = {
    "apiVersion": "kwok.x-k8s.io/v1alpha1",
    "kind": "Stage",
    "metadata": {"name": "pod-refused"},
    "spec": {
        "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
        "selector": {
            "matchExpressions": [
                {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
                {"key": ".status.phase", "operator": "In", "values": ["Pending"]},
                _REFUSED,
            ]
        },
        "next": {
            "statusTemplate": "phase: Failed\nreason: SysctlForbidden\n"
            "message: 'Pod was rejected: forbidden sysctl: net.core.somaxconn'\n"
        },
    },
}


#: The Ready condition of kwok's stage "pod-ready", and the conditions of readiness gates, which a kubelet never sets.
_READY = '  status: "True"\n  type: Ready\n'
_GATES = """{{ range .spec.readinessGates }}
- lastTransitionTime: {{ $now | Quote }}
  status: "True"
  type: {{ .conditionType | Quote }}
{{ end }}
"""
_READY_WITHOUT_GATES = _READY.replace('"True"', '"{{ if .spec.readinessGates }}False{{ else }}True{{ end }}"')

#: A running pod becomes Ready when the conditions of all readiness gates are true.
_GATES_OPEN = {
    "apiVersion": "kwok.x-k8s.io/v1alpha1",
    "kind": "Stage",
    "metadata": {"name": "pod-gates-open"},
    "spec": {
        "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
        "selector": {
            "matchExpressions": [
                {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
                {"key": ".status.phase", "operator": "In", "values": ["Running"]},
                {
                    "key": '[.status.conditions[]? | select(.status == "True") | .type] as $true'
                    " | [.spec.readinessGates[]?.conditionType] as $gates"
                    ' | if ($gates | length) > 0 and ($gates - $true) == [] and (["Ready"] - $true) != []'
                    ' then "yes" else "no" end',
                    "operator": "In",
                    "values": ["yes"],
                },
            ]
        },
        "next": {
            "statusTemplate": '{{ $now := Now }}\nconditions:\n- type: Ready\n  status: "True"\n'
            "  lastTransitionTime: {{ $now | Quote }}\n"
        },
    },
}


def write(upstream: Iterable[Path], into: Path) -> list[Path]:
    """Write the *upstream* stages, extended by the annotations, to the folder *into*, and return the files."""
    into.mkdir(parents=True, exist_ok=True)
    written = []
    for source in upstream:
        stage = yaml.safe_load(source.read_text())
        name, spec = stage["metadata"]["name"], stage["spec"]
        if name in _DELAYED_BY:
            _delay(spec, _DELAYED_BY[name])
            if name == "pod-ready":
                spec["selector"]["matchExpressions"] += [_ON_ITS_NODE, {**_REFUSED, "operator": "NotIn"}]
                spec["next"]["statusTemplate"] = _gated(spec["next"]["statusTemplate"])
        elif name == "node-heartbeat":
            earliest, latest = (seconds * 1000 for seconds in HEARTBEAT_SECONDS)
            spec["delay"] = {"durationMilliseconds": earliest, "jitterDurationMilliseconds": latest}
        target = into / source.name
        target.write_text(yaml.safe_dump(stage))
        written.append(target)
    for name, added in (("pod-gates-open", _GATES_OPEN), ("pod-refused", _REFUSES)):
        target = into / f"{name}.yaml"
        target.write_text(yaml.safe_dump(added))
        written.append(target)
    return written


def _gated(template: str) -> str:
    assert _READY in template
    assert _GATES in template
    return template.replace(_READY, _READY_WITHOUT_GATES).replace(_GATES, "")


def _delay(spec: dict[str, Any], annotation: str) -> None:
    """Delay the stage by *annotation*: the jq expression returns a duration or a point in time."""
    value = f'.metadata.annotations["{annotation}"]'
    spec["selector"]["matchExpressions"].append({"key": value, "operator": "NotIn", "values": [NEVER]})
    # the deletion timestamp is the time of the request plus the grace period
    expression = f'if {value} == "{GRACE}" then .metadata.deletionTimestamp else {value} end'
    spec["delay"] = {"durationMilliseconds": 0, "durationFrom": {"jq": {"expression": expression}}}
