"""Cherry's INI file, flags and environment: parsed values, and one-line error messages."""

import base64
from pathlib import Path

import pytest

from rescheduler.errors import ConfigError
from rescheduler.providers.base import GroupFlags, NodeGroup
from rescheduler.providers.cherryservers import config
from rescheduler.providers.cherryservers.config import CherryPool, Definition

ENVIRONMENT = {"CHERRY_AUTH_TOKEN": "t"}
CLOUD_INIT = "kubeadm join --token {{.BootstrapTokenID}}.{{ .BootstrapTokenSecret }} {{.APIServerEndpoint}}"
ENCODED = base64.b64encode(CLOUD_INIT.encode()).decode()

FULL = f"""\
; the default pool
[Global]
cluster-name = cluster1      # fits --cluster-name
project-id = 0x2711
api-server-endpoint = "10.0.0.1:6443"
region = eu_nord_1
plan = e5_1620v4
os = ubuntu_18_04
ssh-key-ids = 1
ssh-key-ids = 2
cloudinit = {ENCODED}
hostname-pattern = k8s-{{{{.NodeGroup}}}}-{{{{.RandString8}}}}
os-partition-size = 60

[nodegroupdef "pool2"]
region = us_chicago_1
plan = cloud_vps_2
Spot-Market = true
"""


def read(tmp_path: Path, text: str, *nodes: str, cluster: str = "") -> tuple[CherryPool, ...]:
    file = tmp_path / "cloud-config"
    file.write_text(text)
    return config.settings(file, GroupFlags(nodes, cluster), ENVIRONMENT).pools


def test_every_key_of_both_sections_is_read(tmp_path: Path) -> None:
    """A named pool has a separate definition, except for cluster name, project and API server."""
    pool1, pool2 = read(tmp_path, FULL, "0:10:pool1", "1:3:pool2", cluster="cluster2")
    assert pool1 == CherryPool(
        NodeGroup("pool1", 0, 10, "Cherry Servers pool pool1"),
        Definition(
            cluster_name="cluster1",
            project_id=10001,
            api_server_endpoint="10.0.0.1:6443",
            region="eu_nord_1",
            plan="e5_1620v4",
            os="ubuntu_18_04",
            ssh_key_ids=(1, 2),
            cloudinit=CLOUD_INIT,
            hostname_pattern="k8s-{{.NodeGroup}}-{{.RandString8}}",
            os_partition_size=60,
        ),
    )
    assert pool2 == CherryPool(
        NodeGroup("pool2", 1, 3, "Cherry Servers pool pool2"),
        Definition(
            cluster_name="cluster2",
            project_id=10001,
            api_server_endpoint="10.0.0.1:6443",
            region="us_chicago_1",
            plan="cloud_vps_2",
            spot_market=True,
        ),
    )


def test_the_api_server_key_of_the_original_readme_is_an_alias(tmp_path: Path) -> None:
    renamed = FULL.replace("api-server-endpoint", "api-server")
    (pool,) = read(tmp_path, renamed, "0:10:pool1")
    assert pool.definition.api_server_endpoint == "10.0.0.1:6443"
    both = FULL.replace("region = eu_nord_1", "api-server = y\nregion = eu_nord_1")
    with pytest.raises(ConfigError, match="api-server: occurs twice"):
        read(tmp_path, both, "0:10:pool1")


def test_a_definition_named_default_replaces_global(tmp_path: Path) -> None:
    text = '[global]\nproject-id = 1\n[nodegroupdef "default"]\nproject-id = 2\n'
    (pool,) = read(tmp_path, text, "0:1:p", cluster="c")
    assert pool.definition.project_id == 2


#: fact: (file, --nodes, message after "cloud configuration FILE: ")
WRONG_FILES = {
    "unknown section": ("[globl]\n", 'line 1: expected [global] or [nodegroupdef "NAME"]'),
    "a pool without a name": ("[nodegroupdef]\n", 'line 1: expected [global] or [nodegroupdef "NAME"]'),
    "no section at all": ("plan = x\n", "line 1: plan: expected a section before the first key"),
    "a broken header": ("[global\n", 'line 1: expected a section such as [global] or [nodegroupdef "pool1"]'),
    "a key without a value": ("[global]\nplan\n", "line 2: expected a section, key = value or a comment"),
    "a misspelled key": ("[global]\n\napi-servers = x\n", "line 3: api-servers: unknown key;"),
    "a key twice": ("[global]\nplan = a\nplan = b\n", "line 3: plan: occurs twice"),
    "a project that is not a number": (
        "[global]\nproject-id = x1\n",
        "line 2: project-id: expected a number, got 'x1'",
    ),
    "a key id that is not a number": (
        "[global]\nssh-key-ids = 5\nssh-key-ids = mine\n",
        "line 3: ssh-key-ids: number 2: expected a number, got 'mine'",
    ),
    "cloud-init that is not base64": ("[global]\ncloudinit = #!\n", "[global]: expected the definition"),
    "cloud-init in plain text": ("[global]\ncloudinit = runcmd:\n", "line 2: cloudinit: expected text in base64"),
    "an unknown variable": (
        f"[global]\ncloudinit = {base64.b64encode(b'{{.Token}}').decode()}\n",
        "line 2: cloudinit: {{.Token}}: expected one of {{.BootstrapTokenID}}, {{.BootstrapTokenSecret}}",
    ),
    "a template with control flow": (
        "[global]\nhostname-pattern = {{if .NodeGroup}}x{{end}}\n",
        "line 2: hostname-pattern: {{if .NodeGroup}}: expected one of {{.ClusterName}}",
    ),
    "an open template": ("[global]\nhostname-pattern = x-{{.NodeGroup\n", "line 2: hostname-pattern: a {{ is not"),
    "an open quote": ('[global]\nplan = "x\n', "line 2: plan: the quote is not closed"),
    "an invalid boolean": ("[global]\nspot-market = 1\n", "line 2: spot-market: expected true or false, got '1'"),
    "an empty file": ("", "[global]: expected the definition of the default pool"),
    "no cluster name": ("[global]\nproject-id = 1\n", "pool p: expected cluster-name here or --cluster-name"),
    "no project": ("[global]\ncluster-name = c\n", "pool p: expected project-id here or in [global]"),
}


@pytest.mark.parametrize("fact", WRONG_FILES)
def test_an_invalid_file_is_reported_in_one_line_with_the_cause(fact: str, tmp_path: Path) -> None:
    text, message = WRONG_FILES[fact]
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text, "0:1:p")
    assert str(caught.value).startswith(f"cloud configuration {tmp_path / 'cloud-config'}: {message}")


WRONG_NODES = {
    "none": ((), "--cloud-provider cherryservers: --nodes=min:max:pool is missing"),
    "too few parts": (("1:2",), "--nodes=1:2: expected min:max:pool"),
    "a minimum below zero": (("-1:2:p",), "--nodes=-1:2:p: min: expected a number, 0 or more, got '-1'"),
    "a maximum below the minimum": (("3:2:p",), "--nodes=3:2:p: max: expected a number, 3 or more, got '2'"),
    "a huge number": (("0:" + "9" * 5000 + ":p",), "--nodes=0:999"),
    "no name": (("1:2:",), "--nodes=1:2:: pool: expected at most 63 of"),
    "a name that is not a label value": (("1:2:-p",), "--nodes=1:2:-p: pool: expected at most 63 of"),
    "a name that is too long": (("1:2:" + "p" * 64,), "--nodes=1:2:ppp"),
    "a pool twice": (("1:2:p", "0:3:p"), "--nodes=0:3:p: the pool 'p' occurs twice"),
}


@pytest.mark.parametrize("fact", WRONG_NODES)
def test_an_invalid_group_is_reported_in_one_line_with_the_cause(fact: str, tmp_path: Path) -> None:
    nodes, message = WRONG_NODES[fact]
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, FULL, *nodes)
    assert str(caught.value).startswith(message)


WRONG_ENVIRONMENTS = {
    "no token": ({}, "CHERRY_AUTH_TOKEN: expected a token"),
    "a token with a blank": ({"CHERRY_AUTH_TOKEN": "secret "}, "CHERRY_AUTH_TOKEN: expected a token"),
    "a token of two lines": ({"CHERRY_AUTH_TOKEN": "se\ncret"}, "CHERRY_AUTH_TOKEN: expected a token"),
    "another backend": (ENVIRONMENT | {"CHERRY_MANAGER": "soap"}, "CHERRY_MANAGER 'soap': expected rest"),
    "no URL": (ENVIRONMENT | {"CHERRY_API_URL": "cherry"}, "environment: CHERRY_API_URL.url: expected http(s)://"),
}


@pytest.mark.parametrize("fact", WRONG_ENVIRONMENTS)
def test_an_invalid_environment_is_reported_without_its_secrets(fact: str) -> None:
    environ, message = WRONG_ENVIRONMENTS[fact]
    with pytest.raises(ConfigError) as caught:
        config.settings(Path("cloud-config"), GroupFlags(("0:1:p",)), environ)
    assert str(caught.value).startswith(message)
    assert "cret" not in str(caught.value)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory"):
        config.read(tmp_path / "nothing")


#: text of a value: parsed value
VALUES = {
    "plain": "plain",
    "with blanks  ": "with blanks",
    '"kept  "': "kept  ",
    '"a # b"; comment': "a # b",
    "a # comment": "a",
    r"tab\tand \"quote\" and \\": 'tab\tand "quote" and \\',
    "on \\\n  and on": "on   and on",
    "": "",
}


@pytest.mark.parametrize("text", VALUES)
def test_values_of_the_ini_dialect_are_parsed(text: str) -> None:
    assert [entry.value for entry in config.ini_entries(f"[s]\nkey = {text}\n") if entry.key] == [VALUES[text]]


def test_line_numbers_include_continuation_lines() -> None:
    entries = [
        (entry.line, entry.subsection, entry.key) for entry in config.ini_entries('[s "A\\"b"]\nx = 1\\\n 2\nY = 3\n')
    ]
    assert entries == [(1, 'A"b', ""), (2, 'A"b', "x"), (4, 'A"b', "y")]


#: template: rendered with A=1 and B=2
RENDERED = {
    "{{.A}}-{{ .B }}": "1-2",
    "x {{- .A -}} y": "x1y",
    "a{{/* nothing */}}b": "ab",
    "}} {": "}} {",
}


@pytest.mark.parametrize("text", RENDERED)
def test_templates_replace_their_variables(text: str) -> None:
    assert config.render(text, {"A": "1", "B": "2"}) == RENDERED[text]


def test_random_letters_have_no_b_and_no_digit() -> None:
    offered: list[str] = []
    assert config.random_letters(3, lambda letters: offered.append(letters) or letters[1]) == "ccc"  # type: ignore[func-returns-value]
    assert set(offered[0]) == set("acdefghijklmnopqrstuvwxyz")
