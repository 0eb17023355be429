"""``python -m tests.cluster.predictions``: predict the replacements of random workloads, and compare what is created.

Each run creates workloads of all kinds, changes some of them while their pods run, predicts the class of each
replacement pod (from templates, and with dry runs), deletes all pods, and compares.
"""

import json
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import click

from devcluster import build, cleaning, manifests
from devcluster.api import Json
from devcluster.errors import ApiError
from devcluster.manifests import namespace, spot
from devcluster.plane import ControlPlane
from devcluster.signals import exit_on_sigterm
from rescheduler.clock import SystemClock
from tests.cluster.observer import Observer
from tests.cluster.predicted_workloads import (
    EARLIER,
    LIMITED,
    POLICIES,
    RECOMMENDED,
    VPA,
    Sample,
    recommending,
    samples,
    surroundings,
)
from tests.cluster.test_prediction import (
    BINDINGS,
    STRATEGIC,
    all_running,
    essence,
    mutations,
    predicted,
    read,
    replace_all,
    tried,
    workload_of,
)
from tests.cluster.test_prediction import POLICIES as MUTATING

_PER_NODE: Final = 100  #: pods
_SECONDS: Final = 300.0


@dataclass(slots=True)
class Figures:
    """The results of some runs."""

    pods: int = 0
    derived: int = 0  #: predicted right from templates
    tried: int = 0  #: predicted right with dry runs
    wrong: Counter[str] = field(default_factory=Counter)  #: kinds of the others
    details: list[Json] = field(default_factory=list)

    @property
    def text(self) -> str:
        share = [100 * right / max(1, self.pods) for right in (self.derived, self.tried)]
        return (
            f"{self.pods} replacements: {self.derived} predicted from templates ({share[0]:.2f} %), "
            f"{self.tried} with dry runs ({share[1]:.2f} %)"
        )


def run(cluster: ControlPlane, seed: int, count: int, figures: Figures) -> None:
    """Predict and compare the replacements of *count* workloads on the empty *cluster*."""
    observer, workloads = Observer(cluster), samples(seed, count)
    total = sum(sample.pods for sample in workloads)
    nodes = [spot(f"spot-{number}") for number in range(1 + total // _PER_NODE)]
    try:
        cluster.apply([*nodes, namespace(LIMITED), *surroundings()])
        observer.open_all()
        _log("nodes and policies were created")
        cluster.wait_for(lambda: _cpu_of(cluster, "vpa") == [EARLIER], "the effect of the policies")
        cluster.wait_for(lambda: len(_cpu_of(cluster, "mesh")) > 1, "the effect of the policies")
        cluster.wait_for(lambda: _served(cluster), "the VerticalPodAutoscalers")
        _log("the policies have their effect")
        cluster.apply([sample.manifest for sample in workloads])
        observer.eventually(lambda: len(all_running(observer)) == total, f"{total} pods run", _SECONDS)
        _log(f"{total} pods run")
        _change(cluster, observer, workloads)
        _log("workloads were changed")
        before = read(cluster.kubeconfig)
        derived = predicted(before)
        with_dry_runs = predicted(tried(cluster.kubeconfig, before))
        _log("replacements were predicted")
        replace_all(cluster, observer, _SECONDS)
        created = {workload_of(pod): essence(pod.cls) for pod in read(cluster.kubeconfig).pods.values()}
    finally:
        _remove_surroundings(cluster)
    kinds = {sample.manifest["metadata"]["name"]: sample.kind for sample in workloads}
    for name, actual in created.items():
        figures.pods += 1
        figures.derived += derived.get(name) == actual
        figures.tried += with_dry_runs.get(name) == actual
        for how, guess in (("template", derived.get(name)), ("dry run", with_dry_runs.get(name))):
            if guess != actual:
                kind = kinds[name.partition(" ")[0]]
                figures.wrong[f"{kind} ({how})"] += 1
                figures.details.append(
                    {"seed": seed, "pod": name, "kind": kind, "how": how, **_differences(guess, actual)}
                )


def _log(text: str) -> None:
    click.echo(f"{SystemClock().now():%H:%M:%S} {text}", err=True)


def _differences(guess: dict[str, Any] | None, actual: dict[str, Any]) -> Json:
    return {
        key: [str((guess or {}).get(key)), str(actual[key])] for key in actual if (guess or {}).get(key) != actual[key]
    }


def _change(cluster: ControlPlane, observer: Observer, workloads: list[Sample]) -> None:
    for sample in workloads:
        path = cluster.api.path(sample.manifest)
        if sample.change:
            cluster.api.patch(path, sample.change)
        app = sample.manifest["metadata"]["name"]
        if sample.resize is not None or sample.ephemeral:
            for pod in observer.pods(app):
                _edit(cluster, pod, sample)
    cluster.apply([item for sample in workloads for item in sample.also])
    cluster.api.patch(f"{MUTATING}/vpa", {"spec": {"mutations": mutations(recommending(RECOMMENDED))}})
    cluster.wait_for(lambda: _cpu_of(cluster, "vpa") == [RECOMMENDED], "the effect of the new recommendation")
    stateful = [cluster.api.path(sample.manifest) for sample in workloads if sample.manifest["kind"] == "StatefulSet"]
    cluster.wait_for(lambda: all(_observed(cluster.api.get(path)) for path in stateful), "the new revisions")


def _edit(cluster: ControlPlane, pod: Json, sample: Sample) -> None:
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
    if sample.ephemeral:
        debugger = {"name": "debugger", "image": "busybox", "targetContainerName": "main"}
        cluster.api.patch(f"{path}/ephemeralcontainers", {"spec": {"ephemeralContainers": [debugger]}}, STRATEGIC)
    if sample.resize is not None:
        reported = [{"name": container["name"], "resources": {}} for container in pod["spec"]["containers"]]
        cluster.api.patch(f"{path}/status", {"status": {"containerStatuses": reported}}, STRATEGIC)  # as a kubelet does
        main = {"name": "main", "resources": sample.resize}
        cluster.api.patch(f"{path}/resize", {"spec": {"containers": [main]}}, STRATEGIC)


def _observed(workload: Json) -> bool:
    return bool(workload["status"].get("observedGeneration") == workload["metadata"]["generation"])


def _cpu_of(cluster: ControlPlane, label: str) -> list[str]:
    """Return the CPU requests that a new pod with *label* would have, by container."""
    probe = manifests.pod("probe", labels={label: "on"}, annotations={"team": "a"})
    created = cluster.api.post("/api/v1/namespaces/default/pods", probe, dryRun="All")
    return [container["resources"]["requests"]["cpu"] for container in created["spec"]["containers"]]


def _served(cluster: ControlPlane) -> bool:
    try:
        return cluster.api.items(f"/apis/{VPA.group}/{VPA.version}/{VPA.plural}") == []
    except ApiError:
        return False


def _remove_surroundings(cluster: ControlPlane) -> None:
    for name in POLICIES:
        for path in (BINDINGS, MUTATING):
            cluster.api.delete(f"{path}/{name}")
    cluster.api.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{VPA.plural}.{VPA.group}")
    cluster.api.delete("/apis/node.k8s.io/v1/runtimeclasses/kata")


@click.command()
@click.option("--workloads", default=96, show_default=True, help="Number of workloads in each run.")
@click.option("--runs", default=10, show_default=True)
@click.option("--seed", default=1, show_default=True, help="The first seed; each run has its own.")
def main(workloads: int, runs: int, seed: int) -> None:
    """Predict the replacements of random workloads, and compare them with the pods that are created."""
    exit_on_sigterm()
    build.binaries()
    figures, shown = Figures(), 0
    with ControlPlane() as cluster:
        for number in range(seed, seed + runs):
            run(cluster, number, workloads, figures)
            for detail in figures.details[shown:]:
                click.echo(json.dumps(detail))
            shown = len(figures.details)
            click.echo(f"seed {number}: {figures.text}")
            cleaning.empty(cluster)
    for kind, wrong in figures.wrong.most_common():
        click.echo(f"{wrong:6} wrong: {kind}")
    click.echo(figures.text)
    sys.exit(figures.tried < 0.999 * figures.pods or figures.derived < 0.995 * figures.pods)


if __name__ == "__main__":
    main()
