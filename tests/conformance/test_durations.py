"""Our parser of durations gives the same results as Go's time.ParseDuration."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from devcluster import golang
from predicates.texts import LONGEST_AMOUNT
from rescheduler import durations

UNITS = ("ns", "us", "µs", "μs", "ms", "s", "m", "h")
#: Signs, fractions, all units, the limits of 64 bits, and texts that Go rejects.
CHOSEN = (
    *("0", "+0", "-0", "0s", "-0s", "00000000000000000000000000s", "0.s", ".0s"),
    *(f"{sign}{number}{unit}" for unit in UNITS for sign in ("", "+", "-") for number in ("7", "1.5", ".25", "3.")),
    *("1h2m3s4ms5us6ns", "1m1h", "1s1s", "-1h30m", "1h-30m", "1ms1m1s", "500m", "500ms", "500msm", "1e3s"),
    *("9223372036854775807ns", "9223372036854775808ns", "-9223372036854775808ns", "-9223372036854775809ns"),
    *("2562047h47m16.854775807s", "2562047h47m16.854775808s", "2562048h", "12345678901234567890s", "9" * 5000 + "h"),
    *(
        "0.1ns",
        "0.9999999999999999999999999h",
        ".3333333333333333333h",
        "0.00000000000000000001h",
        "1.00000000000000001s",
    ),
    *(
        "",
        "+",
        "-",
        "+-1s",
        "--1s",
        "5",
        "1.5",
        ".",
        ".s",
        "s",
        "1",
        "1x",
        "1d",
        "1S",
        "1H",
        "1 s",
        " 1s",
        "1s ",
        "1s\n",
    ),
    *("1,5h", "1_0s", "٣s", "1..5s", "1.5.5s", "00", "0x1s", "∞", "true", "false", "never"),
)


def _drawn(draw: random.Random) -> Iterator[str]:
    """Draw a duration of random parts, which is usually valid."""
    for _ in range(2000):
        parts = (f"{_number(draw)}{draw.choice(UNITS)}" for _ in range(draw.randint(1, 4)))
        yield draw.choice(("", "", "-", "+")) + "".join(parts)


def _number(draw: random.Random) -> str:
    integer = str(draw.randrange(10 ** draw.randint(1, 12)))
    fraction = "".join(draw.choices("0123456789", k=draw.randint(1, 18)))
    return draw.choice((integer, f"{integer}.{fraction}", f".{fraction}", f"{integer}."))


def _go(texts: Sequence[str]) -> list[int | None]:
    program = Path(__file__).with_name("durations.go")
    # With -trimpath, the packages that other builds have compiled are used.
    lines = golang.output(["run", "-trimpath", str(program), *texts]).splitlines()
    return [None if line == "error" else int(line) for line in lines]


def _ours(text: str) -> int | None:
    try:
        return durations.nanoseconds(text)
    except ValueError:
        return None


def test_durations_are_those_of_go() -> None:
    texts = [text for text in (*CHOSEN, *_drawn(random.Random(14))) if len(text) <= LONGEST_AMOUNT]
    parsed = {text: _ours(text) for text in texts}
    assert parsed == dict(zip(texts, _go(texts), strict=True))
    assert {"500ms", "-1h30m", "1.5h"} < {text for text, value in parsed.items() if value is not None}
    assert {"5", "2562048h", "1d"} < {text for text, value in parsed.items() if value is None}
