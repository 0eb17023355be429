"""Read the output of ``kubectl get … -o json`` (a ``kind: List``, gzipped or not) as a snapshot. Separate from
the command: it has no options and prints nothing.
"""

import contextlib
import sys
from collections.abc import Container
from pathlib import Path
from typing import Final

import msgspec

from predicates.objects import Object, Pod, PodClass, PodDisruptionBudget, ServerVersion, Unreadable
from predicates.snapshot import Snapshot, key_of
from predicates.versions import parse_minor
from predicates.wire import FILE_KINDS, Decoder, Interner, SplitPods, WireError, unreadable
from rescheduler.errors import InputError
from rescheduler.planning.forms import shortened
from rescheduler.settings import Scheduling
from rescheduler.snapshot_file import items, reduction, text

_UNKNOWN = Scheduling()

_ADVICE: Final = "`rescheduler snapshot > FILE` writes a file that can be read"


def read(path: str, scheduling: Scheduling = _UNKNOWN, skipped: text.OnSkipped = lambda _: None) -> Snapshot:
    """Read the file or folder *path*, or standard input for ``-``. The snapshot lists the objects that cannot be
    decoded; *skipped* gets a sentence about other text that is not read.

    Unless *scheduling* says otherwise, the scheduler's rules are those of the version in the file.

    Raises :class:`~rescheduler.errors.UsageError` if the file cannot be opened, and
    :class:`~rescheduler.errors.InputError`, with the file name, if the content is no list of Kubernetes objects.
    """
    if reduction.is_worthwhile(path):
        with contextlib.suppress(reduction.ReductionError):
            return _read_by_two(path, scheduling)
    objects = _Objects(path, skipped)
    objects.read(items.Part())
    return objects.snapshot(scheduling)


def raw_items(path: str, kinds: Container[str]) -> list[bytes]:
    """Return the objects of *kinds* in the file *path* as JSON. Raises the errors of :func:`read`.

    Also raises InputError if one of them cannot be decoded.
    """
    found, decoder = list[bytes](), Decoder(Interner())

    def add(kind: str, item: bytes) -> None:
        if kind in FILE_KINDS:
            _decoded(kind, item, decoder)
        value = msgspec.json.decode(item)
        found.append(item if value.get("kind") else msgspec.json.encode({**value, "kind": kind}))

    def add_error(error: ValueError) -> None:
        raise error

    try:
        items.each(text.chunks(path), kinds, add, add_error)
    except ValueError as error:
        raise InputError(f"{text.name_of(path)}: {error}; {_ADVICE}") from error
    return found


def version_in(snapshot: Snapshot) -> str:
    """Return the version of the API server that the file of *snapshot* contains, or ""."""
    for version in snapshot.of("ServerVersion").values():
        assert isinstance(version, ServerVersion)
        return version.git_version
    return ""


def _read_by_two(path: str, scheduling: Scheduling) -> Snapshot:
    objects = _Objects(path)
    with reduction.SecondProcess(path) as second:
        if second.middle:
            try:
                objects.read(reduction.FirstPart(second))
                return objects.snapshot(scheduling)
            except items.PartEnd:
                pass
        for item in second.items():
            try:
                objects.add_item(item)
            except ValueError as error:
                objects.add_error(error)
    return objects.snapshot(scheduling)


#: The memory that objects may take before it is compared with the text.
_FREE: Final = 256 << 20
#: The maximum memory for each byte of the text, and of the file. Clusters take less than 1, and 20 if compressed.
_PER_TEXT: Final = 4
_PER_FILE: Final = 100
_MEASURED: Final = 1 << 20  #: bytes of text between two measurements


class _Memory:
    """The memory that this process has taken since it began to read the file *path*.

    Many short values that differ take more than 50 times the memory of their text, which gzip makes short again.
    """

    def __init__(self, path: str) -> None:
        size = None if path == "-" else _size(Path(path))
        self._limit = None if size is None else _FREE + _PER_FILE * size
        self._at_start = _peak()
        self._text = self._measured = 0

    def is_too_much(self, length: int) -> bool:
        """Return whether the objects so far take too much memory. *length* is that of the next item."""
        self._text += length
        if self._text < self._measured + _MEASURED:
            return False
        self._measured = self._text
        taken = _peak() - self._at_start
        return taken > _FREE + _PER_TEXT * self._text or (self._limit is not None and taken > self._limit)


def _size(path: Path) -> int | None:
    """Return the size of a file, or None if it is a pipe or cannot be read."""
    with contextlib.suppress(OSError, ValueError):
        return path.stat().st_size if path.is_file() else None
    return None


def _peak() -> int:
    """Return the largest memory of this process so far, in bytes; 0 if the system does not tell."""
    if sys.platform == "win32":
        return 0
    import resource  # noqa: PLC0415 - Windows has no such module

    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest if sys.platform == "darwin" else largest * 1024


def _decoded(kind: str, item: bytes, decoder: Decoder) -> Object:
    """Return the object with a name. Raises WireError."""
    decoded = decoder.decode(kind, item)
    if not (decoded.name if isinstance(decoded, Pod) else decoded.metadata.name):
        raise WireError(unreadable(kind, item, "expected metadata.name"))
    return decoded


class _Objects:
    """Collects the objects of a file."""

    def __init__(self, path: str, skipped: text.OnSkipped = lambda _: None) -> None:
        self._path = path
        self._skipped = skipped
        self._file = text.name_of(path)
        self._memory = _Memory(path)
        self._decoder = Decoder(Interner())
        self._split = SplitPods(self._decoder)
        self._by_kind: dict[str, dict[str, Object]] = {kind: {} for kind in FILE_KINDS}
        self._unreadable: dict[Unreadable, None] = {}

    def read(self, part: items.Part) -> None:
        """Add the items of this *part* of the file. Raises InputError, and PartEnd if the part ends before the file."""
        try:
            items.each(text.chunks(self._path, self._skipped), FILE_KINDS, self.add, self.add_error, part)
        except ValueError as error:
            raise InputError(f"{self._file}: {error}; {_ADVICE}") from error

    def add(self, kind: str, item: bytes) -> None:
        self._check_memory(len(item))
        self._put(kind, _decoded(kind, item, self._decoder))

    def add_item(self, item: reduction.Item) -> None:
        """Add an item that the second process has read."""
        if item.own is None:
            self.add(item.kind, item.text)
            return
        self._check_memory(item.length)
        if item.text:
            self._split.add(item.text)
        self._put(item.kind, self._split.pod(item.own, item.number))

    def _check_memory(self, length: int) -> None:
        if self._memory.is_too_much(length):
            raise InputError(f"{self._file}: its objects take far more memory than those of a cluster; {_ADVICE}")

    def _put(self, kind: str, decoded: Object) -> None:
        existing = self._by_kind[kind].setdefault(key_of(decoded), decoded)
        if existing is not decoded and existing != decoded:
            raise InputError(f"{self._file}: {kind} {key_of(decoded)} occurs twice, with different content")

    def add_error(self, error: ValueError) -> None:
        if not isinstance(error, WireError):
            raise error
        self._unreadable[error.unreadable] = None

    def snapshot(self, scheduling: Scheduling) -> Snapshot:
        """Return the snapshot of these objects. No object can be added afterwards."""
        del self._decoder, self._split  # The snapshot takes the memory of the texts of all classes.
        snapshot = Snapshot()
        snapshot.replace_by_key("ServerVersion", self._by_kind.pop("ServerVersion"))
        snapshot.scheduler = scheduling.scheduler(version_in(snapshot))
        for kind, objects in self._by_kind.items():
            snapshot.replace_by_key(kind, objects)
        snapshot.unreadable = tuple(self._unreadable)
        return snapshot


# What a snapshot file lacks although every cluster has it.

_SYSTEM: Final = "kube-system"

#: Namespaces of every cluster, and of this program, that may have no pods.
_OFTEN_EMPTY: Final = frozenset({"default", "kube-public", "kube-node-lease", "spot-rescheduler-room"})

#: At most this many namespaces are named.
_NAMED: Final = 3


def omissions(snapshot: Snapshot) -> tuple[str, ...]:
    """Return what the file of *snapshot* is likely to lack, each as the end of a sentence; () if nothing.

    A plan for such a file is wrong: nodes look emptier than they are. A file of ``rescheduler snapshot`` has the pods
    of all namespaces, so that there an empty namespace only counts if a budget expects pods in it.
    """
    if not len(snapshot.nodes):
        return ()
    namespaces = _with_pods(snapshot)
    if not namespaces:
        return ("no pods",)
    found = []
    if _SYSTEM not in namespaces:
        found.append(f"no pods of {_SYSTEM}")
    if not any(pod.owner is not None and pod.owner.kind == "DaemonSet" for pod in snapshot.pods.values()):
        found.append("no pods of DaemonSets")
    if empty := _without_pods(snapshot):
        found.append(f"no pods of namespace{'s' if empty[1:] else ''} {shortened(empty, _NAMED)}")
    return tuple(found)


def _without_pods(snapshot: Snapshot) -> list[str]:
    """Return the namespaces that should have pods and have none in the file."""
    namespaces = set[str]()
    for budget in snapshot.of("PodDisruptionBudget").values():
        assert isinstance(budget, PodDisruptionBudget)
        if budget.status.expected_pods:
            namespaces.add(budget.metadata.namespace)
    if not version_in(snapshot):
        namespaces |= snapshot.of("Namespace").keys() - _OFTEN_EMPTY
    return sorted(namespaces - _with_pods(snapshot) - {_SYSTEM})


def _with_pods(snapshot: Snapshot) -> set[str]:
    """Return the namespaces of the pods in the file, also of those that cannot be decoded."""
    unreadable = {each.key.partition("/")[0] for each in snapshot.unreadable if each.kind == "Pod"}
    return unreadable.union(pod.namespace for pod in snapshot.pods.values())


def _has(snapshot: Snapshot, kind: str) -> bool:
    """Return whether the file has objects of *kind*, perhaps only some that cannot be decoded."""
    return bool(snapshot.of(kind)) or any(each.kind == kind for each in snapshot.unreadable)


# The assumptions about kinds that a snapshot file does not contain.

#: By kind: the sentence for a file without objects of this kind, regardless of its pods.
_ALWAYS: Final = {
    "PodDisruptionBudget": (
        "no PodDisruptionBudget in the file: assuming that there are none; "
        "evictions that a budget forbids would not be shown"
    ),
}

#: The same, for files with pods that use PersistentVolumeClaims.
_WITH_CLAIMS: Final = {
    "PersistentVolumeClaim": (
        "no PersistentVolumeClaim in the file: pods that use one are assumed not to fit on any node"
    ),
    "PersistentVolume": (
        "no PersistentVolume in the file: pods with a bound PersistentVolumeClaim are assumed not to fit on any node"
    ),
    "StorageClass": (
        "no StorageClass in the file: pods with an unbound PersistentVolumeClaim are assumed not to fit on any node"
    ),
    "CSINode": "no CSINode in the file: assuming that nodes have no volume limits",
}

#: The same, for files with pods whose pod affinity or anti-affinity selects namespaces by label.
_WITH_NAMESPACE_SELECTORS: Final = {
    "Namespace": "no Namespace in the file: assuming that namespaces have no labels; pod affinity may select by them",
}


#: The same, if pods are selected by the labels of their namespaces.
_WITH_NAMESPACE_LABELS: Final = {
    "Namespace": "no Namespace in the file: assuming that namespaces have no labels but their name; "
    "--namespace-selector may select by them",
}


#: Kinds of controllers from whose templates replacement pods are derived.
_TEMPLATES: Final = ("ReplicaSet", "StatefulSet", "ReplicationController")


def without_templates(snapshot: Snapshot) -> str | None:
    """Return the sentence for pods whose controllers are not in the file, or None if there are none."""
    kinds = {pod.owner.kind for pod in snapshot.pods.values() if pod.owner is not None}
    missing = [kind for kind in _TEMPLATES if kind in kinds and not _has(snapshot, kind)]
    if not missing:
        return None
    return f"no {' and no '.join(missing)} in the file: assuming that replacement pods are like the running pods"


def assumptions(snapshot: Snapshot, scheduling: Scheduling, *, by_namespace_labels: bool) -> tuple[str, ...]:
    """Return a sentence for each kind that is missing from *snapshot* and may matter to a plan.

    *scheduling* is what the user says about the scheduler; one more sentence follows if its version is not known.

    Either the cluster has no objects of the kind, or they were not written to the file. *by_namespace_labels* is
    whether the user selects namespaces by their labels.
    """
    texts = dict(_ALWAYS)
    classes = snapshot.classes()
    if any(cls.claims for cls in classes):
        texts |= _WITH_CLAIMS
    if any(_selects_namespaces(cls) for cls in classes):
        texts |= _WITH_NAMESPACE_SELECTORS
    if by_namespace_labels:
        texts |= _WITH_NAMESPACE_LABELS
    missing = (text for kind, text in texts.items() if not _has(snapshot, kind))
    return (*missing, *filter(None, [_of_version(snapshot, scheduling)]))


def _of_version(snapshot: Snapshot, scheduling: Scheduling) -> str | None:
    """Return the sentence about the scheduler's version, or None.

    If no version is given, the kubelets show whether the newest release is likely to be that of the cluster.
    """
    server = version_in(snapshot)
    if server or scheduling.minor is not None:
        return scheduling.assumption(server)
    kubelets = [node.status.node_info.kubelet_version for node in snapshot.nodes]
    minors = {minor for minor in map(parse_minor, kubelets) if minor is not None}
    if not minors or max(minors) == snapshot.scheduler.version.minor:
        return None
    return (
        f"no version of the API server in the file: assuming kube-scheduler {snapshot.scheduler.version} "
        f"(the newest kubelet is 1.{max(minors)}; see --scheduler-version)"
    )


def _selects_namespaces(pod: PodClass) -> bool:
    affinity = pod.spec.affinity
    groups = (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else ()
    terms = (term for group in groups if group is not None for term in group.required)
    return any(term.namespace_selector is not None for term in terms)
