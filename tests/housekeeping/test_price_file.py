"""The price file of a daemon that changes: a mounted ConfigMap, replaced as the kubelet does it."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from rescheduler.housekeeping.bookkeeping import Pricing
from rescheduler.housekeeping.daemon_parts import current_prices
from rescheduler.housekeeping.order_finder import PriceFile
from rescheduler.observe.status import Status
from rescheduler.planning.money.prices import PriceKey, PriceList

HEADER = "instance_type,capacity_type,price\n"


def mounted(folder: Path, number: int, text: str | None) -> None:
    """Replace the content of a mounted ConfigMap: a new folder, and one rename of the link to it."""
    version = folder / f"..{number}"
    version.mkdir()
    if text is not None:
        (version / "prices").write_text(text)
    link = folder / "..data_tmp"
    link.symlink_to(version.name)
    link.rename(folder / "..data")
    if not (folder / "prices").is_symlink():
        (folder / "prices").symlink_to("..data/prices")


def of(amount: str) -> Mapping[PriceKey, Decimal]:
    return {("m5.large", "", False): Decimal(amount)}


def test_each_version_is_read_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = PriceFile(tmp_path)
    mounted(tmp_path, 1, None)
    assert file.changed() is None  # the CronJob has not run yet
    mounted(tmp_path, 2, HEADER + "m5.large,on-demand,0.1\n")
    assert [file.changed(), file.changed()] == [of("0.1"), None]
    with caplog.at_level(logging.WARNING):
        mounted(tmp_path, 3, HEADER + "m5.large,on-demand,-1\n")
        assert [file.changed(), file.changed()] == [None, None]
    [record] = caplog.records
    assert f"--prices {tmp_path}/prices: line 2: price: '-1'" in record.getMessage()
    mounted(tmp_path, 4, HEADER + "m5.large,on-demand,0.2\n")
    assert file.changed() == of("0.2")


def test_decisions_the_status_page_and_the_ledger_get_the_new_prices(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    prices = PriceList(by_type=of("0.1"), currency="EUR", file=str(path))
    status, pricing = Status(prices), Pricing(prices)
    status.show_prices({"node-1": Decimal(3)})
    now = current_prices(pricing, status)
    assert now().by_type == of("0.1")  # the file is gone: the prices from before are used
    path.write_text(HEADER + "m5.large,on-demand,0.2\n")
    assert now() == replace(prices, by_type=of("0.2"), by_node={"node-1": Decimal(3)}) == status.board.prices
    assert pricing.prices == replace(prices, by_type=of("0.2"))
