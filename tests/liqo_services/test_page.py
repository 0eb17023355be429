"""docs/liqo.md documents every flag and every key of the Liqo services, with correct defaults."""

import re
from pathlib import Path

import click
import msgspec
import pytest

from rescheduler.cli.liqo import command
from rescheduler.liqo.client import LiqoFile
from rescheduler.liqo.discovery.messages import ClusterUpdate, Listed, Updated, UpdateRequest
from rescheduler.liqo.node_manager.config import GroupSection, NodeManagerFile, ResourcesSection
from rescheduler.net.config_files import Endpoint

PAGE = (Path(__file__).parents[2] / "docs" / "liqo.md").read_text(encoding="utf-8")
#: Options of all commands, and an encoding that matters only for large reads.
GENERAL = {"--v", "--log-format", "--kube-api-content-type", "--help", "--help-all"}
#: Keys of Endpoint that a node manager does not use.
UNUSED = {"maxAnswerBytes", "username", "passwordFile"}


def part(name: str) -> click.Command:
    assert isinstance(command, click.Group)
    subcommand = command.get_command(click.Context(command), name)
    assert subcommand is not None
    return subcommand


def options(name: str) -> dict[str, click.Option]:
    visible = [option for option in part(name).params if isinstance(option, click.Option) and not option.hidden]
    return {option.opts[0] if option.opts[0].startswith("--") else option.opts[-1]: option for option in visible}


@pytest.mark.parametrize("name", ["discovery", "node-manager"])
def test_every_flag_is_documented(name: str) -> None:
    documented = set(re.findall(r"`(--[-a-z]+)`", PAGE))
    assert options(name).keys() - GENERAL <= documented


@pytest.mark.parametrize("name", ["discovery", "node-manager"])
def test_the_documented_defaults_are_correct(name: str) -> None:
    section = PAGE.split(f"\n## {name.capitalize().replace('-', ' ')}\n")[1].split("\n## ")[0]
    for flag, option in options(name).items():
        if isinstance(option.default, str) and option.default and f"| `{flag}`" in section:
            assert f"`{option.default}`" in section, flag


@pytest.mark.parametrize(
    "shape",
    [
        LiqoFile,
        Endpoint,
        NodeManagerFile,
        GroupSection,
        ResourcesSection,
        Listed,
        ClusterUpdate,
        UpdateRequest,
        Updated,
    ],
)
def test_every_key_is_documented(shape: type[msgspec.Struct]) -> None:
    keys = {field.encode_name for field in msgspec.structs.fields(shape)} - UNUSED
    assert {key for key in keys if not re.search(rf"[`\".]{key}[`\"]", PAGE)} == set()
