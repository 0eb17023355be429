"""Tests of arguments in the syntax of Go programs."""

from datetime import timedelta

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rescheduler.cli.go_flags import Bool, GoCommand, Option, format_duration, normalized, parse_duration

SECOND = timedelta(seconds=1)

DURATIONS = {
    "0": timedelta(),
    "0s": timedelta(),
    "10s": 10 * SECOND,
    "+10s": 10 * SECOND,
    "2m30s": 150 * SECOND,
    "1h": 3600 * SECOND,
    "1.5h": 5400 * SECOND,
    ".5m": 30 * SECOND,
    "1.m": 60 * SECOND,
    "500ms": SECOND / 2,
    "250us": timedelta(microseconds=250),
    "250µs": timedelta(microseconds=250),
    "250μs": timedelta(microseconds=250),
    "3000ns": timedelta(microseconds=3),
    "1h2m3s4ms": timedelta(hours=1, minutes=2, seconds=3, milliseconds=4),
    "30d": timedelta(days=30),
    "0d": timedelta(),
    "1d12h": timedelta(days=1, hours=12),
    "2d1.5h": timedelta(days=2, hours=1, minutes=30),
}


@pytest.mark.parametrize(("text", "duration"), DURATIONS.items())
def test_go_durations_are_parsed(text: str, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "10",
        "s",
        "5x",
        "-5s",
        "1h ",
        " 1h",
        "1h5",
        "1,5h",
        "1e3s",
        "٣s",
        "9" * 20 + "h",
        "1.5d",
        "1h1d",
        "1d1d",
        "d",
        "1d-1h",
        "9999999d",
    ],
)
def test_invalid_durations_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="expected a"):
        parse_duration(text)


@given(st.integers(min_value=0, max_value=10**9))
def test_a_formatted_duration_is_parsed_to_the_same_value(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(duration)) == duration


@Option("--running-in-cluster", Bool(), default=True)
@Option("--namespace")
@Option("--v", click.IntRange(0, 4), short="-v", default=0)
@click.argument("rest", nargs=-1)
@click.command(cls=GoCommand)
def example(**_: object) -> None:
    """The command whose options are parsed."""


ARGUMENTS: dict[str, tuple[str, str]] = {
    "two dashes": ("--namespace=x", "--namespace=x"),
    "a single dash": ("-namespace=x", "--namespace=x"),
    "a separate value": ("-namespace x", "--namespace x"),
    "a value that looks like a flag": ("--namespace --v rest", "--namespace --v rest"),
    "underscores, as in glog": ("-running_in_cluster=false", "--running-in-cluster=false"),
    "a bare boolean": ("--running-in-cluster rest", "--running-in-cluster=true rest"),
    "a boolean with a value": ("--running-in-cluster=false", "--running-in-cluster=false"),
    "a short option with =": ("-v=2", "-v 2"),
    "a short option with a separate value": ("-v 2", "-v 2"),
    "a short option with an attached value": ("-v2", "-v2"),
    "its long form": ("--v=2", "--v=2"),
    "after --": ("-- -namespace=x", "-- -namespace=x"),
    "an unknown flag": ("-nonsense=1 --more", "-nonsense=1 --more"),
    "an equals sign in the value": ("-namespace=a=b", "--namespace=a=b"),
}


@pytest.mark.parametrize(("given_", "expected"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_go_style_arguments_are_converted_to_click_style(given_: str, expected: str) -> None:
    assert list(normalized(given_.split(), example.params)) == expected.split()
