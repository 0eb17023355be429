"""The configurations on the pages in docs/ work as documented."""

import json
import re
import shlex
from pathlib import Path
from urllib.parse import parse_qs

import msgspec
import pytest
import yaml

from predicates.snapshot import DRAIN_TAINT
from rescheduler import providers
from rescheduler.cli import main
from rescheduler.cloudpool import client as cloudpool
from rescheduler.cloudpool.pool import CloudPool
from rescheduler.cloudpool.proxy import config
from rescheduler.cloudpool.proxy.config import DrainSection, ProxyFile
from rescheduler.draining.actions import ANNOTATION
from rescheduler.errors import ConfigError
from rescheduler.grpc_service import serve
from rescheduler.grpc_service.serve import Serving
from rescheduler.housekeeping import composition
from rescheduler.net.config_files import Endpoint
from rescheduler.providers.aws import client as aws_client
from rescheduler.providers.aws import config as aws_config
from rescheduler.providers.aws.config import AwsSettings
from rescheduler.providers.base import GroupFlags
from rescheduler.providers.cherryservers import config as cherry
from rescheduler.providers.stackpoint import config as stackpoint
from rescheduler.providers.stackpoint.config import StackpointFile
from rescheduler.settings import ListenAddress, Running
from tests.providers import awses, pki
from tests.providers.cherry import ENVIRONMENT
from tests.providers.clocks import StepClock
from tests.providers.cloudpools import serving, settings
from tests.providers.stackpoints import environment

DOCS = Path(__file__).parents[2] / "docs"


def block(page: str, language: str) -> str:
    match = re.search(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
    assert match is not None
    return match[1]


def keys(*shapes: type[msgspec.Struct]) -> list[str]:
    return [field.encode_name for shape in shapes for field in msgspec.structs.fields(shape)]


def test_the_page_without_a_provider_has_valid_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon gets the arguments of the page; other tests cover the drain itself."""
    calls: list[Running] = []

    def run(_connection: object, _policy: object, running: Running, *_: object) -> int:
        calls.append(running)
        return 0

    monkeypatch.setattr(composition, "run", run)
    program, *arguments = shlex.split(block("none.md", "bash"))
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert (program, ended.value.code) == ("rescheduler", 0)
    [running] = calls
    assert providers.load(running.provider.name, None, StepClock(), GroupFlags()).name == "none"
    with pytest.raises(ConfigError, match="has nothing to configure"):
        providers.load("none", Path("file"), StepClock(), GroupFlags())


def test_the_file_of_the_cloudpool_page_works(tmp_path: Path) -> None:
    """The page's file, with a pool at another address, sends the page's password over the page's TLS."""
    pki.make(tmp_path)
    (tmp_path / "password").write_text("secret")
    secured = {"cert_file": "server.pem", "username": "rescheduler", "password_file": "password"}
    clock = StepClock()
    with serving(settings(**secured), clock, tmp_path) as server:
        file = tmp_path / "cloudpool.yaml"
        file.write_text(block("cloudpool.md", "yaml").replace("https://cloudpool.example.com:8443", server.url))
        provider = providers.load("cloudpool", file, clock, GroupFlags())
        [group] = provider.groups(deadline=clock.monotonic() + 10)
        assert (group.id, group.min_size, group.max_size) == ("on-demand", 1, 20)
        assert provider.target_size(group.id, deadline=clock.monotonic() + 10) == 3
        provider.close()


def test_the_documented_file_of_the_proxy_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's file, with a pool at another address, sends the page's password."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "password").write_text("secret")
    clock = StepClock()
    with serving(settings(username="proxy", password_file="password"), clock, tmp_path) as server:
        file = tmp_path / "proxy.json"
        file.write_text(block("cloudpool.md", "json").replace("http://127.0.0.1:9010", server.url))
        proxied = config.read(file)
        pool = CloudPool(proxied.pool(), Path(), clock)
        assert pool.desired_size(deadline=clock.monotonic() + 10) == 3
        assert proxied.drain == ProxyFile().drain == DrainSection()
        pool.close()


def test_every_cloudpool_key_is_documented() -> None:
    page = (DOCS / "cloudpool.md").read_text(encoding="utf-8")
    named = keys(cloudpool.PoolSection, Endpoint, cloudpool.TemplateSection)
    assert [key for key in named if f"`{key}`" not in page] == []


def test_the_documented_commands_remove_the_marks_of_a_dead_proxy() -> None:
    page = (DOCS / "cloudpool.md").read_text(encoding="utf-8")
    assert f"kubectl taint node NODE {DRAIN_TAINT.key}-\nkubectl annotate node NODE {ANNOTATION}-\n" in page


def test_the_documented_file_of_cherry_servers_is_read(tmp_path: Path) -> None:
    file = tmp_path / "cloud-config"
    file.write_text(block("cherryservers.md", "ini"))
    pool1, spot = cherry.settings(file, GroupFlags(("1:10:pool1", "0:5:spot"), "cluster1"), ENVIRONMENT).pools
    assert "{{.BootstrapTokenID}}.{{.BootstrapTokenSecret}} {{.APIServerEndpoint}}" in pool1.definition.cloudinit
    assert (pool1.definition.spot_market, spot.definition.spot_market) == (False, True)


def test_every_cherry_servers_key_is_documented() -> None:
    table = (DOCS / "cherryservers.md").read_text(encoding="utf-8")
    assert [key for key in cherry.READERS if f"`{key}`" not in table] == []


def test_the_stackpoint_page_has_the_defaults(tmp_path: Path) -> None:
    """The documented defaults are correct."""
    file = tmp_path / "spc.yaml"
    file.write_text(block("stackpoint.md", "yaml"))
    settings = stackpoint.settings(file, GroupFlags(), environment("https://api.stackpoint.io")).file
    assert settings == StackpointFile(node_pools_file="pools/nodepools")


def _written(folder: Path, text: str) -> Path:
    file = folder / "aws.yaml"
    file.write_text(text)
    return file


def test_the_file_of_the_aws_page_is_read(tmp_path: Path) -> None:
    file = _written(tmp_path, block("aws.md", "yaml"))
    tags = {"k8s.io/cluster-autoscaler/enabled": "", "k8s.io/cluster-autoscaler/prod": ""}
    assert aws_config.settings(file) == AwsSettings("eu-west-1", (), tags, folder=tmp_path)
    page = (DOCS / "aws.md").read_text(encoding="utf-8")
    assert [key for key in keys(aws_config.AwsFile) if f"`{key}`" not in page] == []


def test_the_policy_of_the_aws_page_allows_all_requests_and_nothing_else(tmp_path: Path) -> None:
    """The signature of each request names the service, as IAM does."""
    clock = StepClock()
    with awses.serving(clock, unlisted=True) as server:
        server.cloud.add_group(awses.GROUP, 2)
        provider = awses.provider_of(server.url, clock)
        node = awses.node_of(server.cloud.alive(awses.GROUP)[0])
        provider.delete_nodes(awses.GROUP, [node], deadline=600)
        provider.increase_size(awses.GROUP, 1, deadline=600)
        provider.close()
        signed = [(*request.all("authorization"), request.body.decode()) for request in server.faulty_app.requests]
    services = [(re.search(r"eu-west-1/(\w+)/aws4_request", header), body) for header, body in signed]
    sent = {f"{found[1]}:{parse_qs(body)['Action'][0]}" for found, body in services if found}
    source = Path(aws_client.__file__).read_text(encoding="utf-8")
    possible = {":".join(names) for names in re.findall(r'self\._(?:ask|read)\(\s*"(\w+)",\s*"(\w+)"', source)}
    policy = json.loads(block("aws.md", "json"))
    allowed = {action for statement in policy["Statement"] for action in statement["Action"]}
    assert sent == possible == allowed
    tags = aws_config.settings(_written(tmp_path, block("aws.md", "yaml"))).tags
    [condition] = [each["Condition"] for each in policy["Statement"] if "Condition" in each]
    assert condition == {"Null": {f"aws:ResourceTag/{key}": "false" for key, value in tags.items() if not value}}
    assert all("Condition" in each for each in policy["Statement"] if not all("Describe" in a for a in each["Action"]))


def test_the_documented_commands_beside_cluster_autoscaler_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both programs get the arguments of the page, and both use the service's file."""
    calls: list[object] = []

    def served(settings: Serving, _logs: object) -> int:
        calls.append((settings.provider.name, settings.address.port, settings.listen))
        return 0

    def run(_connection: object, _policy: object, running: Running, *_: object) -> int:
        calls.append((running.provider.name, running.provider.config))
        return 0

    monkeypatch.setattr(serve, "run", served)
    monkeypatch.setattr(composition, "run", run)
    commands = block("cluster-autoscaler.md", "bash").replace("\\\n", " ").splitlines()
    for command in commands[:2]:
        program, *arguments = shlex.split(command)
        assert program == "rescheduler"
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 0
    assert calls == [("cloudpool", 8086, ListenAddress("0.0.0.0", 9235)), ("externalgrpc", Path("client.yaml"))]
    program, *arguments = shlex.split(commands[2])
    assert (program, "--cloud-config=client.yaml" in arguments) == ("cluster-autoscaler", True)


def test_the_commands_for_a_management_cluster_create_the_account_of_the_permissions() -> None:
    page = (DOCS / "clusterapi.md").read_text(encoding="utf-8")
    component = Path("deploy/components/clusterapi")
    files = [component / name for name in ("rbac.yaml", "policy.yaml")]
    items = [item for file in files for item in yaml.safe_load_all((DOCS.parent / file).read_text(encoding="utf-8"))]
    [subject] = [subject for item in items for subject in item.get("subjects", ())]
    commands = [
        f"kubectl create namespace {subject['namespace']}",
        f"kubectl -n {subject['namespace']} create serviceaccount {subject['name']}",
        f"kubectl apply {' '.join(f'-f {file}' for file in files)}",
    ]
    assert "".join(f"  {command}\n" for command in commands) in page
