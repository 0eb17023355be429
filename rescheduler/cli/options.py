"""Groups of options shared by several commands. Each group passes one value to the command instead of its options.

``@connection_options`` passes ``connection: ApiServerConnection``, ``@logging_options`` ``logs: Logging``,
``@provider_options(…)`` ``provider: Provider``. The help lists the options in the order of the decorators.
:mod:`rescheduler.cli.policy_options` and :mod:`rescheduler.cli.run` define the larger groups.
"""

import functools
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
from click.core import ParameterSource

from rescheduler.cli.go_flags import ARGUMENTS, FILE, FILE_TEXT, Bool, Option, OptionalValue, Parsed
from rescheduler.errors import UsageError
from rescheduler.planning.what_if.overview import PLAN_COMMAND
from rescheduler.providers import BACKENDS
from rescheduler.settings import (
    LEASE,
    MEMORY_NAME,
    POOL_LEASE,
    PROXY_MEMORY_NAME,
    SAVINGS_NAME,
    ApiServerConnection,
    ListenAddress,
    LogFormat,
    Logging,
    NamedInstallation,
    Provider,
    Scheduling,
    host_name,
    object_name,
    scheduler_minor,
)

Command: TypeAlias = Callable[..., Any]
Decorator: TypeAlias = Callable[[Command], Command]

ADDRESS: Final = Parsed(ListenAddress.parse, "host:port", UsageError)

allowed_host_option: Final = Option(
    "--allowed-host",
    Parsed(host_name, "host", UsageError),
    to="allowed_hosts",
    multiple=True,
    metavar="HOST",
    help="Name or IP address, in the Host header, by which /metrics and the other pages may be addressed, such as that "
    "of an ingress. Repeatable. Always answered: the address that they listen on and, unless that is a loopback "
    "address, IP addresses and the names of Services in the own namespace.",
)


def group(name: str, make: Callable[..., Any], options: Sequence[Option]) -> Decorator:
    """Combine *options* into one parameter *name* of the command.

    *make* creates the value of that parameter from the values of the options, passed by keyword.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def grouped(**values: Any) -> Any:
            own = {option.to: values.pop(option.to) for option in options if option.to in values}
            return command(**values, **{name: make(**own)})

        decorated: Command = grouped
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


soft_taint_option: Final = Option(
    "--manage-soft-taint",
    Bool(),
    default=False,
    help="Maintain a PreferNoSchedule taint on the on-demand nodes, so that moved pods do not return to them "
    "while spot nodes have room. If false, the taint is removed from nodes where this program added it.",
)


def scheduling(minor: int | None, scheduler_config: Path | None, assumed: Collection[str]) -> Scheduling:
    """Return what is known about the scheduler. Raises ConfigError if the file is not a valid configuration."""
    if scheduler_config is None:
        if assumed:
            raise UsageError("--assume-plugins: expected --scheduler-config, which names the plugins")
        return Scheduling(minor)
    from rescheduler.cli.scheduler_config import configured  # noqa: PLC0415 - imported on demand

    result = configured(minor, scheduler_config, assumed)
    idle = (
        f"--assume-plugins={name} has no effect: no unknown plugin or extender has this name"
        for name in sorted(set(assumed) - result.assumed)
    )
    return replace(result, notes=(*result.notes, *idle))


#: Passes ``scheduling: Scheduling`` to the command.
scheduling_options: Final = group(
    "scheduling",
    scheduling,
    (
        Option(
            "--scheduler-version",
            Parsed(scheduler_minor, "version", UsageError),
            to="minor",
            metavar="VERSION",
            help="Version of the cluster's kube-scheduler, such as 1.36, by whose rules pods are placed. Default: the "
            "version of the API server; for a file without one, the newest known release.",
        ),
        Option(
            "--scheduler-config",
            FILE,
            metavar="FILE",
            help="Configuration file of the cluster's kube-scheduler (KubeSchedulerConfiguration, "
            "kubescheduler.config.k8s.io/v1): its profiles, plugins, weights and arguments are used. Pods of all its "
            "profiles may be evicted.",
        ),
        Option(
            "--assume-plugins",
            to="assumed",
            multiple=True,
            metavar="NAME",
            help="Plugin or extender (its urlPrefix) in the file of --scheduler-config that never rejects a node. "
            "Repeatable. Pods of profiles with other plugins that are not those of kube-scheduler stay.",
        ),
    ),
)


#: The value of ``--nodes`` for a node group.
_NODE_GROUP: Final = re.compile("[^:]*:[^:]*:.*")

#: What ``--nodes`` also means in ``plan``.
_LISTED: Final = "Without a value: one line for each node. With one: "


def provider_options(description: str, *, lists_nodes: bool = False) -> Decorator:
    """Return the options of the cloud provider. *description* is the help of ``--cloud-provider``.

    With *lists_nodes*, ``--nodes`` may have no value; then one of the provider's texts of groups is empty.
    """
    return group(
        "provider",
        _provider,
        (
            Option("--cloud-provider", click.Choice(list(BACKENDS)), default="none", help=description),
            Option(
                "--cloud-config",
                FILE,
                metavar="FILE",
                help="Configuration file of the cloud provider; its keys are documented in docs/.",
            ),
            Option(
                "--nodes",
                OptionalValue(lambda text: bool(_NODE_GROUP.fullmatch(text))) if lists_nodes else None,
                metavar="[MIN:MAX:GROUP]" if lists_nodes else "MIN:MAX:GROUP",
                multiple=True,
                help=f"{_LISTED if lists_nodes else ''}Node group of the cloud provider and its size limits, in the "
                "format of Cluster Autoscaler. "
                "Repeatable. For cloud providers that cannot list their groups (cherryservers, stackpoint).",
            ),
            Option(
                "--cluster-name",
                default="",
                help="Name of the cluster, if the cloud provider tags its machines with it.",
            ),
        ),
    )


def _provider(cloud_provider: str, cloud_config: Path | None, nodes: tuple[str, ...], cluster_name: str) -> Provider:
    return Provider(cloud_provider, cloud_config, nodes, cluster_name)


node_name_option: Final = Option(
    "--node-name",
    default="",
    metavar="NAME",
    help="The node on which this program runs. It is never drained, because that would interrupt the drain "
    "itself. The shipped manifests set it in the environment. Empty: none.",
)

NAME: Final = Parsed(object_name, "name", UsageError)


def _namespace_of(what: str) -> Option:
    return Option(
        "--namespace", NAME, short="-n", default="kube-system", metavar="NAME", help=f"The namespace of {what}."
    )


#: Of the daemon.
namespace_option: Final = _namespace_of("the daemon, its Lease and its memory ConfigMap")

pool_lease_option: Final = Option(
    "--pool-lease",
    NAME,
    default=POOL_LEASE,
    metavar="NAME",
    help="The Lease in --namespace that is held while machines are ordered, so that processes that share a pool do so "
    "one after the other. They need the same namespace and name; processes of other pools should have other names.",
)

#: Of programs that store nothing but that Lease.
pool_namespace_option: Final = _namespace_of("--pool-lease")

#: Of the proxy.
proxy_namespace_option: Final = _namespace_of("--pool-lease and --memory-name")

proxy_memory_option: Final = Option(
    "--memory-name",
    NAME,
    default=PROXY_MEMORY_NAME,
    metavar="NAME",
    help="The ConfigMap with the replacement pods that drains owe. It survives restarts: until they run, the machine "
    "that they left is kept.",
)

lease_name_option: Final = Option(
    "--lease-name",
    NAME,
    default=LEASE,
    help="The Lease for leader election. Namespace and Lease name identify an installation: two installations in "
    "one cluster need different ones.",
)

memory_name_option: Final = Option(
    "--memory-name",
    NAME,
    default=MEMORY_NAME,
    metavar="NAME",
    help="The ConfigMap with the state that must survive restarts: the drain delay, cooldowns, pauses, owed "
    "replacement pods, and how often pods were moved. The chart derives the name from the release.",
)

savings_name_option: Final = Option(
    "--savings-name",
    NAME,
    default=SAVINGS_NAME,
    metavar="NAME",
    help="The ConfigMap with the ledger of savings. The chart derives the name from the release.",
)

#: Of commands that act on a daemon. Passes ``named: NamedInstallation`` to the command.
installation_options: Final = group(
    "named",
    NamedInstallation,
    (
        Option(
            "--namespace",
            NAME,
            short="-n",
            metavar="NAME",
            help="The namespace of the daemon. Default: spot-rescheduler or kube-system if a daemon holds the Lease "
            "there, otherwise that of the only installation in the cluster.",
        ),
        Option(
            "--lease-name",
            NAME,
            metavar="NAME",
            help=f"The Lease of the daemon. Default: {LEASE}, otherwise the only one in the namespace.",
        ),
    ),
)

found_memory_option: Final = Option(
    "--memory-name",
    NAME,
    metavar="NAME",
    help=f"The ConfigMap with the daemon's memory. Default: {MEMORY_NAME}, or the name that the chart derived from the "
    "release.",
)

found_savings_option: Final = Option(
    "--savings-name",
    NAME,
    metavar="NAME",
    help=f"The ConfigMap with the ledger of savings. Default: {SAVINGS_NAME}, or the name that the chart derived from "
    "the release.",
)


def command_for(namespace: str, lease_name: str) -> str:
    """Return the command line that was typed, with another installation."""
    context = click.get_current_context()
    own = typed(context, lambda name, _: name not in ("--namespace", "--lease-name"))
    lease = [] if lease_name == LEASE else [f"--lease-name={lease_name}"]
    return f"{context.command_path} {shlex.join([*own, '-n', namespace, *lease])}"


def typed(context: click.Context, kept: Callable[[str, click.Option], bool]) -> list[str]:
    """Return the options that were typed after the command of *context*, then those of the environment, with values.

    *kept* decides with the long name of an option and the option itself. Arguments that are no options are left out.
    """
    options = {name: each for each in context.command.params if isinstance(each, click.Option) for name in each.opts}
    found, words = list[str](), iter(context.meta.get(ARGUMENTS, ()))
    for word in words:
        name, equals, _ = word.partition("=")
        if (option := options.get(name)) is None:
            continue
        alone = bool(equals) or option.is_flag
        whole = [word] if alone else [word, *([value] if (value := next(words, None)) is not None else [])]
        found += whole if kept(max(option.opts, key=len), option) else []
    return [*found, *_of_environment(context, kept)]


def _of_environment(context: click.Context, kept: Callable[[str, click.Option], bool]) -> Iterator[str]:
    """Yield the options of *context* that only the environment sets: elsewhere it may set others, or none."""
    for option in context.command.params:
        if not isinstance(option, click.Option) or option.name is None:
            continue
        name = max(option.opts, key=len)
        if context.get_parameter_source(option.name) is ParameterSource.ENVIRONMENT and kept(name, option):
            text = option.value_from_envvar(context)
            yield from (f"{name}={each}" for each in ([text] if isinstance(text, str) else text or ()))


#: Options of ``plan`` that choose its output.
_OF_THE_OUTPUT: Final = frozenset(
    {"--output", "--lever", "--sort-by", "--patch", "--watch", "--strict", "--what-if", "--independent", "--buy"}
)


#: Options of ``run`` that mean something else, or nothing, on another machine.
_OF_THE_MACHINE: Final = frozenset(
    {"--context", "--running-in-cluster", "--namespace", "--lease-name", "--cloud-provider", "--nodes"}
)


def plan_command(*, elsewhere: bool = False) -> str:
    """Return the command line of ``plan`` with the options of the running command that affect a plan.

    *elsewhere* means that it is run on another machine: the files and the connection of this one are left out.
    """
    context = click.get_current_context(silent=True)
    if context is None or context.parent is None or not isinstance(commands := context.parent.command, click.Group):
        return PLAN_COMMAND
    plan = commands.get_command(context.parent, PLAN_COMMAND.rpartition(" ")[2])
    assert plan is not None
    known = {name for param in plan.params for name in param.opts} - _OF_THE_OUTPUT

    def kept(name: str, option: click.Option) -> bool:
        local = name in _OF_THE_MACHINE or option.type in (FILE, FILE_TEXT)
        return name in known and not (elsewhere and local)

    program = PLAN_COMMAND.partition(" ")[0] if elsewhere else context.parent.command_path
    words = [word for word in typed(context, kept) if word != "--nodes="]
    return " ".join([program, "plan", *map(shlex.quote, words)])


connection_options = group(
    "connection",
    ApiServerConnection,
    (
        Option(
            "--kubeconfig",
            FILE_TEXT,
            metavar="FILE",
            help="Kubeconfig with the cluster's address and credentials. Default: the ServiceAccount in a pod, "
            "otherwise $KUBECONFIG or ~/.kube/config.",
        ),
        Option("--context", metavar="NAME", help="Context of the kubeconfig; default: its current-context."),
        Option(
            "--kube-api-content-type",
            metavar="TYPE",
            expose_value=False,
            help="Accepted for compatibility, and has no effect: objects are read in JSON.",
        ),
    ),
)

#: The highest verbosity; larger values have the same effect.
_MOST_VERBOSE: Final = 4


def _verbosity(text: str) -> int:
    """Parse any integer, as glog does."""
    if not re.fullmatch(r"[-+]?[0-9]{1,18}", text):
        raise ValueError(f"{text!r}: expected an integer")
    return min(max(int(text), 0), _MOST_VERBOSE)


logging_options = group(
    "logs",
    lambda v, log_format: Logging(verbosity=v, format=LogFormat(log_format)),
    (
        Option(
            "--v",
            Parsed(_verbosity, "integer"),
            short="-v",
            default="0",
            help="Log verbosity, 0 to 4. 0: drains and errors; 2: results and reasons of each round "
            "(recommended); 3: every eviction and pod; 4: all details.",
        ),
        Option(
            "--log-format",
            click.Choice([value.value for value in LogFormat]),
            default=LogFormat.TEXT.value,
            help="Log format on standard error: text, or json with one object per line.",
        ),
    ),
)

#: Flags of glog and of old deployments. They are accepted and ignored.
IGNORED: Final = (
    "--logtostderr",
    "--alsologtostderr",
    "--stderrthreshold",
    "--vmodule",
    "--log-backtrace-at",
    "--log-dir",
)
_SWITCHES: Final = ("--logtostderr", "--alsologtostderr")


def _ignored(flag: str) -> Option:
    kind = Bool() if flag in _SWITCHES else None
    return Option(flag, kind, hidden=True, expose_value=False, help="Accepted for compatibility and ignored.")


def ignored_options(command: Any) -> Any:
    """Add the flags of :data:`IGNORED` to *command*."""
    for flag in IGNORED:
        command = _ignored(flag)(command)
    return command
