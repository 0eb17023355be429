"""Amounts of resources: Kubernetes quantities by resource name, in cores, bytes or units."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Final, TypeAlias

from predicates.quantity import parse

Amounts: TypeAlias = Mapping[str, Decimal]

_BINARY: Final = {"Gi": 2**30, "Mi": 2**20}


def amounts(quantities: Mapping[str, str]) -> dict[str, Decimal]:
    """Parse quantities. Raises ``predicates.quantity.QuantityError``, and its base ValueError for negative ones."""
    parsed = {}
    for name, text in quantities.items():
        quantity = parse(text)
        if quantity.mantissa < 0:
            raise ValueError(f"{name}: expected 0 or more, got {text!r}")
        parsed[name] = Decimal(quantity.mantissa).scaleb(quantity.power)
    return parsed


def quantities(amounts: Amounts) -> dict[str, str]:
    """Format amounts as quantities: as integers, in Gi or Mi if divisible, or as thousandths with the suffix ``m``."""
    return {name: _text(amount) for name, amount in amounts.items()}


def subtract(amounts: Amounts, other: Amounts) -> dict[str, Decimal]:
    """Return *amounts* minus *other*; no amount is below 0."""
    return {name: max(Decimal(0), amount - other.get(name, Decimal(0))) for name, amount in amounts.items()}


def plus(amounts: Amounts, other: Amounts) -> dict[str, Decimal]:
    return {name: amounts.get(name, Decimal(0)) + other.get(name, Decimal(0)) for name in amounts.keys() | other.keys()}


def limit_to(amounts: Amounts, other: Amounts) -> dict[str, Decimal]:
    """Return the smaller amount of each resource of *amounts*. Resources that *other* lacks are not limited."""
    return {name: min(amount, other.get(name, amount)) for name, amount in amounts.items()}


def count_fitting(available: Amounts, needed: Amounts) -> int:
    """Return how many times *needed* fits into *available*. Amounts of 0 always fit."""
    fits = [int(available.get(name, Decimal(0)) // amount) for name, amount in needed.items() if amount > 0]
    return min(fits, default=0)


def describe_shortages(available: Amounts, needed: Amounts) -> list[str]:
    """Return the insufficient resources, such as ``cpu 1 of 2``."""
    return [
        f"{name} {_text(available.get(name, Decimal(0)))} of {_text(amount)}"
        for name, amount in needed.items()
        if available.get(name, Decimal(0)) < amount
    ]


def _text(amount: Decimal) -> str:
    if amount != int(amount):
        return f"{int(amount * 1000)}m"
    for suffix, unit in _BINARY.items():
        if amount >= unit and amount % unit == 0:
            return f"{int(amount // unit)}{suffix}"
    return str(int(amount))
