"""Tests of price files: valid files, and the error messages for all others."""

from decimal import Decimal

import pytest

from rescheduler.errors import InputError
from rescheduler.planning.money.prices import PriceKey, parse

HEADER = "instance_type,zone,capacity_type,price\n"
DIGITS = "with at most 9 digits before and 12 after the point"
EXPECTED = "expected the columns instance_type,zone,capacity_type,price (zone is optional)"

PRICES: dict[PriceKey, Decimal] = {
    ("m5.large", "a", False): Decimal("0.107"),
    ("m5.large", "", True): Decimal("0.04"),
}

EQUIVALENT = {
    "CSV": HEADER + "m5.large,a,on-demand,0.107\nm5.large,,spot,0.04\n",
    "spellings of clouds": HEADER + "m5.large,a,ON_DEMAND,0.107\nm5.large,,SPOT,0.04\n",
    "other spellings of clouds": HEADER + "m5.large,a,OnDemand,0.107\nm5.large,,Spot,0.04\n",
    "names of GKE": HEADER + "m5.large,a,standard,0.107\nm5.large,,preemptible,0.04\n",
    "names of AKS": HEADER + "m5.large,a,Regular,0.107\nm5.large,,Low Priority,0.04\n",
    "another order": "price,capacity_type,instance_type,zone\n0.107,on-demand,m5.large,a\n0.04,spot,m5.large,\n",
    "CRLF": (HEADER + "m5.large,a,on-demand,0.107\nm5.large,,spot,0.04\n").replace("\n", "\r\n"),
    "a byte order mark": "\ufeff" + HEADER + "m5.large,a,on-demand,0.107\nm5.large,,spot,0.04",
    "spaces and empty lines": "\n" + HEADER + "\n m5.large , a , on-demand , 0.107 \n,,,\nm5.large,,spot,0.04\n",
    "quotes": HEADER + '"m5.large","a","on-demand","0.107"\n"m5.large","",spot,"0.04"\n',
    "the same price twice": HEADER + "m5.large,a,on-demand,0.107\n" * 2 + "m5.large,,spot,0.04\nm5.large,,spot,0.040\n",
    "JSON": """[
        {"instance_type": "m5.large", "zone": "a", "capacity_type": "on-demand", "price": 0.107},
        {"instance_type": "m5.large", "capacity_type": "spot", "price": "0.04"}
    ]""",
    "JSON with a zone that is null": """[
        {"instance_type": "m5.large", "zone": "a", "capacity_type": "on-demand", "price": 0.107},
        {"instance_type": "m5.large", "zone": null, "capacity_type": "spot", "price": 0.04}
    ]""",
}

WRONG = {
    "an empty file": ("", "it has no prices"),
    "blank lines": ("\n\n", "it has no prices"),
    "a header alone": (HEADER, "it has no prices"),
    "an empty array": ("[]", "it has no prices"),
    "no header": ("m5.large,a,spot,1\n", f"line 1: unknown column 'm5.large': {EXPECTED}"),
    "a column is missing": ("instance_type,price\nm5,1\n", f"line 1: no column capacity_type: {EXPECTED}"),
    "a column twice": ("price,price\n", f"line 1: column price occurs twice: {EXPECTED}"),
    "too few columns": (HEADER + "m5.large,spot,1\n", "line 2: 3 columns: expected 4, as in the header"),
    "too many columns": (HEADER + "m5,a,spot,1,5\n", "line 2: 5 columns: expected 4, as in the header"),
    "a comma in the price": (HEADER + 'm5,a,spot,"1,5"\n', "line 2: price: '1,5': expected a price per hour"),
    "a negative price": (HEADER + "m5,a,spot,-1\n", "line 2: price: '-1': expected a price per hour such as 0.0832"),
    "NaN": (HEADER + "m5,a,spot,NaN\n", "line 2: price: 'NaN': expected a price per hour"),
    "infinity": (HEADER + "m5,a,spot,inf\n", "line 2: price: 'inf': expected a price per hour"),
    "no price": (HEADER + "m5,a,spot,\n", "line 2: price: '': expected a price per hour"),
    "a huge price": (HEADER + "m5,a,spot,1234567890\n", "line 2: price: '1234567890': expected a price"),
    "a currency sign": (HEADER + "m5,a,spot,$1\n", "line 2: price: '$1': expected a price per hour"),
    "no type": (HEADER + ",a,spot,1\n", "line 2: instance_type: expected a name such as m5.xlarge"),
    "a capacity type": (HEADER + "m5,a,reserved,1\n", "line 2: capacity_type: 'reserved': expected on-demand or spot"),
    "another price": (
        HEADER + "m5,a,spot,1\nm5,a,on-demand,1\nm5,a,spot,2\n",
        "line 4: m5 in zone a (spot) already has another price, 1",
    ),
    "an open quote": (HEADER + 'm5,a,spot,"1\n', "line 2: expected CSV: unexpected end of data"),
    "not JSON": ("[{]", "line 1: expected JSON: Expecting property name enclosed in double quotes in column 3"),
    "deep JSON": ("[" * 100_000, "expected JSON: it is nested too deeply"),
    "an object": ('{"m5": 1}', "expected a JSON array of objects with the keys instance_type, zone"),
    "not objects": ("[1]", "entry 1: expected an object with the keys instance_type, zone"),
    "an unknown key": ('[{"type": "m5"}]', "entry 1: unknown column 'type'"),
    "a missing key": ('[{"instance_type": "m5", "price": 1}]', "entry 1: no column capacity_type"),
    "a key twice": (
        '[{"instance_type": "m5", "price": 1, "capacity_type": "spot", "price": 2}]',
        f"entry 1: column price occurs twice: {EXPECTED}",
    ),
    "a number with an exponent": (
        '[{"instance_type": "m5", "capacity_type": "spot", "price": 1e400}]',
        "entry 1: price: '1e400': expected a price per hour such as 0.0832",
    ),
    "a price with many digits": (
        HEADER + f"m5,a,spot,{'9' * 5000}\n",
        f"line 2: price: '{'9' * 40}…': expected a price per hour such as 0.0832, {DIGITS}",
    ),
    "a price with too many decimals": (
        f"{HEADER}m5,a,spot,0.{'1' * 13}\n",
        f"line 2: price: '0.{'1' * 13}': expected a price per hour such as 0.0832, {DIGITS}",
    ),
    "a line after one with a separator of Unicode": (HEADER + "a\u2028b,,spot,1\nm5,,spot,x\n", "line 3: price: 'x': "),
    "another type": (
        '[{"instance_type": null, "capacity_type": "spot", "price": 1}]',
        "entry 1: instance_type: expected a text",
    ),
    "a price as a list": (
        '[{"instance_type": "m5", "capacity_type": "spot", "price": []}]',
        "entry 1: price: expected a number",
    ),
    "NaN in JSON": (
        '[{"instance_type": "m5", "capacity_type": "spot", "price": NaN}]',
        "entry 1: price: 'NaN': expected a price",
    ),
    "a negative number": (
        '[{"instance_type": "m5", "capacity_type": "spot", "price": -1}]',
        "entry 1: price: '-1': expected",
    ),
}


@pytest.mark.parametrize("text", EQUIVALENT.values(), ids=EQUIVALENT)
def test_all_forms_give_the_same_prices(text: str) -> None:
    assert parse(text) == PRICES


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG)
def test_an_invalid_file_is_reported_with_the_position_of_the_error(text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        parse(text)
    assert str(error.value).startswith(message)
