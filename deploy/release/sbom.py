"""The software bill of materials (CycloneDX in JSON): our package is the subject, its dependencies are components."""

import re
from collections.abc import Mapping
from typing import Any, Final

from deploy.release.errors import ReleaseError

NAME: Final = "spot-rescheduler"
_PIN: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)

_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]+)")

Json = dict[str, Any]


def subject(document: Json, version: str) -> Json:
    """Return *document*, the output of cyclonedx-py for an environment, with our package as the subject."""
    components = list(document.get("components", ()))
    ours = [component for component in components if _plain(component.get("name", "")) == NAME]
    if len(ours) != 1:
        raise ReleaseError(f"SBOM: expected {NAME} once among the components, found it {len(ours)} times")
    about = {
        "bom-ref": ours[0]["bom-ref"],
        "type": "application",
        "name": NAME,
        "version": version,
        "purl": f"pkg:pypi/{NAME}@{version}",
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    others = [component for component in components if component is not ours[0]]
    return {**document, "metadata": {**document.get("metadata", {}), "component": about}, "components": others}


def check(document: Json, locked: Mapping[str, frozenset[str]]) -> None:
    """Check that all required fields are present and that each version is in the lock file.

    *locked* is the result of `pins`. Raises ReleaseError.
    """
    _expect(document.get("bomFormat") == "CycloneDX", "bomFormat: expected CycloneDX")
    _expect(str(document.get("specVersion", "")).startswith("1."), "specVersion: expected 1.x")
    _expect(isinstance(document.get("version"), int), "version: expected a number")
    about = document.get("metadata", {}).get("component", {})
    _expect(about.get("name") == NAME and bool(about.get("version")), f"metadata.component: expected {NAME}")
    components = document.get("components", [])
    _expect(bool(components), "components: expected at least one")
    for component in components:
        name = component.get("name")
        for key in ("type", "name", "version", "purl", "bom-ref"):
            _expect(bool(component.get(key)), f"component {name}: expected {key}")
        _expect(
            component["version"] in locked.get(_plain(name), ()),
            f"component {name} {component['version']}: expected a version from the lock file: "
            f"{', '.join(sorted(locked.get(_plain(name), ()))) or 'nothing'}",
        )
        _expect(bool(component.get("hashes")), f"component {name}: expected hashes")
    references = {about["bom-ref"], *(component["bom-ref"] for component in components)}
    named = {dependency["ref"] for dependency in document.get("dependencies", ())}
    _expect(references <= named, f"dependencies: missing {sorted(references - named)}")
    _expect("file://" not in repr(document), "it contains a path of this machine")


def hashed(document: Json, lock: str) -> Json:
    """Return *document* with the hashes in *lock* of each component: those of all files of its version."""
    found: dict[tuple[str, str], list[str]] = {}
    for block in re.split(r"\n(?=[A-Za-z0-9])", lock):
        if match := _PIN.match(block):
            found.setdefault((_plain(match[1]), match[2]), []).extend(_HASH.findall(block))
    components = [
        component
        | {
            "hashes": [
                {"alg": "SHA-256", "content": content}
                for content in found.get((_plain(component["name"]), component["version"]), ())
            ]
        }
        for component in document["components"]
    ]
    return {**document, "components": components}


def pins(lock: str) -> dict[str, frozenset[str]]:
    """Return the pinned versions in a lock file by normalized package name; several if they differ by Python version.

    Raises ReleaseError for a package without hashes.
    """
    blocks = re.split(r"\n(?=[A-Za-z0-9])", lock)
    versions: dict[str, frozenset[str]] = {}
    for block in blocks:
        if match := _PIN.match(block):
            _expect("--hash=sha256:" in block, f"lock file: {match[1]} has no hash")
            name = _plain(match[1])
            versions[name] = versions.get(name, frozenset()) | {match[2]}
    _expect(bool(versions), "lock file: it pins no packages")
    return versions


def _expect(holds: bool, complaint: str) -> None:  # noqa: FBT001
    if not holds:
        raise ReleaseError(f"SBOM: {complaint}")


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
