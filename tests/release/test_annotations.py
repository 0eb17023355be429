"""docs/annotations.md lists every annotation, label, taint and condition that the program reads or writes, once."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from predicates.csi import ZONE
from predicates.indexes.domains import HOSTNAME
from predicates.objects.api import CONTROL_PLANE_LABELS
from predicates.objects.pods import CAPACITY_TYPE, DO_NOT_DISRUPT
from predicates.pod_classes import POD_ANNOTATIONS
from predicates.snapshot import DRAIN_TAINT, PLACEHOLDER
from rescheduler.planning.controllers import JOB_CONTROLLER
from rescheduler.planning.placement.pending import ACTIVE_CAPACITY
from rescheduler.planning.rules.candidates import DELETION_CANDIDATE
from rescheduler.planning.rules.interruptions import CONDITIONS, TAINTS
from rescheduler.planning.rules.minimum import MIN_ON_DEMAND_REPLICAS
from rescheduler.planning.rules.pod_traits import DO_NOT_EVICT, PREFER_NO_EVICTION, REMOVAL_DISABLED
from rescheduler.planning.what_if.spot_sources import GPU

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "annotations.md").read_text(encoding="utf-8")

#: Where the keys are that decisions, marks and commands use. The keys of providers are on the providers' pages.
FOLDERS: Final = ("planning", "draining", "execution", "housekeeping", "kube", "observe", "cli")

KEY: Final = re.compile(r"(spot-rescheduler|[a-z0-9-]+(\.[a-z0-9-]+)+)/[A-Za-z0-9_.-]+")
API_VERSION: Final = re.compile(r".+/v[0-9][a-z0-9]*")


def keys() -> Iterator[str]:
    """Return all strings in the source that have the form of a key, except API versions."""
    for folder in FOLDERS:
        for path in (ROOT / "rescheduler" / folder).rglob("*.py"):
            values = (getattr(node, "value", None) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
            texts = (value for value in values if isinstance(value, str) and KEY.fullmatch(value))
            yield from (text for text in texts if not API_VERSION.fullmatch(text))


def test_each_key_is_on_the_page_once() -> None:
    listed = re.findall(r"^\| `([^`]+)` \| (?:annotation|label|taint|condition)", PAGE, re.MULTILINE)
    signals = {f"{signal.key}*" if signal.key.endswith("/") else signal.key for signal in (*TAINTS, *CONDITIONS)}
    values = {ACTIVE_CAPACITY, JOB_CONTROLLER, GPU}  # of fields and resources, in the form of a key
    shared = {
        HOSTNAME,
        ZONE,
        *CONTROL_PLANE_LABELS,
        DRAIN_TAINT.key,
        PLACEHOLDER,
        CAPACITY_TYPE,
        DO_NOT_DISRUPT,
    }  # with the scheduler's rules
    known = {*keys(), *signals, *shared, DELETION_CANDIDATE} - values
    assert sorted(listed) == sorted(known)


def test_the_annotations_of_pods_are_kept_when_pods_are_decoded() -> None:
    """All other annotations are dropped, so a rule that reads one would never apply."""
    read = re.findall(r"^\| `([^`]+)` \| annotation[^|]* pods?\b", PAGE, re.MULTILINE)
    assert {DO_NOT_EVICT, MIN_ON_DEMAND_REPLICAS, PREFER_NO_EVICTION, REMOVAL_DISABLED} <= set(read)
    assert [key for key in read if not key.startswith(POD_ANNOTATIONS)] == []
