"""The Go binaries of the local control plane, each built once and cached.

A binary's cache path contains a digest of its sources, so it is rebuilt only when its sources, go.mod or a version
change.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from devcluster import cache, golang

KUBERNETES = "v1.36.3"
KWOK = "v0.8.0"
DESCHEDULER = "v0.36.0"
_HERE = Path(__file__).parent
_FLAGS = ("-v", "-trimpath", "-buildvcs=false")
_VERSION = "k8s.io/component-base/version"
#: Without these flags the API server reports version v0.0.0, which some clients reject.
_KUBERNETES_LDFLAGS = f"-s -w -X {_VERSION}.gitVersion={KUBERNETES} -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=36"
_KWOK_LDFLAGS = f"-s -w -X sigs.k8s.io/kwok/pkg/consts.Version={KWOK}"
#: The stages with which kwok simulates a fast kubelet, relative to the module's folder.
_STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat/node-heartbeat.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)


@dataclass(frozen=True, slots=True)
class GoProgram:
    """A `main` package in a folder next to this file, part of the local module unless the folder has its own go.mod."""

    name: str
    description: str  #: a description with the duration of the build, for the progress output


CONTROLPLANE = GoProgram(
    "controlplane", f"the Kubernetes {KUBERNETES} control plane; the first build takes some minutes"
)
ORACLE = GoProgram("oracle", f"the filter plugins of kube-scheduler {KUBERNETES}")
RENDER = GoProgram("render", "the engines of Helm and kustomize; the first build takes a minute")
CALLER = GoProgram("caller", "Cluster Autoscaler's calls of external gRPC")
SCALE = GoProgram("scale", "a stand-in API server for large clusters, and the informers of client-go")


def program(target: GoProgram) -> Path:
    """Return the path of the binary of *target*; the first call builds it."""
    folder = _HERE / target.name
    module = folder if (folder / "go.mod").exists() else _HERE
    modules = (module / "go.mod", module / "go.sum")
    sources = (*modules, *sorted(folder.rglob("*.go")), *sorted(folder.rglob("*.binpb")))
    digest = _digest({str(path.relative_to(_HERE)): path.read_bytes() for path in sources})

    def make(into: Path) -> None:
        cache.print_progress(f"{target.name}: building {target.description}")
        flags = [*_FLAGS, "-ldflags", _KUBERNETES_LDFLAGS, "-o", str(into / target.name)]
        golang.build(target.name, ["build", *flags, "."], folder)
        cache.print_progress(f"{target.name}: done")

    return cache.get_or_create(target.name, digest, make) / target.name


def _digest(sources: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256(repr((_FLAGS, _KUBERNETES_LDFLAGS)).encode())
    for name, content in sources.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def controlplane() -> Path:
    """Return the binary with etcd and the Kubernetes components; its first argument selects the program."""
    return program(CONTROLPLANE)


def oracle() -> Path:
    """Return the program that runs the scheduler's own filter plugins, for conformance tests."""
    return program(ORACLE)


def caller() -> Path:
    """Return the program with Cluster Autoscaler's external gRPC client, for tests of `rescheduler provider serve`."""
    return program(CALLER)


def scale() -> Path:
    """Return the program with the stand-in API server and the informers of client-go, for `make scale`."""
    return program(SCALE)


def render() -> Path:
    """Return the program that renders charts and kustomizations, for tests of the files in deploy/."""
    return program(RENDER)


def kwok() -> Path:
    """Return the kwok controller; the folder `stages` next to it contains the stages of the same release."""
    module = f"sigs.k8s.io/kwok@{KWOK}"

    def make(into: Path) -> None:
        cache.print_progress(f"kwok: building {KWOK}; the first build takes one or two minutes")
        install = ["install", *_FLAGS, "-ldflags", _KWOK_LDFLAGS, "sigs.k8s.io/kwok/cmd/kwok@" + KWOK]
        golang.build("kwok", install, into, GOBIN=str(into))
        downloaded = json.loads(golang.output(["mod", "download", "-json", module]))
        stages = into / "stages"
        stages.mkdir()
        for stage in _STAGES:
            shutil.copyfile(Path(downloaded["Dir"], "kustomize/stage", stage), stages / Path(stage).name)
        cache.print_progress("kwok: done")

    return cache.get_or_create("kwok", KWOK, make) / "kwok"


def descheduler() -> Path:
    """Return the descheduler, which `make scale` compares with the daemon."""
    module = f"sigs.k8s.io/descheduler@{DESCHEDULER}"

    def make(into: Path) -> None:
        cache.print_progress(f"descheduler: building {DESCHEDULER}; the first build takes some minutes")
        downloaded = json.loads(golang.output(["mod", "download", "-json", module]))
        # Its go.mod has replace directives, so `go install` rejects it.
        sources = into / "sources"
        shutil.copytree(downloaded["Dir"], sources, copy_function=shutil.copyfile)
        for path in (sources, *sources.rglob("*/")):  # files in Go's module cache are read-only
            path.chmod(0o755)
        build = ["build", *_FLAGS, "-mod=mod", "-o", str(into / "descheduler"), "./cmd/descheduler"]
        golang.build("descheduler", build, sources)
        shutil.rmtree(sources)
        cache.print_progress("descheduler: done")

    return cache.get_or_create("descheduler", DESCHEDULER, make) / "descheduler"


@dataclass(frozen=True, slots=True)
class Binaries:
    """The binaries that a control plane runs."""

    controlplane: Path
    kwok: Path

    @property
    def stages(self) -> tuple[Path, ...]:
        """The stage files of the kwok release."""
        return tuple(sorted((self.kwok.parent / "stages").glob("*.yaml")))


def binaries() -> Binaries:
    """Return the binaries that a control plane needs; download and build those that are not cached.

    Raises SetupError if a requirement is missing on this machine, LocalError if a build fails.
    """
    return Binaries(controlplane=controlplane(), kwok=kwok())
