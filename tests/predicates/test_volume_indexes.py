"""After any sequence of changes, the volume plugins give the same results as on a new snapshot."""

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from predicates.objects import Object, Pod, PodClass
from predicates.plugins import volumes
from predicates.snapshot import Snapshot, Trial, key_of
from predicates.wire import Decoder, Interner
from tests.conformance.builders import claim, storage_class, volume
from tests.conformance.generate.world import Json
from tests.predicates.asking import reasons
from tests.predicates.volumes import CSI, attachment, limited, local, mounting, with_volumes, zoned

EBS: Final = "ebs.csi.aws.com"
PLUGINS: Final = (volumes.VOLUME_RESTRICTIONS, volumes.NODE_VOLUME_LIMITS, volumes.VOLUME_BINDING, volumes.VOLUME_ZONE)
NODES: Final = ("a", "b", "c")
NAMES: Final = ("p", "q", "r", "s", "t")
PODS: Final[tuple[Json, ...]] = (
    mounting("shared"),
    mounting("shared", "only"),
    mounting("only"),
    mounting("waits"),
    mounting("waits", "waits-too"),
    with_volumes({"gcePersistentDisk": {"pdName": "d"}}),
    with_volumes({"gcePersistentDisk": {"pdName": "d", "readOnly": True}}),
    with_volumes({"awsElasticBlockStore": {"volumeID": "vol-1"}}, {"persistentVolumeClaim": {"claimName": "alone"}}),
    with_volumes({"awsElasticBlockStore": {"volumeID": "vol-2"}}),
    with_volumes({"awsElasticBlockStore": {"volumeID": "aws://a/broken"}}),
    with_volumes({"rbd": {"monitors": ["m", "n"], "image": "i", "pool": "p"}}),
    with_volumes({"emptyDir": {}}),
)
#: The initial objects. Limits are so tight that a single volume makes a difference.
AT_FIRST: Final[tuple[Json, ...]] = (
    claim("shared", volume="vs"),
    claim("alone", volume="va"),
    claim("only", volume="vo"),
    claim("waits", "local"),
    claim("waits-too", "made"),
    storage_class("made"),
    storage_class("local", provisioner="kubernetes.io/no-provisioner"),
    volume("vs"),
    volume("va", zone="1", awsElasticBlockStore={"volumeID": "vol-1"}),
    volume("vo"),
    local("l1", "a", "b", size="1Gi"),
    local("l2", "b", size="3Gi"),
    *(limited(name, {CSI: 2, EBS: 1}, "kubernetes.io/aws-ebs") for name in NODES),
    limited("d", {CSI: 1}),
    attachment("x", "a", "vs"),
    attachment("y", "b", "vo"),
)
#: Objects that can replace them.
LATER: Final[tuple[Json, ...]] = (
    claim("shared", "made"),
    claim("alone", "local"),
    claim("only", volume="vo", modes=("ReadWriteOncePod",)),
    claim("waits-too", "local"),
    storage_class("made", provisioner="kubernetes.io/aws-ebs"),
    volume("vs", zone="1"),
    volume("vs", labels={"topology.kubernetes.io/zone": "2"}),
    local("l2", "c", size="3Gi"),
    limited("a", {CSI: 1}),
    limited("b", {EBS: 1}),
    attachment("x", "b", "vs"),
)
OBJECTS: Final = (*AT_FIRST, *LATER)
Step: TypeAlias = tuple[Any, ...]


class VolumeScenario:
    """A snapshot whose indexes exist from the start, and the steps that can change it."""

    def __init__(self) -> None:
        self.table = Snapshot()
        self._decoder = Decoder(Interner())
        self.classes = [self._pod(pod).cls for pod in PODS]

    def _pod(self, obj: Json) -> Pod:
        decoded = self._decoder.decode("Pod", msgspec.json.encode(obj))
        assert isinstance(decoded, Pod)
        return decoded

    def _read(self, obj: Json) -> Object:
        return self._decoder.decode(obj["kind"], msgspec.json.encode(obj))

    def do(self, step: Step) -> None:
        match step:
            case ("pod", name, which, where):
                self.table.upsert("Pod", _pod(name, self.classes[which], where))
            case ("no pod", name):
                self.table.delete("Pod", f"default/{name}")
            case ("node", name, zone):
                self.table.upsert("Node", self._read(zoned(name, zone)))
            case ("node for node", old, new):
                self.table.delete("Node", old)
                self.do(("node", new, "1"))  # The node gets the same row.
            case ("object", which):
                self.table.upsert(OBJECTS[which]["kind"], self._read(OBJECTS[which]))
            case ("no object", which):
                self.table.delete(OBJECTS[which]["kind"], key_of(self._read(OBJECTS[which])))
            case ("ask", which):
                self.ask(which)
            case ("compact",):
                self.table.compact()
            case ("trial", steps):
                self.attempt(steps)

    def ask(self, which: int) -> list[dict[str, str]]:
        return [dict(sorted(reasons(plugin, self.classes[which], self.table).items())) for plugin in PLUGINS]

    def attempt(self, steps: Iterable[Step]) -> None:
        with self.table.trial() as trial:
            placed: list[tuple[PodClass, int]] = []
            evicted: set[str] = set()
            for step in steps:
                self._try(step, trial, placed, evicted)
            self.check()
        assert self.table.assumed_claims == {}

    def _try(self, step: Step, trial: Trial, placed: list[tuple[PodClass, int]], evicted: set[str]) -> None:
        rows = self.table.nodes.row
        match step:
            case ("place", which, where) if where in rows:
                trial.place(self.classes[which], rows[where])
                placed.append((self.classes[which], rows[where]))
            case ("displace", which, _) if placed:
                trial.unplace(*placed.pop(which % len(placed)))
            case ("evict", name, _) if name not in evicted and (obj := self.table.pods.get(f"default/{name}")):
                if obj.node_name in rows:
                    evicted.add(name)
                    trial.evict(obj)
            case ("keep", _, _):
                trial.keep()
            case ("ask", which, _):
                self.ask(which)

    def check(self) -> None:
        """Check that all classes have the same results as on a new snapshot."""
        fresh = VolumeScenario()
        fresh.classes = self.classes
        kinds = {obj["kind"] for obj in OBJECTS}
        fresh.table.replace("Node", self.table.nodes)
        for kind in kinds:
            fresh.table.replace(kind, self.table.of(kind).values())
        standing = [
            (cls, row)
            for cls in self.table.classes()
            for row, count in self.table.rows_of(cls).items()
            for _ in range(count)
        ]
        for number, (cls, row) in enumerate(standing):
            fresh.table.upsert("Pod", _pod(f"n{number}", cls, self.table.nodes.names[row]))
        for which in range(len(self.classes)):
            assert self.ask(which) == fresh.ask(which)


def _pod(name: str, cls: PodClass, where: str) -> Pod:
    return Pod(namespace="default", name=name, uid=name, node_name=where, cls=cls)


_CLASS = st.integers(0, len(PODS) - 1)
_OBJECT = st.integers(0, len(OBJECTS) - 1)
_TRIED = st.one_of(
    st.tuples(st.just("place"), _CLASS, st.sampled_from(NODES)),
    st.tuples(st.just("place"), _CLASS, st.sampled_from(NODES)),
    st.tuples(st.just("displace"), _CLASS, st.none()),
    st.tuples(st.just("evict"), st.sampled_from(NAMES), st.none()),
    st.tuples(st.just("keep"), st.none(), st.none()),
    st.tuples(st.just("ask"), _CLASS, st.none()),
)
_STEP = st.one_of(
    st.tuples(st.just("pod"), st.sampled_from(NAMES), _CLASS, st.sampled_from(NODES)),
    st.tuples(st.just("pod"), st.sampled_from(NAMES), _CLASS, st.sampled_from((*NODES, "", "unknown"))),
    st.tuples(st.just("no pod"), st.sampled_from(NAMES)),
    st.tuples(st.just("node"), st.sampled_from((*NODES, "d")), st.sampled_from(("1", "2", ""))),
    st.tuples(st.just("node for node"), st.sampled_from(NODES), st.sampled_from((*NODES, "d"))),
    st.tuples(st.just("object"), _OBJECT),
    st.tuples(st.just("no object"), _OBJECT),
    st.tuples(st.just("ask"), _CLASS),
    st.tuples(st.just("compact")),
    st.tuples(st.just("trial"), st.lists(_TRIED, min_size=2, max_size=8)),
    st.tuples(st.just("trial"), st.lists(_TRIED, min_size=2, max_size=8)),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(_STEP, min_size=4, max_size=25))
def test_results_equal_those_of_a_new_snapshot(steps: list[Step]) -> None:
    cluster = VolumeScenario()
    for name, zone in zip(NODES, ("1", "2", ""), strict=True):
        cluster.do(("node", name, zone))
    for which in range(len(AT_FIRST)):
        cluster.do(("object", which))
    for which in range(len(PODS)):
        cluster.ask(which)
    for step in steps:
        cluster.do(step)
    cluster.check()


def test_rows_that_are_added_later_are_counted() -> None:
    """The columns grow while indexes are in use."""
    cluster = VolumeScenario()
    for which in range(len(OBJECTS)):
        cluster.do(("object", which))
    for which in range(len(PODS)):
        cluster.ask(which)
    for number in range(30):
        cluster.do(("pod", f"p{number}", number % len(PODS), f"n{number}"))
        cluster.do(("node", f"n{number}", "1"))
    cluster.check()
