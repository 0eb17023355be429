"""The Cluster Autoscaler binary, built once and cached.

The module requires k8s.io/autoscaler/cluster-autoscaler/apis from the same commit, but the module proxy has only a
version that is a year older. The two differ in the version name of one API (ProvisioningRequest, v1beta1 and v1), which
Cluster Autoscaler does not use by default. Therefore this module downloads the older version and renames v1beta1 to v1.
All code that talks to a cloud provider is built unmodified.
"""

import hashlib
import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

from devcluster import cache, golang

#: The version that the binary reports; the code is from June 2025, some weeks after that release.
VERSION: Final = "1.33"
_MODULE: Final = "k8s.io/autoscaler/cluster-autoscaler"
_APIS: Final = f"{_MODULE}/apis@v0.0.0-20240627115740-d52e4b9665d7"
_HERE: Final = Path(__file__).parent
_FLAGS: Final = ("-v", "-trimpath", "-buildvcs=false", "-tags=externalgrpc", "-ldflags=-s -w")

#: Replacements in the older source: package clauses, import paths, unnamed imports, and names of clients.
_RENAMES: Final = (
    (re.compile(r"^package v1beta1", re.MULTILINE), "package v1"),
    (re.compile(r'x-k8s\.io/v1beta1(["/])'), r"x-k8s.io/v1\1"),
    (re.compile(r'^(\s)"(k8s\.io/autoscaler.*x-k8s\.io/v1")', re.MULTILINE), r'\1v1beta1 "\2'),
    (re.compile("V1beta1"), "V1"),
)
#: Constants that only the newer version has.
_KEYS: Final = """package v1

const (
	ProvisioningRequestPodAnnotationKey = "autoscaling.x-k8s.io/consume-provisioning-request"
	ProvisioningClassPodAnnotationKey   = "autoscaling.x-k8s.io/provisioning-class-name"
)
"""


def cluster_autoscaler() -> Path:
    """Return the path of the binary. The first call builds it: six minutes of CPU time and 2 GB of disk.

    Raises SetupError if a requirement is missing on this machine, LocalError if the build fails.
    """
    sources = [(_HERE / name).read_bytes() for name in ("go.mod", "go.sum", "binary.py")]
    digest = hashlib.sha256(b"\0".join(sources)).hexdigest()[:16]
    return cache.get_or_create("autoscaler", digest, _build) / "cluster-autoscaler"


def _build(into: Path) -> None:
    cache.print_progress(f"autoscaler: building Cluster Autoscaler {VERSION}; the first build takes some minutes")
    downloaded = json.loads(golang.output(["mod", "download", "-json", _APIS]))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("go.mod", "go.sum"):
            shutil.copyfile(_HERE / file, folder / file)
        _rename(Path(downloaded["Dir"]), folder / "apis")
        golang.build("autoscaler", ["build", *_FLAGS, "-o", str(into / "cluster-autoscaler"), _MODULE], folder)
    cache.print_progress("autoscaler: done")


def _rename(source: Path, target: Path) -> None:
    """Copy the read-only folder *source* to *target* and rename the API version."""
    for file in source.rglob("*"):
        if not file.is_file():
            continue
        path = Path(*("v1" if part == "v1beta1" else part for part in file.relative_to(source).parts))
        text = file.read_bytes()
        if file.suffix == ".go":
            text = _renamed(text.decode()).encode()
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_bytes(text)
    (target / "provisioningrequest/autoscaling.x-k8s.io/v1/keys.go").write_text(_KEYS)


def _renamed(text: str) -> str:
    for pattern, replacement in _RENAMES:
        text = pattern.sub(replacement, text)
    return text
