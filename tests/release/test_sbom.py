"""The SBOM describes this product, has the required fields, and matches the lock file."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from deploy.release import sbom
from deploy.release.errors import ReleaseError

LOCK = """# made by make lock
click==8.1.8 \\
    --hash=sha256:aa
PyYAML==6.0.2 ; sys_platform == 'linux' \\
    --hash=sha256:bb \\
    --hash=sha256:cc
numpy==2.4.6 ; python_full_version < '3.12' \\
    --hash=sha256:dd
numpy==2.5.5 ; python_full_version >= '3.12' \\
    --hash=sha256:ee
"""


def component(name: str, version: str) -> dict[str, Any]:
    reference = f"{name}=={version}"
    return {
        "type": "library",
        "name": name,
        "version": version,
        "bom-ref": reference,
        "purl": f"pkg:pypi/{name}@{version}",
    }


def document() -> dict[str, Any]:
    components = [component("click", "8.1.8"), component("PyYAML", "6.0.2"), component("spot-rescheduler", "1.2")]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"tools": []},
        "components": components,
        "dependencies": [{"ref": entry["bom-ref"]} for entry in components],
    }


def test_all_pinned_versions_are_read() -> None:
    assert sbom.pins(LOCK) == {
        "click": frozenset({"8.1.8"}),
        "pyyaml": frozenset({"6.0.2"}),
        "numpy": frozenset({"2.4.6", "2.5.5"}),
    }


@pytest.mark.parametrize("lock", ["", "click==8.1.8\n"], ids=["empty", "without a hash"])
def test_a_lock_without_pins_is_rejected(lock: str) -> None:
    with pytest.raises(ReleaseError, match="lock file"):
        sbom.pins(lock)


def test_the_product_is_the_subject() -> None:
    bill = sbom.hashed(sbom.subject(document(), "1.2"), LOCK)
    sbom.check(bill, sbom.pins(LOCK))
    assert bill["metadata"]["component"] == {
        "bom-ref": "spot-rescheduler==1.2",
        "type": "application",
        "name": "spot-rescheduler",
        "version": "1.2",
        "purl": "pkg:pypi/spot-rescheduler@1.2",
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    assert [entry["name"] for entry in bill["components"]] == ["click", "PyYAML"]


def test_the_product_must_be_a_component() -> None:
    with pytest.raises(ReleaseError, match="0 times"):
        sbom.subject(document() | {"components": []}, "1.2")


Change = Callable[[dict[str, Any]], object]

#: damage to a valid document: expected message
DAMAGE: dict[str, tuple[Change, str]] = {
    "a different format": (lambda bill: bill.update(bomFormat="SPDX"), "bomFormat"),
    "no format version": (lambda bill: bill.pop("specVersion"), "specVersion"),
    "no version": (lambda bill: bill.pop("version"), "version"),
    "no subject": (lambda bill: bill["metadata"].pop("component"), "metadata.component"),
    "no components": (lambda bill: bill.update(components=[]), "components"),
    "no purl": (lambda bill: bill["components"][0].pop("purl"), "component click: expected purl"),
    "a different version": (
        lambda bill: bill["components"][0].update(version="9"),
        "component click 9: expected .* 8.1.8",
    ),
    "an unpinned component": (
        lambda bill: bill["components"].append(component("evil", "1")),
        "component evil 1: .* nothing",
    ),
    "no dependencies": (lambda bill: bill.pop("dependencies"), "dependencies: missing"),
    "a path": (lambda bill: bill["components"][0].update(url="file:///home/me"), "path of this machine"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_reported(name: str) -> None:
    damage, message = DAMAGE[name]
    bill = copy.deepcopy(sbom.hashed(sbom.subject(document(), "1.2"), LOCK))
    damage(bill)
    with pytest.raises(ReleaseError, match=message):
        sbom.check(bill, sbom.pins(LOCK))


def test_each_component_has_the_hashes_of_its_version() -> None:
    bill = sbom.hashed(sbom.subject(document(), "1.2"), LOCK)
    hashes = {entry["name"]: [value["content"] for value in entry["hashes"]] for entry in bill["components"]}
    assert hashes == {"click": ["aa"], "PyYAML": ["bb", "cc"]}
    without = sbom.subject(document(), "1.2")
    with pytest.raises(ReleaseError, match="component click: expected hashes"):
        sbom.check(without, sbom.pins(LOCK))
