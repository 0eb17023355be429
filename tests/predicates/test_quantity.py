"""Quantities. The expected values were computed by ``resource.Quantity`` of apimachinery v0.36.3."""

from fractions import Fraction
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predicates.quantity import MAX_INT64, Quantity, QuantityError, parse

#: text, Value, MilliValue
VALUES = [
    ("0", 0, 0),
    ("1", 1, 1000),
    ("-1", -1, -1000),
    ("+1", 1, 1000),
    ("007", 7, 7000),
    ("100m", 1, 100),
    ("1500m", 2, 1500),
    ("1.5", 2, 1500),
    ("0.1", 1, 100),
    ("0.0001", 1, 1),
    ("1e3", 1000, 1000000),
    ("1E3", 1000, 1000000),
    ("1e-3", 1, 1),
    ("12e6", 12000000, 12000000000),
    ("1.5e3", 1500, 1500000),
    ("1e+3", 1000, 1000000),
    ("1e0", 1, 1000),
    ("123456u", 1, 124),
    ("134217728000m", 134217728, 134217728000),
    ("999999999n", 1, 1000),
    ("1n", 1, 1),
    ("100001n", 1, 1),
    ("0.1n", 1, 1),
    ("1.0000000001", 2, 1001),
    ("-0.1n", 1, 1),
    ("1k", 1000, 1000000),
    ("1M", 1000000, 1000000000),
    ("1G", 1000000000, 1000000000000),
    ("1T", 1000000000000, 1000000000000000),
    ("1P", 1000000000000000, 1000000000000000000),
    ("1E", 1000000000000000000, 0),
    ("1Ki", 1024, 1024000),
    ("1Mi", 1048576, 1048576000),
    ("1Gi", 1073741824, 1073741824000),
    ("1Ti", 1099511627776, 1099511627776000),
    ("1Pi", 1125899906842624, 1125899906842624000),
    ("1Ei", 1152921504606846976, -9223372036854775808),
    ("7Ei", 8070450532247928832, -9223372036854775808),
    ("8Ei", 9223372036854775807, -1000),
    ("16Ei", 9223372036854775807, -1000),
    ("-8Ei", -9223372036854775807, 1000),
    ("1.5Ki", 1536, 1536000),
    ("1.5Gi", 1610612736, 1610612736000),
    ("0.5Ki", 512, 512000),
    ("0.0001Ki", 1, 103),
    ("1.5Ei", 1729382256910270464, -4611686018427387904),
    ("100Ti", 109951162777600, 109951162777600000),
    (".5", 1, 500),
    ("5.", 5, 5000),
    ("-.5", -1, -500),
    (".5Ki", 512, 512000),
    ("+", 0, 0),
    ("-", 0, 0),
    (".", 0, 0),
    ("m", 0, 0),
    ("Ki", 0, 0),
    ("E", 0, 0),
    ("1e18", 1000000000000000000, 0),
    ("1e19", 0, 0),
    ("1e30", 0, 0),
    ("1e300", 0, 0),
    ("9E", 9000000000000000000, 0),
    ("10E", 0, 0),
    ("9223372036854775807", 9223372036854775807, -1000),
    ("9223372036854775808", -9223372036854775808, 0),
    ("9999999999999999999", -8446744073709551617, 1864712049423023128),
    ("18446744073709551616", 0, 0),
    ("9223372036854775807m", 9223372036854776, 9223372036854775807),
    ("9223372036854775808m", 9223372036854776, -9223372036854775808),
    ("-9223372036854775808", 0, 0),
    ("-9223372036854775809", -1, -1000),
    ("123456789012345678", 123456789012345678, -5670419503621183312),
    ("1234567890123456789", 1234567890123456789, -1363962815083169272),
    ("0.123456789012345678", 1, 124),
    ("1.123456789012345678", 2, 1124),
    ("999999999999999999m", 1000000000000000, 999999999999999999),
    ("1000000000000000000m", 1000000000000000, 1000000000000000000),
    ("-1.5", -2, -1500),
    ("-1500m", -2, -1500),
    ("-1.5Ki", -1536, -1536000),
    ("-0.5Ki", -512, -512000),
    ("-1234567890.1234567891", -1234567889, -1234567890122),
    ("9007199254740993", 9007199254740993, 9007199254740993000),
    ("9223372036854775k", 9223372036854775000, -808000),
    ("9223372036854776k", -9223372036854775616, 192000),
    ("1e-9", 1, 1),
    ("1e-10", 1, 1),
    ("1e-100", 1, 1),
    ("0e1000", 0, 0),
    ("1000000000000000000000n", 1000000000000, 1000000000000000),
    ("  5  ", 5, 5000),
    ("5 ", 5, 5000),
]

#: summands, Value and MilliValue of the sum, Value and MilliValue of the maximum
SUMS = [
    (("100m", "200m"), (1, 300), (1, 200)),
    (("1", "1n"), (2, 1001), (1, 1000)),
    (("1Gi", "1G", "1"), (2073741825, 2073741825000), (1073741824, 1073741824000)),
    (("1.5Ki", "1.5Ki"), (3072, 3072000), (1536, 1536000)),
    (("0.1n", "0.1n"), (1, 1), (1, 1)),
    (("5E", "5E"), (0, 0), (5000000000000000000, 0)),
    (("8Ei", "1"), (-9223372036854775808, 0), (9223372036854775807, -1000)),
    (("8Ei", "8Ei"), (-2, -2000), (9223372036854775807, -1000)),
    (("9223372036854775807", "1"), (-9223372036854775808, 0), (9223372036854775807, -1000)),
    (
        ("1e18", "1e18", "1e18", "1e18", "1e18", "1e18", "1e18", "1e18", "1e18", "1e18"),
        (0, 0),
        (1000000000000000000, 0),
    ),
    (("1e30", "1"), (5076944270305263617, 4089650035136922600), (0, 0)),
    (("1e30", "-1e30"), (0, 0), (0, 0)),
    (("-1.5", "0.25"), (-2, -1250), (1, 250)),
    (("-1.5Ki", "0.5"), (-1534, -1535500), (1, 500)),
    (("999999999999999999n", "1"), (1000000001, 1000000001000), (1000000000, 1000000000000)),
    (("0", "-0.5Ki"), (-512, -512000), (0, 0)),
]

BROKEN = {
    "empty": "",
    "blank": " ",
    "space inside": "1 Gi",
    "lower-case unit": "1gi",
    "bytes": "1KB",
    "incomplete suffix": "1i",
    "two decimal points": "1.2.3",
    "exponent without digits": "1e",
    "two exponents": "1ee3",
    "exponent and suffix": "1e3i",
    "invalid exponent": "1e3.5",
    "hexadecimal": "0x10",
    "underscore": "1_000",
    "word": "one",
    "two signs": "--1",
    "both signs": "+-1",
    "trailing sign": "1-",
    "sum": "1+3",
    "very small without a digit": "e-10",
    "suffix too long": "Kii",
    "unknown suffix": "1Zi",
    "non-ASCII digit": "\u0661",
    "line break": "1\n",
    "not a number": "NaN",
    "infinite": "Infinity",
}


@pytest.mark.parametrize(("text", "units", "millis"), VALUES)
def test_value_and_milli_value_match_go(text: str, units: int, millis: int) -> None:
    assert (parse(text).units, parse(text).millis) == (units, millis)


@pytest.mark.parametrize(("texts", "total", "largest"), SUMS)
def test_sums_and_maxima_match_go(texts: tuple[str, ...], total: tuple[int, int], largest: tuple[int, int]) -> None:
    actual = reduce(Quantity.plus, map(parse, texts))
    most = reduce(Quantity.larger, map(parse, texts))
    assert ((actual.units, actual.millis), (most.units, most.millis)) == (total, largest)


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_invalid_text_is_rejected_with_an_example(text: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse(text)
    assert str(caught.value) == f"quantity {text!r}: expected a number such as 250m, 1.5Gi or 1e3"


@pytest.mark.parametrize("text", ["9" * 65, "9" * 250_000, f"1e{10**6}", "1e-1001", "1e99999999999999999999"])
def test_very_long_number_is_rejected_and_abbreviated(text: str) -> None:
    with pytest.raises(QuantityError, match=r"expected at most (64 characters|e1000)") as caught:
        parse(text)
    assert len(str(caught.value)) < 100


@pytest.mark.parametrize(("number", "units", "millis"), [(2, 2, 2000), (0.25, 1, 250), (1e3, 1000, 10**6)])
def test_json_numbers_are_quantities(number: float, units: int, millis: int) -> None:
    assert (parse(number).units, parse(number).millis) == (units, millis)


_SUFFIXES = {
    **{letter: Fraction(10) ** power for letter, power in zip("num kMGTPE", range(-9, 21, 3), strict=True)},
    **{f"{letter}i": Fraction(2) ** (10 * power) for power, letter in enumerate("KMGTPE", 1)},
    "": Fraction(1),
    "e3": Fraction(1000),
    "E-4": Fraction(1, 10000),
}
del _SUFFIXES[" "]
_NUMBERS = st.from_regex(r"[0-9]{1,6}(\.[0-9]{0,12})?", fullmatch=True)
_SMALL = st.sampled_from(["n", "u", "m", "", "k", "M", "Ki", "Mi", "e3", "E-4"])


def _exact(number: str, suffix: str) -> Fraction:
    whole, _, fraction = number.partition(".")
    return Fraction(int(whole + fraction), 10 ** len(fraction)) * _SUFFIXES[suffix]


@given(_NUMBERS, _SMALL)
def test_positive_amount_is_rounded_up_to_billionths(number: str, suffix: str) -> None:
    exact = _exact(number, suffix)
    to_nanos = Fraction(-(-exact * 10**9 // 1), 10**9)
    actual = parse(number + suffix)
    assert (actual.units, actual.millis) == (-(-to_nanos // 1), -(-to_nanos * 1000 // 1))


@given(st.lists(st.tuples(_NUMBERS, _SMALL), min_size=1, max_size=6))
def test_sum_is_exact_and_rounded_once(parts: list[tuple[str, str]]) -> None:
    to_nanos = [Fraction(-(-_exact(*part) * 10**9 // 1), 10**9) for part in parts]
    actual = reduce(Quantity.plus, (parse(number + suffix) for number, suffix in parts))
    assert (actual.units, actual.millis) == (-(-sum(to_nanos) // 1), -(-sum(to_nanos) * 1000 // 1))


@given(st.tuples(_NUMBERS, _SMALL), st.tuples(_NUMBERS, _SMALL))
def test_larger_returns_the_larger_number(left: tuple[str, str], right: tuple[str, str]) -> None:
    first, second = (parse(number + suffix) for number, suffix in (left, right))
    most = max(map(_number, (first, second)))
    assert (_number(first.larger(second)), first < second) == (most, _number(first) < _number(second))


def _number(quantity: Quantity) -> Fraction:
    return quantity.mantissa * Fraction(10) ** quantity.power


@given(st.text(alphabet="0123456789.+-eEinumkKMGTP x", max_size=12))
def test_any_text_is_a_64_bit_quantity_or_a_quantity_error(text: str) -> None:
    try:
        actual = parse(text)
    except QuantityError:
        return
    assert all(-MAX_INT64 - 1 <= number <= MAX_INT64 for number in (actual.units, actual.millis))
