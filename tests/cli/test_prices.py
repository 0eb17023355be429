"""Tests of the options for prices: the file that --prices names, and wrong values."""

import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import pytest

from rescheduler import cli
from rescheduler.cli.policy_options import price_options
from rescheduler.housekeeping import composition
from rescheduler.planning.money.prices import PriceList

PRICES = "instance_type,capacity_type,price\nm5.large,spot,0.04\n"


def given(*args: str) -> PriceList:
    """Return the prices that a command receives."""
    received: list[PriceList] = []

    @click.command()
    @price_options
    def command(prices: PriceList) -> None:
        received.append(prices)

    command.main(args, standalone_mode=False)
    return received[0]


def test_all_options_are_read_into_the_price_list(tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text(PRICES)
    parts = ("--price-per-vcpu=0.03", "--price-per-gib=0.004", "--spot-price-per-vcpu=0", "--spot-price-per-gib=0.001")
    assert given(f"--prices={file}", *parts, "--currency=USD") == PriceList(
        by_type={("m5.large", "", True): Decimal("0.04")},
        per_vcpu=Decimal("0.03"),
        per_gib=Decimal("0.004"),
        spot_per_vcpu=Decimal(0),
        spot_per_gib=Decimal("0.001"),
        currency="USD",
    )


def test_without_options_the_price_list_is_empty() -> None:
    assert given() == PriceList()


def test_the_daemon_gets_the_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[Any] = []
    monkeypatch.setattr(composition, "run", lambda *arguments: received.append(arguments[4]))
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "--price-per-vcpu=0.03", "--currency=EUR"])
    assert ended.value.code == 0
    assert received == [PriceList(per_vcpu=Decimal("0.03"), currency="EUR")]


WRONG = {
    "a negative price": ("--price-per-vcpu=-1", "'-1': expected a price per hour such as 0.0832"),
    "not a number": ("--spot-price-per-gib=nan", "'nan': expected a price per hour such as 0.0832"),
    "a long currency": ("--currency=" + "x" * 17, "expected at most 16 printable characters"),
    "a line break": ("--currency=U\nSD", "expected at most 16 printable characters"),
    "no file": ("--prices=/no/such/file", "--prices /no/such/file: No such file or directory"),
    "a device": ("--prices=/dev/zero", "--prices /dev/zero: expected a regular file, not a FIFO, device or socket"),
}


def test_a_folder_is_a_mounted_config_map_that_may_be_empty_at_first(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert given(f"--prices={tmp_path}") == PriceList()
    assert f"warning: --prices {tmp_path}: the folder has no file prices yet" in capfd.readouterr().err
    (tmp_path / "prices").write_text(PRICES)
    prices = given(f"--prices={tmp_path}", "--price-per-gib=1")
    assert (prices.by_type, prices.file) == ({("m5.large", "", True): Decimal("0.04")}, str(tmp_path))
    (tmp_path / "prices").write_text("no prices")
    assert f"--prices {tmp_path}/prices: line 1: unknown column" in refused(f"--prices={tmp_path}", capfd)


def refused(option: str, capfd: pytest.CaptureFixture[str], command: str = "plan") -> str:
    """Return the error of a command with *option*."""
    with pytest.raises(SystemExit) as ended:
        cli.main([command, option])
    out, error = capfd.readouterr()
    assert (ended.value.code, out, error.count("\n")) == (2, "", 1)
    return error


@pytest.mark.parametrize(("option", "message"), WRONG.values(), ids=WRONG)
def test_usage_errors_are_one_line_and_exit_code_2(
    option: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(option, capfd)


CONTENT = {
    "not UTF-8": (b"\xff\xfe", "expected UTF-8 text"),
    "empty": (b"", "it has no prices"),
    "a wrong line": (PRICES.encode() + b"m5.large,spot,-1\n", "line 3: price: '-1': expected a price per hour"),
}


@pytest.mark.parametrize(("content", "message"), CONTENT.values(), ids=CONTENT)
def test_an_invalid_file_is_named_in_the_error(
    content: bytes, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "prices.csv"
    file.write_bytes(content)
    assert f"--prices {file}: {message}" in refused(f"--prices={file}", capfd)


def test_the_daemon_does_not_start_with_an_invalid_file(capfd: pytest.CaptureFixture[str]) -> None:
    assert "No such file or directory" in refused("--prices=/no/such/file", capfd, "run")


def test_a_fifo_does_not_block(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert "expected a regular file" in refused(f"--prices={tmp_path / 'fifo'}", capfd)
