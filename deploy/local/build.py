"""The Go binaries of the local control plane, each built once and kept in the cache.

A binary's place in the cache names a digest of all it is made from, so a change of sources, of go.mod or of
a version builds anew, and nothing else does.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.local import cache, golang

KUBERNETES = "v1.36.3"
KWOK = "v0.8.0"
_HERE = Path(__file__).parent
_FLAGS = ("-v", "-trimpath", "-buildvcs=false")
_VERSION = "k8s.io/component-base/version"
#: without these the API server calls itself v0.0.0, and clients complain
_KUBERNETES_LDFLAGS = f"-s -w -X {_VERSION}.gitVersion={KUBERNETES} -X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor=36"
_KWOK_LDFLAGS = f"-s -w -X sigs.k8s.io/kwok/pkg/consts.Version={KWOK}"
#: the stages that make kwok a fast kubelet, under the module's own folder
_STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat/node-heartbeat.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)


@dataclass(frozen=True, slots=True)
class GoProgram:
    """A `main` package in a folder beside this file; of the module here, unless that folder has a go.mod of its own."""

    name: str
    about: str  #: what it is and how long it takes, for the person who waits


CONTROLPLANE = GoProgram("controlplane", f"the Kubernetes {KUBERNETES} control plane, some minutes the first time")
ORACLE = GoProgram("oracle", f"the filter plugins of kube-scheduler {KUBERNETES}")
RENDER = GoProgram("render", "the engines of Helm and kustomize, a minute the first time")
CALLER = GoProgram("caller", "Cluster Autoscaler's calls of external gRPC")


def program(target: GoProgram) -> Path:
    """The binary of *target*, built the first time."""
    folder = _HERE / target.name
    module = folder if (folder / "go.mod").exists() else _HERE
    modules = (module / "go.mod", module / "go.sum")
    sources = (*modules, *sorted(folder.rglob("*.go")), *sorted(folder.rglob("*.binpb")))
    digest = _digest({str(path.relative_to(_HERE)): path.read_bytes() for path in sources})

    def make(into: Path) -> None:
        cache.say(f"{target.name}: building {target.about}")
        flags = [*_FLAGS, "-ldflags", _KUBERNETES_LDFLAGS, "-o", str(into / target.name)]
        golang.build(target.name, ["build", *flags, "."], folder)
        cache.say(f"{target.name}: done")

    return cache.made_once(target.name, digest, make) / target.name


def _digest(sources: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256(repr((_FLAGS, _KUBERNETES_LDFLAGS)).encode())
    for name, content in sources.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def controlplane() -> Path:
    """etcd, kube-apiserver, kube-controller-manager and kube-scheduler in one; the first argument chooses."""
    return program(CONTROLPLANE)


def oracle() -> Path:
    """The scheduler's own filter plugins as a program, for conformance tests."""
    return program(ORACLE)


def caller() -> Path:
    """Cluster Autoscaler's side of external gRPC as a program, for tests of `rescheduler provider serve`."""
    return program(CALLER)


def render() -> Path:
    """What makes manifests of charts and kustomizations, for the tests of what deploy/ ships."""
    return program(RENDER)


def kwok() -> Path:
    """The kwok controller; the folder `stages` beside it holds the stages of the same release."""
    module = f"sigs.k8s.io/kwok@{KWOK}"

    def make(into: Path) -> None:
        cache.say(f"kwok: building {KWOK}, a minute or two the first time")
        install = ["install", *_FLAGS, "-ldflags", _KWOK_LDFLAGS, "sigs.k8s.io/kwok/cmd/kwok@" + KWOK]
        golang.build("kwok", install, into, GOBIN=str(into))
        downloaded = json.loads(golang.output(["mod", "download", "-json", module]))
        stages = into / "stages"
        stages.mkdir()
        for stage in _STAGES:
            shutil.copyfile(Path(downloaded["Dir"], "kustomize/stage", stage), stages / Path(stage).name)
        cache.say("kwok: done")

    return cache.made_once("kwok", KWOK, make) / "kwok"


@dataclass(frozen=True, slots=True)
class Binaries:
    """All that a control plane runs."""

    controlplane: Path
    kwok: Path

    @property
    def stages(self) -> tuple[Path, ...]:
        """The stage files of kwok."""
        return tuple(sorted((self.kwok.parent / "stages").glob("*.yaml")))


def binaries() -> Binaries:
    """Everything a control plane needs, fetched and built where it is not there yet.

    Raises SetupError where the machine lacks something, LocalError where a build fails.
    """
    return Binaries(controlplane=controlplane(), kwok=kwok())
