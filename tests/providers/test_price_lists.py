"""``rescheduler prices``: EC2 by moto, and stand-ins whose answers have the documented form, over real connections."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from moto import mock_aws

from rescheduler import cli
from rescheduler.planning.money import prices
from rescheduler.providers.price_lists import azure, gcp

#: What a stand-in answers: status and document, by the parameters or the body of the request.
Answer = Callable[[dict[str, Any]], tuple[int, Any]]
KEY = "not-a-real-key-0123456789"


@contextmanager
def standin(answer: Answer) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve *answer*; yield the address and the requests so far."""
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            given = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
            asked.append(json.loads(body) if body else given)
            status, document = answer(asked[-1])
            content = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _answer  # noqa: N815 - names of the library

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def ended(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[Any, str, str]]:
    def run(*flags: str) -> tuple[Any, str, str]:
        with pytest.raises(SystemExit) as exited:
            cli.main(["prices", *flags])
        return exited.value.code, *capfd.readouterr()

    return run


def nodes_file(folder: Path, types: dict[str, str]) -> str:
    """Write a file with a node in each zone of *types*, which maps zones to instance types."""
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"n-{zone}",
                "labels": {"node.kubernetes.io/instance-type": name, "topology.kubernetes.io/zone": zone},
            },
        }
        for zone, name in types.items()
    ]
    file = folder / "nodes.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": nodes}))
    return f"--snapshot={file}"


# Azure.


def azure_entry(
    name: str, price: float, suffix: str = "", product: str = "Virtual Machines D Series"
) -> dict[str, Any]:
    return {
        "currencyCode": "EUR",
        "tierMinimumUnits": 0.0,
        "retailPrice": price,
        "unitPrice": price,
        "armRegionName": "westeurope",
        "productName": product,
        "skuName": f"{name.removeprefix('Standard_')}{suffix}",
        "armSkuName": name,
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
    }


def azure_page(asked: dict[str, Any], troubles: list[int]) -> tuple[int, Any]:
    if troubles:
        return troubles.pop(), {"error": "busy"}
    if "$skip" not in asked:
        first = [azure_entry("Standard_D4s_v3", 0.24), azure_entry("Standard_D4s_v3", 0.5, product="D Series Windows")]
        link = "https://elsewhere.example:443/api/retail/prices?$filter=same&$skip=100"
        return 200, {"Items": [*first, azure_entry("Standard_D4s_v3", 0.1, " Low Priority")], "NextPageLink": link}
    other = azure_entry("Standard_D4s_v3", 9.0) | {"unitOfMeasure": "1/Month"}
    return 200, {"Items": [azure_entry("Standard_D4s_v3", 0.048, " Spot"), other], "NextPageLink": None}


def test_azure_pages_are_read_at_one_address_with_retries(
    ended: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    troubles = [503, 429]
    with standin(lambda asked: azure_page(asked, troubles)) as (address, asked):
        monkeypatch.setattr(azure, "URL", address)
        file = nodes_file(tmp_path, {"westeurope-1": "Standard_D4s_v3", "westeurope-2": "Standard_D4s_v3"})
        code, out, err = ended("azure", "--region=westeurope", "--currency=EUR", file)
    assert (code, err, troubles) == (0, "", [])
    assert prices.parse(out) == {
        ("Standard_D4s_v3", "", False): Decimal("0.24"),
        ("Standard_D4s_v3", "", True): Decimal("0.048"),
    }
    assert asked[0]["currencyCode"] == "'EUR'"
    assert asked[0]["$filter"] == (
        "serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and armRegionName eq 'westeurope' "
        "and (armSkuName eq 'Standard_D4s_v3')"
    )
    assert [each.get("$skip") for each in asked] == [None, None, None, "100"]


def test_an_output_file_is_replaced_only_by_complete_prices(
    ended: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, flags = (
        tmp_path / "prices.csv",
        ("azure", "--region=westeurope", "--currency=EUR", "--instance-type=Standard_D4s_v3"),
    )
    with standin(lambda asked: azure_page(asked, [])) as (address, _):
        monkeypatch.setattr(azure, "URL", address)
        assert ended(*flags, f"--output-file={file}") == (0, "", "")
    written = file.read_text()
    assert prices.parse(written)
    with standin(lambda _: (503, {"error": "down"})) as (address, _):
        monkeypatch.setattr(azure, "URL", address)
        assert ended(*flags, f"--output-file={file}")[0] == 1
    assert (file.read_text(), list(tmp_path.iterdir())) == (written, [file])


def test_without_boto3_no_file_is_written(ended: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    file = tmp_path / "prices.csv"
    code, _, err = ended("aws", "--region=eu-central-1", "--instance-type=m5.large", f"--output-file={file}")
    assert (code, "pip install '.[aws]'" in err, file.exists()) == (2, True, False)


@pytest.mark.parametrize(
    ("flags", "types"),
    [
        ([], ["a", "b", "c"]),
        (["--on-demand-node-label=topology.kubernetes.io/zone=1"], ["a"]),
        (
            ["--on-demand-node-label=topology.kubernetes.io/zone=1", "--spot-node-label=topology.kubernetes.io/zone=3"],
            ["a", "c"],
        ),
    ],
)
def test_labels_limit_the_instance_types(
    ended: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str], types: list[str]
) -> None:
    with standin(lambda _: (200, {"Items": [], "NextPageLink": None})) as (address, asked):
        monkeypatch.setattr(azure, "URL", address)
        ended("azure", "--region=x", nodes_file(tmp_path, {"1": "a", "2": "b", "3": "c"}), *flags)
    assert [name for name in "abc" if f"armSkuName eq '{name}'" in asked[0]["$filter"]] == types


def test_retries_have_a_limit(ended: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with standin(lambda _: (503, {"error": "down"})) as (address, asked):
        monkeypatch.setattr(azure, "URL", address)
        code, out, err = ended("azure", "--region=westeurope", "--currency=EUR", "--instance-type=Standard_D4s_v3")
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert "Azure Retail Prices" in err
    assert 1 < len(asked) < 6


def test_pages_have_a_limit(ended: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    page = {"Items": [], "NextPageLink": "https://prices.azure.com/api/retail/prices?$skip=1"}
    with standin(lambda _: (200, page)) as (address, asked):
        monkeypatch.setattr(azure, "URL", address)
        code, _, err = ended("azure", "--region=westeurope", "--currency=EUR", "--instance-type=Standard_D4s_v3")
    assert (code, err) == (1, "rescheduler: Azure Retail Prices: more than 100 pages for 1 machine types\n")
    assert len(asked) == 100


# Google Cloud.


def gcp_entry(description: str, usage: str, nanos: int, unit: str, *regions: str) -> dict[str, Any]:
    money = {"currencyCode": "USD", "units": "0", "nanos": nanos}
    rate = {"startUsageAmount": 0, "unitPrice": money}
    return {
        "description": description,
        "category": {"resourceFamily": "Compute", "resourceGroup": "CPU", "usageType": usage},
        "serviceRegions": list(regions),
        "pricingInfo": [{"pricingExpression": {"usageUnit": unit, "tieredRates": [rate]}}],
    }


CATALOG = [
    gcp_entry("N2 Instance Core running in Frankfurt", "OnDemand", 40_000_000, "h", "europe-west3"),
    gcp_entry("N2 Instance Ram running in Frankfurt", "OnDemand", 5_000_000, "GiBy.h", "europe-west3"),
    gcp_entry("N2 Instance Core running in Finland", "OnDemand", 1, "h", "europe-north1"),
    gcp_entry("N2 Custom Instance Core running in Frankfurt", "OnDemand", 2, "h", "europe-west3"),
    gcp_entry("Commitment v1: N2 Cpu in Frankfurt", "Commit1Yr", 3, "h", "europe-west3"),
    gcp_entry("Spot Preemptible N2 Instance Core running in Frankfurt", "Preemptible", 8_000_000, "h", "europe-west3"),
    gcp_entry("Spot Preemptible N2 Instance Ram running in Frankfurt", "Preemptible", 10**6, "GiBy.h", "europe-west3"),
]


def test_gcp_sums_the_parts_of_a_machine(ended: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def page(asked: dict[str, Any]) -> tuple[int, Any]:
        start = int(asked.get("pageToken", "0"))
        token = str(start + 3) if start + 3 < len(CATALOG) else ""
        return 200, {"skus": CATALOG[start : start + 3], "nextPageToken": token}

    (tmp_path / "key").write_text(f"{KEY}\n")
    with standin(page) as (address, asked):
        monkeypatch.setattr(gcp, "URL", address)
        flags = ("--region=europe-west3", "--instance-type=n2-highmem-2", "--instance-type=m9-odd-3")
        code, out, err = ended("gcp", *flags, f"--api-key-file={tmp_path / 'key'}")
    assert code == 0
    assert out == ("instance_type,zone,capacity_type,price\nn2-highmem-2,,on-demand,0.16\nn2-highmem-2,,spot,0.032\n")
    assert err.splitlines() == [
        f"rescheduler: warning: no {kind} price in europe-west3 for m9-odd-3" for kind in ("on-demand", "spot")
    ]
    assert [each["key"] for each in asked] == [KEY] * 3


@pytest.mark.parametrize("status", [400, 403, 500])
def test_the_key_is_in_no_message(status: int, ended: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text(KEY)
    with standin(lambda asked: (status, {"error": {"message": f"the key {asked['key']} is invalid"}})) as (address, _):
        monkeypatch.setattr(gcp, "URL", address)
        flags = ("--region=europe-west3", "--instance-type=n2-highmem-2", f"--api-key-file={tmp_path / 'key'}")
        code, out, err = ended("gcp", *flags)
    assert (code, out, KEY in err) == (1, "", False)
    assert "Cloud Billing" in err


# AWS.


def aws_entry(amount: str, unit: str = "Hrs") -> str:
    """Return an entry of AWS Price List, which is JSON in a text."""
    rate = {"unit": unit, "pricePerUnit": {"USD": amount}, "beginRange": "0", "endRange": "Inf"}
    term = {"priceDimensions": {"SKU.TERM.RATE": rate}, "sku": "SKU", "termAttributes": {}}
    return json.dumps({"product": {"productFamily": "Compute Instance"}, "terms": {"OnDemand": {"SKU.TERM": term}}})


def aws_page(asked: dict[str, Any]) -> tuple[int, Any]:
    name = next(each["Value"] for each in asked["Filters"] if each["Field"] == "instanceType")
    if name != "m5.large":
        return 200, {"FormatVersion": "aws_v1", "PriceList": []}
    if "NextToken" not in asked:
        return 200, {"FormatVersion": "aws_v1", "PriceList": [aws_entry("0", "Quantity")], "NextToken": "two"}
    return 200, {"FormatVersion": "aws_v1", "PriceList": [aws_entry("0.1150000000")]}


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ACCESS_KEY_ID", "testing"), ("SECRET_ACCESS_KEY", KEY), ("EC2_METADATA_DISABLED", "true")):
        monkeypatch.setenv(f"AWS_{name}", value)


@pytest.mark.usefixtures("account")
def test_aws_prices_are_those_of_the_zones_of_the_cluster(
    ended: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = nodes_file(tmp_path, {"eu-central-1a": "m5.large", "eu-central-1b": "c5.xlarge"})
    with mock_aws(), standin(aws_page) as (address, asked):
        monkeypatch.setenv("AWS_ENDPOINT_URL_PRICING", address)
        code, out, err = ended("aws", "--region=eu-central-1", file)
    assert (code, err) == (0, "rescheduler: warning: no on-demand price in eu-central-1 for c5.xlarge\n")
    zones = ("eu-central-1a", "eu-central-1b")
    spot = {(name, zone, True): Decimal("0.00001") for name in ("m5.large", "c5.xlarge") for zone in zones}
    assert prices.parse(out) == {("m5.large", "", False): Decimal("0.115"), **spot}
    fields = {each["Field"]: each["Value"] for each in asked[0]["Filters"]}
    assert fields["regionCode"] == "eu-central-1"
    assert (fields["operatingSystem"], fields["tenancy"], fields["capacitystatus"]) == ("Linux", "Shared", "Used")


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            (400, {"__type": "AccessDeniedException", "message": "not authorized: pricing:GetProducts"}),
            "not authorized",
        ),
        ((200, {"FormatVersion": "aws_v1", "PriceList": ["{}"]}), "an entry has another form than expected"),
        ((200, {"FormatVersion": "aws_v1", "PriceList": ["["]}), "an entry has another form than expected"),
    ],
)
def test_a_failed_request_is_one_line(
    answer: tuple[int, Any], says: str, ended: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mock_aws(), standin(lambda _: answer) as (address, _):
        monkeypatch.setenv("AWS_ENDPOINT_URL_PRICING", address)
        code, out, err = ended("aws", "--region=eu-central-1", "--instance-type=m5.large")
    assert (code, out, len(err.splitlines()), KEY in err) == (1, "", 1, False)
    assert says in err


# Usage.


WRONG = {
    "no region": (("aws",), "Missing option '--region'"),
    "an unknown cloud": (("oracle", "--region=a"), "'oracle' is not one of 'aws', 'azure', 'gcp'"),
    "a region that would change the request": (("azure", "--region=a' or '1"), "expected letters, digits"),
    "an instance type": (("azure", "--region=a", "--instance-type=a'b"), "expected letters, digits"),
    "a currency": (("azure", "--region=a", "--currency=euro"), "'euro': expected three capital letters, such as USD"),
    "a currency of AWS": (("aws", "--region=a", "--currency=EUR"), "has no other currency"),
    "no key": (("gcp", "--region=a"), "expected --api-key-file"),
    "no file with a key": (("gcp", "--region=a", "--api-key-file=/no/such"), "--api-key-file /no/such: "),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_usage_is_exit_code_2(case: str, ended: Any) -> None:
    flags, says = WRONG[case]
    code, out, err = ended(*flags)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert says in err


def test_nodes_without_instance_types_are_exit_code_3(ended: Any, tmp_path: Path) -> None:
    code, out, err = ended("azure", "--region=a", nodes_file(tmp_path, {"z": "<none>"}))
    assert (code, out) == (3, "")
    assert "no node of 1 has the label node.kubernetes.io/instance-type: expected --instance-type" in err
