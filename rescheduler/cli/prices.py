"""``rescheduler prices``: the price file of a cloud, for the instance types of the cluster."""

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Final

import click

from rescheduler.cli.cluster_source import progress, snapshot_option
from rescheduler.cli.console import say, warn
from rescheduler.cli.go_flags import FILE, GoCommand, Option, Parsed
from rescheduler.cli.options import NAME, connection_options
from rescheduler.cli.output import output_file_option, write_output
from rescheduler.cli.policy_options import NODE_LABELS
from rescheduler.clock import SteadyClock, SystemClock
from rescheduler.errors import InputError, NoNodesError, UsageError
from rescheduler.net import files
from rescheduler.planning.money.prices import instance_type, zone_of
from rescheduler.planning.node_labels import NodeLabels
from rescheduler.providers.price_lists import Price, Query, csv_lines
from rescheduler.settings import ApiServerConnection

_CLOUDS: Final = ("aws", "azure", "gcp")
_TEXT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_CURRENCY: Final = re.compile(r"[A-Z]{3}")
_LONGEST_KEY: Final = 200


def _named(text: str) -> str:
    """Return *text* if it can be a region or an instance type: it becomes a part of requests."""
    if not _TEXT.fullmatch(text):
        raise ValueError(f"{text!r}: expected letters, digits, '-', '_' and '.', such as eu-central-1 or m5.large")
    return text


def _currency(text: str) -> str:
    if not _CURRENCY.fullmatch(text):
        raise ValueError(f"{text!r}: expected three capital letters, such as USD")
    return text


@click.command("prices", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("cloud", type=click.Choice(_CLOUDS))
@Option(
    "--region", Parsed(_named, "name"), required=True, metavar="REGION", help="The region, in the cloud's spelling."
)
@Option(
    "--instance-type",
    Parsed(_named, "name"),
    to="types",
    multiple=True,
    metavar="TYPE",
    help="An instance type. Repeatable. Default: those of the nodes of the cluster or of the file.",
)
@Option(
    "--currency",
    Parsed(_currency, "text"),
    default="USD",
    metavar="CODE",
    help="The currency, for azure and gcp. AWS has prices in USD only, and in CNY for its regions in China.",
)
@Option(
    "--api-key-file",
    FILE,
    metavar="FILE",
    help="File with an API key for the Cloud Billing API, for gcp.",
)
@Option(
    "--config-map",
    NAME,
    metavar="NAME",
    help="Write the prices to the key prices of this ConfigMap, which must exist, instead of printing them. A daemon "
    "with --prices=FOLDER, where the ConfigMap is mounted, uses them within minutes.",
)
@Option(
    "--namespace",
    NAME,
    short="-n",
    default="spot-rescheduler",
    metavar="NAME",
    help="The namespace of --config-map.",
)
@output_file_option
@Option(
    "--on-demand-node-label",
    NODE_LABELS,
    to="on_demand_label",
    multiple=True,
    help="Only the instance types of nodes with this label, or with --spot-node-label; as for plan.",
)
@Option("--spot-node-label", NODE_LABELS, to="spot_label", multiple=True, help="The same for spot nodes.")
@snapshot_option
@connection_options
def command(
    cloud: str,
    region: str,
    types: tuple[str, ...],
    currency: str,
    api_key_file: Path | None,
    config_map: str | None,
    namespace: str,
    output_file: str,
    on_demand_label: tuple[NodeLabels, ...],
    spot_label: tuple[NodeLabels, ...],
    snapshot: str | None,
    connection: ApiServerConnection,
) -> None:
    """Print the prices of the cluster's instance types as a price file, for --prices.

    \b
    rescheduler prices aws --region=eu-central-1 --output-file=prices.csv
    rescheduler plan --prices=prices.csv --currency=USD

    They are list prices of machines with Linux, on-demand and spot, without discounts. aws: boto3 reads them with the
    credentials that it finds (in a checkout, pip install '.[aws]'). azure: no account is needed. gcp: an API key.
    """  # noqa: D301 - click reads the character
    key = _key(api_key_file) if cloud == "gcp" else ""
    if cloud == "aws" and currency != "USD":
        raise UsageError("prices aws: --currency: AWS Price List has no other currency for a region")
    zones: frozenset[str] = frozenset()
    if not types:
        types, zones = _of_cluster(snapshot, connection, (*on_demand_label, *spot_label))
    clock = SteadyClock(SystemClock())
    query = Query(region, types, clock.now(), currency, zones)
    with progress(f"reading prices of {len(types)} instance types"):
        found = list(_read(cloud, query, clock, key))
    _report_missing(types, found, region)
    text = "".join(f"{line}\n" for line in csv_lines(found))
    if config_map is not None:
        _store(text, connection, namespace, config_map)
    else:
        write_output(text, output_file)


def _key(file: Path | None) -> str:
    """Return the API key. Raises UsageError, without the key."""
    if file is None:
        raise UsageError("prices gcp: expected --api-key-file, a file with an API key for the Cloud Billing API")
    try:
        key = files.read_text(file).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--api-key-file {files.printable(file)}: {files.reason(error)}") from error
    if not key.isprintable() or not key.isascii() or not 0 < len(key) <= _LONGEST_KEY or " " in key:
        raise UsageError(f"--api-key-file {files.printable(file)}: expected one line with an API key")
    return key


def _of_cluster(
    snapshot: str | None, connection: ApiServerConnection, labels: Collection[NodeLabels]
) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the instance types and the zones of the nodes with any of *labels*; of all nodes if there are none."""
    if snapshot is not None:
        from rescheduler.snapshot_file import reader  # noqa: PLC0415 - imported on demand

        nodes = list(reader.read(snapshot).nodes)
    else:
        from rescheduler.housekeeping.command_reads import read_nodes  # noqa: PLC0415 - the client on demand

        nodes = read_nodes(connection)
    nodes = [node for node in nodes if not labels or any(each.matches(node.metadata.labels) for each in labels)]
    types = tuple(sorted({name for node in nodes if _TEXT.fullmatch(name := instance_type(node))}))
    if not types:
        raise NoNodesError(
            f"no node of {len(nodes)} has the label node.kubernetes.io/instance-type: expected --instance-type"
        )
    return types, frozenset(zone for node in nodes if (zone := zone_of(node)))


def _store(text: str, connection: ApiServerConnection, namespace: str, name: str) -> None:
    from rescheduler.kube.client import connect  # noqa: PLC0415 - the client is imported on demand
    from rescheduler.kube.memory import write_text  # noqa: PLC0415

    write_text(connect(connection, SystemClock()), namespace, name, files.PRICES, text)
    say(f"configmap {namespace}/{name}: {text.count(chr(10)) - 1} prices")


def _read(cloud: str, query: Query, clock: SteadyClock, key: str) -> Iterable[Price]:
    match cloud:
        case "aws":
            from rescheduler.providers.price_lists import aws  # noqa: PLC0415 - imported on demand

            return aws.read(query)
        case "azure":
            from rescheduler.providers.price_lists import azure  # noqa: PLC0415

            return azure.read(query, clock)
    from rescheduler.providers.price_lists import gcp  # noqa: PLC0415

    return gcp.read(query, clock, key)


def _report_missing(types: Sequence[str], found: Sequence[Price], region: str) -> None:
    """Warn about instance types without a price. Raises InputError if nothing was found."""
    if not found:
        raise InputError(f"no prices for {', '.join(types[:5])} in the region {region}: is its spelling right?")
    for spot, kind in ((False, "on-demand"), (True, "spot")):
        known = {price.instance_type for price in found if price.spot == spot}
        if missing := [name for name in types if name not in known]:
            warn(f"warning: no {kind} price in {region} for {', '.join(missing)}")
