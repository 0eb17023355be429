"""``rescheduler install``: print the manifests of the daemon, for ``kubectl apply``."""

import copy
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from rescheduler.cli.console import warn
from rescheduler.cli.go_flags import Bool, GoCommand, Option
from rescheduler.cli.options import NAME
from rescheduler.cli.policy_options import NODE_LABELS, check_labels
from rescheduler.cli.run import check
from rescheduler.cli.run import command as run
from rescheduler.errors import UsageError
from rescheduler.planning.backends import FITTING_BACKENDS
from rescheduler.planning.node_labels import PRESETS, NodeLabels

#: The objects of deploy/base and its namespace, which `python -m deploy.release.derived` writes.
MANIFESTS: Final = Path(__file__).with_name("manifests.yaml")

#: By cloud provider: the objects that its component in deploy/components adds to them, likewise.
RIGHTS: Final = {name: Path(__file__).with_name(f"{name}.yaml") for name in ("karpenter", "clusterapi", "aws")}

#: The namespace in :data:`MANIFESTS`.
_NAMESPACE: Final = "spot-rescheduler"

_LABELS: Final = ("--on-demand-node-label", "--spot-node-label")

#: The preset whose clusters give each namespace its own range of users (restricted-v2): a fixed user is refused.
_OPENSHIFT: Final = "openshift"
_USER: Final = ("runAsUser", "runAsGroup")

#: Kinds that belong to a namespace of its own. The quota allows pods of the priority class system-cluster-critical.
_OF_NAMESPACE: Final = ("Namespace", "ResourceQuota")

#: The cloud provider that is selected unless a flag selects another, by preset.
_PROVIDERS: Final = {backend.preset: backend.name for backend in FITTING_BACKENDS if backend.preset}

#: What else the user must do, by cloud provider.
_HINTS: Final = {
    "aws": "AWS must give the ServiceAccount a role with the policy in docs/aws.md, by EKS Pod Identity or IRSA. "
    "Without it, no node is drained. To keep the machines: -- --cloud-provider=none"
}


@click.command("install", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@Option(
    "--preset",
    click.Choice(list(PRESETS)),
    help="Which nodes are on-demand and spot nodes: by the labels of EKS managed node groups, Karpenter, GKE, AKS, "
    "OpenShift's MachineSets or Cluster API. eks also selects --cloud-provider=aws, karpenter "
    "--cloud-provider=karpenter, and openshift and clusterapi --cloud-provider=clusterapi, with their rights, unless "
    "a flag selects another. On OpenShift, the daemon has no fixed user, which the SCC restricted-v2 refuses.",
)
@Option(
    "--on-demand-node-label",
    NODE_LABELS,
    to="on_demand_label",
    multiple=True,
    help="Label of the nodes to drain, as for run. Repeatable.",
)
@Option(
    "--spot-node-label",
    NODE_LABELS,
    to="spot_label",
    multiple=True,
    help="Label of the nodes to which pods are moved. Repeatable.",
)
@Option(
    "--dry-run",
    Bool(),
    default=True,
    help="Whether the daemon only plans and reports. --dry-run=false: it drains nodes.",
)
@Option("--namespace", NAME, short="-n", default=_NAMESPACE, metavar="NAME", help="The namespace of all objects.")
@Option(
    "--create-namespace",
    Bool(),
    default=True,
    help="Print the Namespace and its quota too. Say false if it exists and has other content: deleting the manifests "
    "would delete it. Namespaces whose names begin with kube- are never printed.",
)
@Option(
    "--image",
    metavar="IMAGE",
    help="The image of the daemon, with its registry. Default: that of the release; a checkout has none in a registry, "
    "and a line on standard error says so.",
)
@click.argument("flags", nargs=-1, type=click.UNPROCESSED, metavar="[-- FLAG]...")
def command(
    preset: str | None,
    on_demand_label: tuple[NodeLabels, ...],
    spot_label: tuple[NodeLabels, ...],
    flags: tuple[str, ...],
    **settings: Any,
) -> None:
    """Print the manifests of the daemon: Deployment, permissions, and the objects with its state.

    \b
    rescheduler install --preset=eks --image=a.example/image | kubectl apply -f -
    rescheduler install --preset=eks -- --node-drain-delay=30m --drain-order=cost

    Flags after -- are those of rescheduler run. The daemon is a dry run unless --dry-run=false is given. The manifests
    are those of deploy/base; kubectl delete with the same manifests removes them. They are for one installation in a
    cluster; for several, use the chart.
    """  # noqa: D301 - click reads the character
    labels = PRESETS[preset] if preset else ()
    on_demand, spot = (
        NodeLabels.any_of(given or labels[n : n + 1]) for n, given in enumerate((on_demand_label, spot_label))
    )
    if not on_demand.alternatives or not spot.alternatives:
        raise UsageError(
            f"expected --preset, one of {', '.join(PRESETS)}, or --on-demand-node-label and --spot-node-label"
        )
    check_labels(on_demand, spot)
    dry = ["--dry-run"] if settings["dry_run"] else []
    chosen = [f"{_LABELS[0]}={each}" for each in on_demand.selectors]
    chosen += [f"{_LABELS[1]}={each}" for each in spot.selectors]
    chosen += dry
    provider = _provider([*chosen, *flags])
    if provider is None and preset in _PROVIDERS:
        provider = _PROVIDERS[preset]
        chosen.append(f"--cloud-provider={provider}")
    chosen += flags
    check(_parsed(chosen))
    files = [MANIFESTS, *(file for name, file in RIGHTS.items() if name == provider)]
    objects = list(_installed(chosen, files, fixed_user=preset != _OPENSHIFT, **settings))
    sys.stdout.write(_text(objects))
    for hint in (_HINTS.get(provider or "", ""), "" if settings["image"] else _local_image(objects)):
        if hint:
            warn(hint)


def _without_environment(command: click.Command) -> click.Command:
    """Return *command* without the variables of its options: this machine's are not those of the daemon."""
    bare, parameters = copy.copy(command), [copy.copy(parameter) for parameter in command.params]
    for parameter in parameters:
        parameter.envvar = None
    bare.params = parameters
    return bare


_RUN: Final = _without_environment(run)


def _parsed(flags: Sequence[str]) -> click.Context:
    """Return the values of *flags* of `rescheduler run`. Raises UsageError."""
    context = _RUN.make_context("run", list(flags))
    if context.args:
        raise UsageError(f"{context.args[0]!r}: expected a flag of rescheduler run")
    return context


def _provider(flags: Sequence[str]) -> str | None:
    """Return the cloud provider that *flags* of `rescheduler run` select, or None. Raises UsageError."""
    context = _parsed(flags)
    given = context.get_parameter_source("cloud_provider") is ParameterSource.COMMANDLINE
    return str(context.params["cloud_provider"]) if given else None


def _installed(
    flags: Sequence[str],
    files: Sequence[Path],
    namespace: str,
    image: str | None,
    *,
    create_namespace: bool,
    fixed_user: bool,
    **_: Any,
) -> Iterator[Any]:
    """Yield the objects with the namespace, the image and the arguments of the daemon; its user if *fixed_user*."""
    import yaml  # noqa: PLC0415 - imported on demand

    for item in chain.from_iterable(yaml.safe_load_all(file.read_text(encoding="utf-8")) for file in files):
        if item["kind"] in _OF_NAMESPACE:
            if not create_namespace or namespace.startswith("kube-"):
                continue
            if item["kind"] == "Namespace":
                item["metadata"]["name"] = namespace
        if item["kind"] == "Deployment":
            template = item["spec"]["template"]["spec"]
            [container] = template["containers"]
            if not fixed_user:
                for key in _USER:
                    template["securityContext"].pop(key, None)
            container["image"] = image or container["image"]
            names = {flag.lstrip("-").partition("=")[0] for flag in flags}
            first, *args = container["args"]
            kept = [arg for arg in args if arg.lstrip("-").partition("=")[0] not in names]
            container["args"] = [first, *kept, *flags]
        yield _moved(item, namespace)


def _local_image(objects: Iterable[Any]) -> str:
    """Return what to do about a default image without a registry, which nodes cannot pull; "" if it has one."""
    [workload] = [item for item in objects if item["kind"] == "Deployment"]
    image = workload["spec"]["template"]["spec"]["containers"][0]["image"]
    if "/" in image:
        return ""
    pushed = f"registry.example.com/{image}"
    return (
        f"The image {image} is in no registry. To build and push it, in a checkout: docker build -t {pushed} . && "
        f"docker push {pushed}. Then repeat this command with --image={pushed}"
    )


def _moved(value: Any, namespace: str) -> Any:
    """Return *value*, in which each reference to the namespace of the manifests is one to *namespace*."""
    if isinstance(value, dict):
        moved = {key: _moved(each, namespace) for key, each in value.items()}
        return moved | {"namespace": namespace} if value.get("namespace") == _NAMESPACE else moved
    return [_moved(each, namespace) for each in value] if isinstance(value, list) else value


def _text(objects: Iterable[Any]) -> str:
    import yaml  # noqa: PLC0415 - imported on demand

    return yaml.safe_dump_all(objects, sort_keys=False, allow_unicode=True, explicit_start=True, width=120)
