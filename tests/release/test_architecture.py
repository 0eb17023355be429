"""ARCHITECTURE.md names existing files and values."""

import re
from pathlib import Path

from predicates.nodes import NodeTable
from predicates.snapshot import Snapshot
from rescheduler.planning.node_info import NodeInfo, NodeInfos, node_infos
from rescheduler.providers.base import NodeTemplate

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def test_paths_on_the_page_exist() -> None:
    paths = re.findall(r"`((?:predicates|rescheduler|tests|deploy)/[\w./]+)`", PAGE)
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_documented_module_defines_node_info() -> None:
    for named in (NodeInfo, NodeInfos, node_infos, NodeTable, Snapshot, NodeTemplate):
        assert named.__name__ in PAGE
    for field in ("node", "pods", "allocatable", "requested", "free"):
        assert field in {*NodeInfo.__slots__, *vars(NodeInfo)}
