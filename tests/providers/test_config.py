"""Configuration files: parsed values, and one-line error messages."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rescheduler.providers
from rescheduler.cloudpool.client import PoolSection, read_pools
from rescheduler.errors import ConfigError
from rescheduler.net.config_files import Duration, Endpoint
from tests.providers.clocks import StepClock

MINIMAL = PoolSection(id="od", backend=Endpoint(url="http://pool:9010"))
FULL = """
pools:
- id: od
  backend: {url: https://pool/base/, timeout: 1m35s, connectTimeout: 300ms, attempts: 2, maxAnswerBytes: 1000,
            caFile: ca.pem, username: me, passwordFile: password}
  api: multipool
  minSize: 1
  maxSize: 5
  refreshInterval: 5s
  cacheAge: 1m
  pollInterval: 1.5s
  orderTimeout: 2h
  settleTime: 0s
  template:
    labels: {a: b}
    taints: [{key: k, effect: NoSchedule}]
    capacity: {cpu: "4"}
"""

#: fact: text of the file; all are equivalent.
VALID = {
    "JSON": '{"pools": [{"id": "od", "backend": {"url": "http://pool:9010"}}]}',
    "YAML": "pools:\n- id: od\n  backend:\n    url: http://pool:9010\n",
    "YAML, in flow style": "pools: [{id: od, backend: {url: 'http://pool:9010'}}]",
}

#: fact: (text of the file, message after its name)
INVALID = {
    "empty": ("", "Object missing required field `pools`"),
    "no pools": ("pools: []", "pools: expected at least one"),
    "an unknown key": ("pools: []\nfoo: 1", "Object contains unknown field `foo`"),
    "an unknown key of a pool": (
        "pools: [{id: a, backend: {url: 'http://a'}, minSiez: 1}]",
        "Object contains unknown field `minSiez` - at `$.pools[0]`; did you mean minSize?",
    ),
    "a missing key": ("pools: [{id: a}]", "Object missing required field `backend` - at `$.pools[0]`"),
    "a wrong type": (
        "pools: [{id: a, backend: {url: 'http://a'}, minSize: two}]",
        "Expected `int`, got `str` - at `$.pools[0].minSize`",
    ),
    "a number for a duration": (
        "pools: [{id: a, backend: {url: 'http://a', timeout: 5}}]",
        'expected a duration such as "90s" or "1m35s", got 5 - at `$.pools[0].backend.timeout`',
    ),
    "a duration without a unit": (
        "pools: [{id: a, backend: {url: 'http://a', timeout: '5'}}]",
        'expected a duration such as 10s, 2m30s, 1h or 500ms, got "5" - at `$.pools[0].backend.timeout`',
    ),
    "zero duration": (
        "pools: [{id: a, backend: {url: 'http://a', timeout: 0s}}]",
        "pools[0].backend.timeout: expected more than 0s",
    ),
    "a key twice in YAML": (
        "pools: []\npools: []",
        "the key 'pools' occurs twice in the mapping that begins in line 1",
    ),
    "a key twice in JSON": ('{"pools": [], "pools": []}', "the key 'pools' occurs twice"),
    "broken JSON": ('{"pools": [}', "Expecting value: line 1 column 12 (char 11)"),
    "a name twice": (
        "pools: [{id: a, backend: {url: 'http://a'}}, {id: a, backend: {url: 'http://b'}}]",
        "pools[1].id: 'a' occurs twice",
    ),
    "no name": ("pools: [{id: ' ', backend: {url: 'http://a'}}]", "pools[0].id: expected a name"),
    "a maximum below the minimum": (
        "pools: [{id: a, backend: {url: 'http://a'}, minSize: 3, maxSize: 2}]",
        "pools[0].maxSize: expected minSize to 2147483647",
    ),
    "a negative minimum": (
        "pools: [{id: a, backend: {url: 'http://a'}, minSize: -1}]",
        "pools[0].minSize: expected 0 or more",
    ),
    "an invalid host": (
        "pools: [{id: a, backend: {url: 'http://a..b'}}]",
        "pools[0].backend.url: expected http(s)://host[:port][/path], without user, query or fragment",
    ),
    "a password in the URL": (
        "pools: [{id: a, backend: {url: 'http://me:secret@a'}}]",
        "pools[0].backend.url: expected http(s)://host[:port][/path], without user, query or fragment",
    ),
    "another scheme": (
        "pools: [{id: a, backend: {url: 'ftp://a'}}]",
        "pools[0].backend.url: expected http(s)://host[:port][/path], without user, query or fragment",
    ),
    "an invalid port": (
        "pools: [{id: a, backend: {url: 'http://a:port'}}]",
        "pools[0].backend.url: expected http(s)://host[:port][/path], without user, query or fragment",
    ),
    "half a pair": (
        "pools: [{id: a, backend: {url: 'http://a', username: me}}]",
        "pools[0].backend.passwordFile: expected username and passwordFile, both or neither",
    ),
    "two kinds of credentials": (
        "pools: [{id: a, backend: {url: 'http://a', username: me, passwordFile: p, tokenFile: t}}]",
        "pools[0].backend.tokenFile: expected a token or a username, not both",
    ),
    "a key without its certificate": (
        "pools: [{id: a, backend: {url: 'http://a', clientKeyFile: k}}]",
        "pools[0].backend.clientKeyFile: expected clientCertFile as well",
    ),
}


@pytest.mark.parametrize("fact", VALID)
def test_equal_files_in_other_forms_are_read_equally(fact: str, tmp_path: Path) -> None:
    file = tmp_path / "cloud"
    file.write_text(VALID[fact])
    assert read_pools(file) == [MINIMAL]


def test_every_key_is_read(tmp_path: Path) -> None:
    file = tmp_path / "cloud.yaml"
    file.write_text(FULL)
    (pool,) = read_pools(file)
    assert pool.backend == Endpoint(
        url="https://pool/base/",
        timeout=Duration(95),
        connect_timeout=Duration(0.3),
        attempts=2,
        max_answer_bytes=1000,
        ca_file="ca.pem",
        username="me",
        password_file="password",
    )
    assert (pool.api, pool.min_size, pool.max_size) == ("multipool", 1, 5)
    durations = (pool.refresh_interval, pool.cache_age, pool.poll_interval, pool.order_timeout, pool.settle_time)
    assert durations == tuple(map(Duration, (5, 60, 1.5, 7200, 0)))
    assert pool.template is not None
    assert (pool.template.labels, pool.template.capacity) == ({"a": "b"}, {"cpu": "4"})


@pytest.mark.parametrize("fact", INVALID)
def test_an_invalid_file_is_rejected_with_its_key(fact: str, tmp_path: Path) -> None:
    text, message = INVALID[fact]
    file = tmp_path / "cloud"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_pools(file)
    assert str(caught.value) == f"cloud configuration {file}: {message}"
    assert "secret" not in str(caught.value)


#: fact: (bytes of the file, or `None` if it does not exist; message)
UNREADABLE = {
    "no file": (None, "cannot be read: No such file or directory"),
    "not UTF-8": (b"\xff\xfe", "cannot be read: it is not UTF-8"),
    "deep nesting": (b"pools: " + b"[" * 600, "maximum recursion depth exceeded"),
    "invalid YAML": (b"pools: [", "while parsing a flow node expected the node content"),
}


@pytest.mark.parametrize("fact", UNREADABLE)
def test_an_unreadable_file_is_reported_in_one_line(fact: str, tmp_path: Path) -> None:
    content, message = UNREADABLE[fact]
    file = tmp_path / "cloud"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_pools(file)
    assert str(caught.value).startswith(f"cloud configuration {file}: {message}")
    assert "\n" not in str(caught.value)


@given(st.integers(0, 99), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_a_duration_is_the_sum_of_its_parts(hours: int, minutes: int, seconds: int, milliseconds: int) -> None:
    text = f"{hours}h{minutes}m{seconds}s{milliseconds}ms"
    assert Duration.parse(text) == pytest.approx(hours * 3600 + minutes * 60 + seconds + milliseconds / 1000)


@pytest.mark.parametrize("text", ["", "s", "5", "-5s", "5 s", "5s ", "1e3s", "5d", "٣s", None, 5, True, ["5s"]])
def test_values_that_are_not_durations_are_rejected(text: Any) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        Duration.parse(text)


#: fact: (--cloud-provider, whether --cloud-config is set, message)
CHOICES = {
    "an unknown provider": ("azure", False, "--cloud-provider 'azure': expected one of none, cloudpool"),
    "none with a file": (
        "none",
        True,
        "--cloud-config {file}: the cloud provider 'none' has nothing to configure",
    ),
    "a cloudpool without a file": ("cloudpool", False, "--cloud-provider cloudpool: --cloud-config FILE is missing"),
}


@pytest.mark.parametrize("fact", CHOICES)
def test_an_invalid_choice_of_the_provider_is_reported(fact: str, tmp_path: Path) -> None:
    name, configured, message = CHOICES[fact]
    file = tmp_path / "cloud"
    with pytest.raises(ConfigError) as caught:
        rescheduler.providers.load(name, file if configured else None, StepClock())
    assert str(caught.value).startswith(message.format(file=file))


def test_the_default_owns_nothing() -> None:
    provider = rescheduler.providers.load("none", None, StepClock())
    assert (provider.name, list(provider.groups(deadline=1))) == ("none", [])


def test_a_provider_is_created_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "cloud.yaml"
    file.write_text(VALID["YAML"])
    provider = rescheduler.providers.load("cloudpool", file, StepClock())
    assert [group.id for group in provider.groups(deadline=1)] == ["od"]
    provider.close()
