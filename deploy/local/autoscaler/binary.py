"""Cluster Autoscaler's own binary, built once and kept in the cache.

Its module needs a second one of the same repository, k8s.io/autoscaler/cluster-autoscaler/apis, at the same commit,
and the module proxy has that one only of a year before. What differs between the two is the version in the names of
one API (ProvisioningRequest, v1beta1 and v1), which Cluster Autoscaler does not use unless it is told to. So the older
one is taken and its version is renamed. All that speaks to a cloud provider is built as it was published.
"""

import hashlib
import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import Final

from deploy.local import cache, golang

VERSION: Final = "1.33"  #: what it calls itself; the code is of June 2025, some weeks after that release
_MODULE: Final = "k8s.io/autoscaler/cluster-autoscaler"
_APIS: Final = f"{_MODULE}/apis@v0.0.0-20240627115740-d52e4b9665d7"
_HERE: Final = Path(__file__).parent
_FLAGS: Final = ("-v", "-trimpath", "-buildvcs=false", "-tags=externalgrpc", "-ldflags=-s -w")

#: Of the older one's source: package clauses, import paths, imports without a name, and names of the clients.
_RENAMES: Final = (
    (re.compile(r"^package v1beta1", re.MULTILINE), "package v1"),
    (re.compile(r'x-k8s\.io/v1beta1(["/])'), r"x-k8s.io/v1\1"),
    (re.compile(r'^(\s)"(k8s\.io/autoscaler.*x-k8s\.io/v1")', re.MULTILINE), r'\1v1beta1 "\2'),
    (re.compile("V1beta1"), "V1"),
)
#: What the newer one has besides.
_KEYS: Final = """package v1

const (
	ProvisioningRequestPodAnnotationKey = "autoscaling.x-k8s.io/consume-provisioning-request"
	ProvisioningClassPodAnnotationKey   = "autoscaling.x-k8s.io/provisioning-class-name"
)
"""


def cluster_autoscaler() -> Path:
    """The binary. The first time it is fetched and built, for six minutes of processor time and 2 GB of disk.

    Raises SetupError where the machine lacks something, LocalError where the build fails.
    """
    sources = [(_HERE / name).read_bytes() for name in ("go.mod", "go.sum", "binary.py")]
    digest = hashlib.sha256(b"\0".join(sources)).hexdigest()[:16]
    return cache.made_once("autoscaler", digest, _build) / "cluster-autoscaler"


def _build(into: Path) -> None:
    cache.say(f"autoscaler: building Cluster Autoscaler {VERSION}, some minutes the first time")
    downloaded = json.loads(golang.output(["mod", "download", "-json", _APIS]))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("go.mod", "go.sum"):
            shutil.copyfile(_HERE / file, folder / file)
        _rename(Path(downloaded["Dir"]), folder / "apis")
        golang.build("autoscaler", ["build", *_FLAGS, "-o", str(into / "cluster-autoscaler"), _MODULE], folder)
    cache.say("autoscaler: done")


def _rename(source: Path, target: Path) -> None:
    """*source*, which is read-only, with its API's version changed, as *target*."""
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
