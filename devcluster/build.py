"""The Go binaries of the local control plane, each built once and cached.

A binary's cache path contains a digest of its sources, so it is rebuilt only when its sources, go.mod or a version
change.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from devcluster import cache, golang
from devcluster.errors import SetupError

#: The release of each minor version of Kubernetes that can be built from the same sources. go.mod has the requirements
#: of the default version, and the folder `versions` those of the others.
RELEASES = {"1.34": "v1.34.4", "1.35": "v1.35.4", "1.36": "v1.36.3", "1.37": "v1.37.2"}
#: The same for the plugins of kube-scheduler, which need fewer modules than a control plane: of 1.38 there is a beta.
PLUGINS = {**RELEASES, "1.38": "v1.38.0-beta.0"}
DEFAULT = "1.37"
KWOK = "v0.8.0"
DESCHEDULER = "v0.36.0"
KARPENTER = "v1.15.0"
CLUSTER_API = "v1.14.2"
#: The Go that Karpenter and Kubernetes 1.38 require, which go downloads as a module.
_NEWER_GO = "go1.27.3"
_WITH_NEWER_GO = ("1.38",)
_HERE = Path(__file__).parent
_FLAGS = ("-v", "-trimpath", "-buildvcs=false")
_VERSION = "k8s.io/component-base/version"
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


CONTROLPLANE = GoProgram("controlplane", "the Kubernetes {} control plane; the first build takes some minutes")
ORACLE = GoProgram("oracle", "the plugins of kube-scheduler {}")
RENDER = GoProgram("render", "the engines of Helm and kustomize; the first build takes a minute")
CALLER = GoProgram("caller", "Cluster Autoscaler's calls of external gRPC")
SCALE = GoProgram("scale", "a stand-in API server for large clusters, and the informers of client-go")


def version(minor: str | None = None, releases: Mapping[str, str] = RELEASES) -> str:
    """Return *minor*, or the version in the environment (LOCAL_KUBERNETES), or the default, such as ``1.36``.

    Raises SetupError if that version is none of *releases*.
    """
    wanted = minor or os.environ.get("LOCAL_KUBERNETES") or DEFAULT
    if wanted not in releases:
        raise SetupError(f"Kubernetes version {wanted!r}: expected one of {', '.join(releases)}")
    return wanted


def minor_version() -> int:
    """Return the minor version of :func:`version`, such as 36."""
    return int(version().partition(".")[2])


def program(target: GoProgram, minor: str = DEFAULT) -> Path:
    """Return the path of the binary of *target* for Kubernetes *minor*; the first call builds it."""
    folder = _HERE / target.name
    module = folder if (folder / "go.mod").exists() else _HERE
    modfile = module / "go.mod" if minor == DEFAULT else _HERE / "versions" / f"{minor}.mod"
    sources = (modfile, modfile.with_suffix(".sum"), *sorted(folder.rglob("*.go")), *sorted(folder.rglob("*.binpb")))
    ldflags = _ldflags(minor)
    digest = _digest(ldflags, {str(path.relative_to(_HERE)): path.read_bytes() for path in sources})

    def make(into: Path) -> None:
        cache.print_progress(f"{target.name}: building {target.description.format(PLUGINS[minor])}")
        flags = [*_FLAGS, "-ldflags", ldflags, "-o", str(into / target.name)]
        if minor != DEFAULT:
            flags += [f"-modfile={modfile}"]
        toolchain = {"GOTOOLCHAIN": _NEWER_GO} if minor in _WITH_NEWER_GO else {}
        golang.build(target.name, ["build", *flags, "-tags", _tag(minor), "."], folder, **toolchain)
        cache.print_progress(f"{target.name}: done")

    return cache.get_or_create(target.name, digest, make) / target.name


def _ldflags(minor: str) -> str:
    """Return the linker flags. Without them, the API server reports version v0.0.0, which some clients reject."""
    numbers = f"-X {_VERSION}.gitMajor=1 -X {_VERSION}.gitMinor={minor.partition('.')[2]}"
    return f"-s -w -X {_VERSION}.gitVersion={PLUGINS[minor]} {numbers}"


def _tag(minor: str) -> str:
    """Return the build tag of a version, such as ``kubernetes_1_34``."""
    return f"kubernetes_{minor.replace('.', '_')}"


def _digest(ldflags: str, sources: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256(repr((_FLAGS, ldflags)).encode())
    for name, content in sources.items():
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def controlplane(minor: str | None = None) -> Path:
    """Return the binary with etcd and the Kubernetes components; its first argument selects the program."""
    return program(CONTROLPLANE, version(minor))


def oracle(minor: str | None = None) -> Path:
    """Return the program that runs the scheduler's own plugins, for conformance tests."""
    return program(ORACLE, version(minor, PLUGINS))


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


def karpenter() -> Path:
    """Return Karpenter with its kwok provider; the folder `crds` next to it contains the kinds that it serves."""
    module = f"sigs.k8s.io/karpenter@{KARPENTER}"

    def make(into: Path) -> None:
        cache.print_progress(f"karpenter: building {KARPENTER}; the first build takes about ten minutes")
        install = ["install", *_FLAGS, f"sigs.k8s.io/karpenter/kwok@{KARPENTER}"]
        golang.build("karpenter", install, into, GOBIN=str(into), GOTOOLCHAIN=_NEWER_GO)
        (into / "kwok").rename(into / "karpenter")
        listed = golang.output(["mod", "download", "-json", module], GOTOOLCHAIN=_NEWER_GO)
        downloaded = Path(json.loads(listed)["Dir"])
        crds = into / "crds"
        crds.mkdir()
        for kind in (*downloaded.glob("kwok/apis/crds/*.yaml"), *downloaded.glob("pkg/apis/crds/*.yaml")):
            shutil.copyfile(kind, crds / kind.name)
        cache.print_progress("karpenter: done")

    return cache.get_or_create("karpenter", KARPENTER, make) / "karpenter"


def cluster_api() -> Path:
    """Return the core controllers of Cluster API; the folder `crds` next to it contains the kinds that they serve."""

    def make(into: Path) -> None:
        cache.print_progress(f"clusterapi: building {CLUSTER_API}; the first build takes about six minutes")
        # Its go.mod replaces the module of its API by a folder, so `go install` rejects it.
        sources = into / "sources"
        for module, folder in (("sigs.k8s.io/cluster-api", sources), ("sigs.k8s.io/cluster-api/api", sources / "api")):
            downloaded = json.loads(golang.output(["mod", "download", "-json", f"{module}@{CLUSTER_API}"]))
            shutil.copytree(downloaded["Dir"], folder, copy_function=shutil.copyfile)
            for path in (folder, *folder.rglob("*/")):  # folders in Go's module cache are read-only
                path.chmod(0o755)
        build = ["build", *_FLAGS, "-mod=mod", "-o", str(into / "clusterapi"), "./core"]
        golang.build("clusterapi", build, sources)
        shutil.copytree(sources / "core/config/crd/bases", into / "crds")
        shutil.rmtree(sources)
        cache.print_progress("clusterapi: done")

    return cache.get_or_create("clusterapi", CLUSTER_API, make) / "clusterapi"


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
