"""StackPointCloud's environment, group specs and file: parsed values, and one-line error messages."""

from pathlib import Path

import pytest

from rescheduler import providers
from rescheduler.errors import ConfigError
from rescheduler.providers import stackpoint
from rescheduler.providers.base import GroupFlags, NodeGroup
from rescheduler.providers.stackpoint import config
from rescheduler.providers.stackpoint.config import Spec, StackpointFile
from tests.providers.clocks import StepClock
from tests.providers.stackpoints import TOKEN, environment

ENVIRONMENT = environment("https://api.stackpoint.io/")


def test_both_names_of_the_url_variable_are_accepted() -> None:
    other = {key: value for key, value in ENVIRONMENT.items() if key != "SPC_API_BASE_URL"} | {
        "SPC_BASE_API_URL": "http://x"
    }
    urls = [config.settings(None, GroupFlags(), environ).endpoint.url for environ in (ENVIRONMENT, other)]
    assert urls == ["https://api.stackpoint.io/", "http://x"]


@pytest.mark.parametrize("name", ["stackpoint", "spc", "stackpointio"])
def test_the_provider_has_aliases(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in ENVIRONMENT.items():
        monkeypatch.setenv(key, value)
    provider = providers.load(name, None, StepClock(), GroupFlags(("0:3:t2.medium:od",)))
    assert provider.name == "stackpoint"
    provider.close()


def test_group_specs_of_the_first_generation_are_parsed() -> None:
    specs = config.settings(None, GroupFlags(("0:3:t2.medium", "1:1:n1-standard-1:b")), ENVIRONMENT).specs
    assert specs == (
        Spec(NodeGroup("autoscaling-default", 0, 3, "StackPointCloud nodes of the size t2.medium"), "t2.medium"),
        Spec(NodeGroup("autoscaling-b", 1, 1, "StackPointCloud nodes of the size n1-standard-1"), "n1-standard-1"),
    )


def test_the_file_sets_the_constants_of_the_original(tmp_path: Path) -> None:
    file = tmp_path / "spc.yaml"
    file.write_text("nodePoolsFile: pools/nodepools\npollInterval: 5s\nbuildTimeout: 10m\n")
    settings = config.settings(file, GroupFlags(), ENVIRONMENT)
    assert settings.node_pools == tmp_path / "pools/nodepools"
    read = [settings.file.poll_interval, settings.file.build_timeout, settings.file.refresh_interval]
    assert [float(duration) for duration in read] == [5.0, 600.0, 60.0]


def test_settings_do_not_print_the_token() -> None:
    assert TOKEN not in repr(config.settings(None, GroupFlags(), ENVIRONMENT))


#: fact: (changes of the environment, --nodes, message)
WRONG: dict[str, tuple[dict[str, str], tuple[str, ...], str]] = {
    "a token with a blank": ({"CLUSTER_API_TOKEN": " a"}, (), "CLUSTER_API_TOKEN: expected a token"),
    "no token": ({"CLUSTER_API_TOKEN": ""}, (), "CLUSTER_API_TOKEN: expected a token"),
    "no URL": ({"SPC_API_BASE_URL": ""}, (), "SPC_API_BASE_URL: expected the URL"),
    "an invalid URL": ({"SPC_API_BASE_URL": "spc"}, (), "environment: SPC_API_BASE_URL.url: expected http(s)"),
    "no organization": ({"ORGANIZATION_ID": ""}, (), "ORGANIZATION_ID: expected a number in the environment, got ''"),
    "a cluster's name": ({"CLUSTER_ID": "mine"}, (), "CLUSTER_ID: expected a number in the environment, got 'mine'"),
    "too few parts": ({}, ("1:2",), "--nodes=1:2: expected min:max:type or min:max:type:id"),
    "an empty part": ({}, ("1:2:",), "--nodes=1:2:: expected min:max:type or min:max:type:id"),
    "a minimum that is not a number": ({}, ("a:2:t",), "--nodes=a:2:t: min: expected a number, 0 or more, got 'a'"),
    "a negative minimum": ({}, ("-1:2:t",), "--nodes=-1:2:t: min: expected a number, 0 or more, got '-1'"),
    "a maximum below it": ({}, ("3:2:t",), "--nodes=3:2:t: max: expected a number, 3 or more, got '2'"),
    "an id twice": ({}, ("0:1:t", "0:2:u:default"), "--nodes=0:2:u:default: the group 'autoscaling-default' occurs"),
}


@pytest.mark.parametrize("fact", WRONG)
def test_an_invalid_environment_or_group_is_reported(fact: str) -> None:
    changes, nodes, message = WRONG[fact]
    with pytest.raises(ConfigError) as caught:
        config.settings(None, GroupFlags(nodes), ENVIRONMENT | changes)
    assert str(caught.value).startswith(message)


#: file: (--nodes, message after the file's name)
WRONG_FILES: dict[str, tuple[tuple[str, ...], str]] = {
    "nodePools: x\n": ((), ": Object contains unknown field `nodePools`"),
    "pollInterval: 0s\n": ((), ": pollInterval: expected more than 0s"),
    "pollInterval: 5\n": ((), ': expected a duration such as "90s"'),
    "nodePoolsFile: x\n": (("0:1:t",), ", not both"),
}


@pytest.mark.parametrize("text", WRONG_FILES)
def test_an_invalid_file_is_reported_with_the_position_of_the_error(text: str, tmp_path: Path) -> None:
    nodes, message = WRONG_FILES[text]
    file = tmp_path / "spc.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        config.settings(file, GroupFlags(nodes), ENVIRONMENT)
    assert f"{file}{message}" in str(caught.value)


@pytest.mark.parametrize("text", [None, "", "# pollInterval: 15s\n", "{}"])
def test_missing_files_and_keys_have_defaults(text: str | None, tmp_path: Path) -> None:
    file = None if text is None else tmp_path / "spc.yaml"
    if file:
        file.write_text(text or "")
    assert config.settings(file, GroupFlags(), ENVIRONMENT).file == StackpointFile()


#: size: (CPUs, MB)
SIZES = {
    "n1-standard-4": (4, 15000),
    "n1-highmem-2": (2, 13000),
    "n1-highcpu-64": (64, 57600),
    "n1-highmem-1": None,
    "t2.medium": (2, 4000),
    "m4.16xlarge": (64, 256000),
    "c4.8xlarge": (36, 60000),
    "2gb": (2, 2000),
    "m-224gb": (32, 224000),
    "XL": (2, 4000),
    "2,INTEL_XEON,4096,50,SSD": (2, 4000),
    "standard_a3": (4, 7000),
    "basic_a2": (2, 3500),
    "standard_a8m_v2": (8, 64000),
    "standard_ds14_v2": (16, 112000),
    "standard_f8s": (8, 16000),
    "standard_g5": (32, 448000),
    "x1.large": None,
}


@pytest.mark.parametrize("size", SIZES)
def test_sizes_missing_in_the_api_are_derived_from_their_name(size: str) -> None:
    assert stackpoint.of(size) == SIZES[size]
