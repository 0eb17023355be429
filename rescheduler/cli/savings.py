"""``rescheduler savings``: receipts of what drains have saved."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

from rescheduler.cli.console import show
from rescheduler.cli.go_flags import GoCommand, Option, Parsed, parse_duration
from rescheduler.cli.options import command_for, connection_options, found_savings_option, installation_options
from rescheduler.cli.output import print_json, print_yaml
from rescheduler.clock import SystemClock
from rescheduler.pages.tree import BLANK, Line
from rescheduler.planning.forms import count, number, stamp
from rescheduler.planning.money.savings import KEPT, Receipt, Savings
from rescheduler.planning.money.savings_form import ASSUMPTIONS, ReceiptShare, SavingsDay, SavingsReport, report
from rescheduler.settings import SAVINGS_NAME, ApiServerConnection, NamedInstallation

# The text and the JSON output of ``rescheduler savings``.

_HOUR: Final = 3600

#: How a saving ended → its text for people.
_ENDINGS: Final = {"": "still counts", "replaced": "ended by a new node", "expired": "ended after 30 days"}


def page(known: SavingsReport) -> Iterator[Line]:
    """Yield the lines of the receipts for people, with the totals first."""
    yield from _head(known)
    for day in known.days:
        yield BLANK
        yield from _day(day)
    if known.waiting:
        yield BLANK
        yield Line("Drained, machine still exists (saves nothing yet)")
        for receipt in known.waiting:
            yield Line(f"{receipt.node}, drained {_time(receipt.drained_at)}", 1)
    yield BLANK
    yield Line("Assumptions")
    for sentence in ASSUMPTIONS:
        yield Line(f"- {sentence}", 1)


def _head(known: SavingsReport) -> Iterator[Line]:
    if not known.total.node_seconds:
        yield Line(f"Nothing was saved since {known.since} (UTC).")
        return
    yield Line(f"Saved since {known.since} (UTC): {_amounts(known.total)}")
    cpu, memory = _hours(known.total.cpu_seconds / 1000), _hours(known.total.memory_seconds / 1024)
    yield Line(f"{cpu} vCPU-hours, {memory} GiB-hours", 1)
    cost = "" if known.move_cost is None else f", for pods that cost {known.move_cost:,.1f} moves"
    yield Line(f"{count(known.removed, 'machine')} removed in this period{cost}", 1)


def _day(day: SavingsDay) -> Iterator[Line]:
    yield Line(f"{day.day}: {_amounts(day.savings)}")
    for share in day.receipts:
        yield from _lines(share)
    missing = day.savings.node_seconds - sum(share.savings.node_seconds for share in day.receipts)
    if missing > 0:
        yield Line(f"{_hours(missing)} node-hours of nodes whose receipts are no longer stored", 1)


def _lines(share: ReceiptShare) -> Iterator[Line]:
    receipt = share.receipt
    kind = ", ".join(filter(None, [receipt.instance_type, receipt.zone]))
    yield Line(f"{receipt.node}{f' ({kind})' if kind else ''}", 1)
    cost = "" if receipt.move_cost is None else f", for {receipt.move_cost:,.1f} moves"
    yield Line(f"drained {_time(receipt.drained_at)}, machine gone {_time(receipt.gone_at)}{cost}", 2)
    hours, ending = _hours(share.savings.node_seconds), _ENDINGS[receipt.ending]
    yield Line(f"{hours} h{_price(receipt)}: {_money(share.savings)}, {ending}", 2)


def _price(receipt: Receipt) -> str:
    if receipt.price is None or receipt.spot_cost is None:
        return ""
    committed = f" - {receipt.committed:.4f} (commitment)" if receipt.committed else ""
    return f" at {receipt.price:.4f}{committed} - {receipt.spot_cost:.4f} (pods on spot)"


def _amounts(savings: Savings) -> str:
    return f"{_hours(savings.node_seconds)} node-hours, {_money(savings)}"


def _money(savings: Savings) -> str:
    amounts = (f"{amount:,.2f} {currency}".rstrip() for currency, amount in sorted(savings.money.items()))
    return ", ".join(amounts) or "no price known"


def _hours(seconds: float) -> str:
    return f"{seconds / _HOUR:,.1f}"


def _time(moment: datetime | None) -> str:
    return "unknown" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"


def as_json(known: SavingsReport) -> dict[str, Any]:
    """Return the object for ``-o json`` and ``-o yaml``. Prices are per hour, times are in UTC."""
    return {
        "since": str(known.since),
        "until": stamp(known.until),
        "total": _sums(known.total) | {"machines_removed": known.removed, "move_cost": known.move_cost},
        "days": [
            {"day": str(day.day), **_sums(day.savings), "receipts": [_receipt(share) for share in day.receipts]}
            for day in known.days
        ],
        "waiting": [{"node": receipt.node, "drained_at": stamp(receipt.drained_at)} for receipt in known.waiting],
        "assumptions": list(ASSUMPTIONS),
    }


def _receipt(share: ReceiptShare) -> dict[str, Any]:
    receipt = share.receipt
    return {
        "node": receipt.node,
        "uid": receipt.uid,
        "instance_type": receipt.instance_type,
        "zone": receipt.zone,
        "drained_at": stamp(receipt.drained_at),
        "gone_at": stamp(receipt.gone_at),
        "ended_at": stamp(receipt.ended_at),
        "ending": receipt.ending or None,
        "price": number(receipt.price),
        "spot_cost": number(receipt.spot_cost),
        "committed": number(receipt.committed),
        "currency": receipt.currency,
        "move_cost": receipt.move_cost,
        **_sums(share.savings),
    }


def _sums(savings: Savings) -> dict[str, Any]:
    return {
        "node_hours": round(savings.node_hours, 4),
        "vcpu_hours": round(savings.cpu_seconds / 1000 / _HOUR, 4),
        "gib_hours": round(savings.memory_seconds / 1024 / _HOUR, 4),
        "money": {currency: float(amount) for currency, amount in sorted(savings.money.items())},
    }


def _parse_period(text: str) -> timedelta:
    days = re.fullmatch(r"([0-9]{1,4})d", text)
    try:
        duration = timedelta(days=int(days[1])) if days else parse_duration(text)
    except ValueError:
        duration = KEPT * 2
    if duration > KEPT:
        raise ValueError(f"{text!r}: expected at most {KEPT.days} days, such as 30d or 12h")
    return duration


_SINCE: Final = Parsed(_parse_period, "duration")


@click.command("savings", cls=GoCommand, context_settings={"help_option_names": ["-h", "--help"]})
@Option(
    "--since",
    _SINCE,
    default="30d",
    help="How far back to look, in days (30d) or as a Go duration (12h). Days are whole days in UTC.",
)
@Option(
    "--output",
    click.Choice(["table", "json", "yaml"]),
    short="-o",
    default="table",
    help="table for people, json or yaml for programs.",
)
@connection_options
@installation_options
@found_savings_option
def command(
    since: timedelta, output: str, connection: ApiServerConnection, named: NamedInstallation, savings_name: str | None
) -> None:
    """Show what drains have saved: totals, and for each day the nodes that were removed after a drain.

    The daemon keeps this ledger in a ConfigMap. Nothing in the cluster is changed.
    """
    from rescheduler.housekeeping import command_reads  # noqa: PLC0415 - the client is imported on demand
    from rescheduler.kube.client import connect  # noqa: PLC0415
    from rescheduler.kube.installations import InstallationFinder, find_config_map  # noqa: PLC0415
    from rescheduler.kube.memory import SAVINGS_KEY  # noqa: PLC0415

    clock = SystemClock()
    finder = InstallationFinder(connect(connection, clock), clock.now(), command_for)
    store = find_config_map(finder, named, savings_name, SAVINGS_NAME, SAVINGS_KEY)
    known = report(command_reads.stored_ledger(store), since, clock.now().replace(microsecond=0))
    if output == "json":
        print_json(as_json(known))
    elif output == "yaml":
        print_yaml(as_json(known))
    else:
        show(page(known))
