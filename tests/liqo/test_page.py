"""docs/liqo.md names every flag and every key of the Liqo parts, with the defaults that they have."""

import re
from pathlib import Path

import click
import msgspec
import pytest

from rescheduler.backends.config import Endpoint
from rescheduler.backends.liqo.config import LiqoFile
from rescheduler.cli.liqo import command
from rescheduler.liqo.discovery.messages import ClusterUpdate, Listed, Update, Updated
from rescheduler.liqo.nodemanager.config import GroupSection, NodeManagerFile, ResourcesSection

PAGE = (Path(__file__).parents[2] / "docs" / "liqo.md").read_text(encoding="utf-8")
#: Those of all commands, and an encoding that matters only to whoever reads much.
GENERAL = {"--v", "--log-format", "--kube-api-content-type", "--help"}
#: Of Endpoint: keys that a node manager has no use for.
UNUSED = {"maxAnswerBytes", "username", "passwordFile"}


def part(name: str) -> click.Command:
    assert isinstance(command, click.Group)
    found = command.get_command(click.Context(command), name)
    assert found is not None
    return found


def options(name: str) -> dict[str, click.Option]:
    found = [one for one in part(name).params if isinstance(one, click.Option) and not one.hidden]
    return {one.opts[0] if one.opts[0].startswith("--") else one.opts[-1]: one for one in found}


@pytest.mark.parametrize("name", ["discovery", "node-manager"])
def test_flags(name: str) -> None:
    told = set(re.findall(r"`(--[-a-z]+)`", PAGE))
    assert options(name).keys() - GENERAL <= told


@pytest.mark.parametrize("name", ["discovery", "node-manager"])
def test_defaults(name: str) -> None:
    section = PAGE.split(f"\n## {name.capitalize().replace('-', ' ')}\n")[1].split("\n## ")[0]
    for flag, option in options(name).items():
        if isinstance(option.default, str) and option.default and f"| `{flag}`" in section:
            assert f"`{option.default}`" in section, flag


@pytest.mark.parametrize(
    "shape",
    [LiqoFile, Endpoint, NodeManagerFile, GroupSection, ResourcesSection, Listed, ClusterUpdate, Update, Updated],
)
def test_keys(shape: type[msgspec.Struct]) -> None:
    keys = {one.encode_name for one in msgspec.structs.fields(shape)} - UNUSED
    assert {key for key in keys if not re.search(rf"[`\".]{key}[`\"]", PAGE)} == set()
