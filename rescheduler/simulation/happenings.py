"""The events file of a simulation: what happens to the cluster, and when."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from rescheduler.durations import nanoseconds
from rescheduler.errors import InputError
from rescheduler.net import files
from rescheduler.planning.forms import count
from rescheduler.simulation.requests import RequestRefused
from rescheduler.simulation.store import KINDS, PLURALS, Json, controller_of, key_of
from rescheduler.simulation.world import World

#: Seconds between two steps of a change that takes time.
_STEP_SECONDS: Final = 60.0


class Happening:
    """One entry of the file."""

    def __init__(self, number: int, entry: Any, name: str) -> None:
        self._where = f"{name}: event {number}"
        if not isinstance(entry, dict):
            raise InputError(f"{self._where}: expected a mapping with the key at, got {type(entry).__name__}")
        self.entry = entry
        self.at = self.seconds("at", required=True)
        verbs = [verb for verb in VERBS if verb in entry]
        if len(verbs) != 1:
            raise InputError(f"{self._where}: expected exactly one of {', '.join(VERBS)}")
        self.verb = verbs[0]
        act, keys = VERBS[self.verb]
        if unknown := sorted(set(entry) - {"at", self.verb, *keys}):
            raise InputError(
                f"{self._where}: {unknown[0]} is not a key of {self.verb}; expected {', '.join(sorted(keys)) or 'none'}"
            )
        self._act = act
        if self.verb == "scale":
            self.integer("replicas")
            self.seconds("over")
        if self.verb in ("stuck", "silent"):
            self.seconds("for", required=True)
        if self.verb == "create" and not (isinstance(entry["create"], dict) and "metadata" in entry["create"]):
            raise InputError(f"{self._where}: create: expected an object with kind and metadata")

    def seconds(self, key: str, *, required: bool = False) -> float:
        """Return the duration *key* in seconds; 0 if it is not given."""
        text = self.entry.get(key)
        if text is None and not required:
            return 0.0
        try:
            seconds = nanoseconds(str(text)) / 1e9
        except ValueError as error:
            raise InputError(f"{self._where}: {key}: {text!r}: {error}") from error
        if seconds < 0:
            raise InputError(f"{self._where}: {key}: {text!r}: expected a duration of at least 0")
        return seconds

    def integer(self, key: str) -> int:
        value = self.entry.get(key)
        if not isinstance(value, int) or value < 0:
            raise InputError(f"{self._where}: {key}: expected a number of at least 0, got {value!r}")
        return value

    def check(self, world: World) -> None:
        """Raise InputError if what the event names does not exist, as far as that is known at the start."""
        if self.verb in ("scale", "roll-out", "stuck"):
            self.workload(world)

    def workload(self, world: World) -> tuple[str, Json]:
        """Return the plural and the object of the workload ``namespace/name``."""
        key = str(self.entry[self.verb])
        for plural in ("deployments", "statefulsets"):
            if (found := world.store.get(plural, key)) is not None:
                return plural, found
        raise InputError(f"{self._where}: {self.verb}: there is no Deployment or StatefulSet {key}")

    def happen(self, world: World) -> str:
        """Do it. Return what happened, for people."""
        try:
            return self._act(self, world)
        except (InputError, RequestRefused) as error:
            return str(error)


def read(path: Path) -> list[Happening]:
    """Read an events file (YAML or JSON). Raises InputError with the event, the key and what is expected."""
    name = files.printable(str(path))
    try:
        entries = yaml.safe_load(files.read_text(path))
    except yaml.YAMLError as error:
        raise InputError(f"{name}: expected YAML: {' '.join(str(error).split())}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{name}: cannot be read: {error}") from error
    if not isinstance(entries, list):
        raise InputError(f"{name}: expected a list of events, each with the key at")
    return [Happening(number, entry, name) for number, entry in enumerate(entries, 1)]


def _scale(event: Happening, world: World) -> str:
    plural, found = event.workload(world)
    wanted, seconds = event.integer("replicas"), event.seconds("over")
    before = found["spec"].get("replicas", 1)
    steps = max(int(seconds // _STEP_SECONDS), 1)
    for step in range(1, steps + 1):
        replicas = before + (wanted - before) * step // steps
        change = {"spec": {"replicas": replicas}}
        world.engine.after((step - 1) * _STEP_SECONDS, partial(_patch, world, plural, key_of(found), change))
    return f"{event.entry['scale']}: scaled from {before} to {wanted}"


def _patch(world: World, plural: str, key: str, change: Json) -> None:
    if world.store.get(plural, key) is not None:
        world.store.patch(plural, key, change)


def _roll_out(event: Happening, world: World) -> str:
    plural, found = event.workload(world)
    template = {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": world.engine.timestamp}}}
    world.store.patch(plural, key_of(found), {"spec": {"template": template}})
    return f"{event.entry['roll-out']}: rolled out again"


def _stuck(event: Happening, world: World) -> str:
    """New pods of a workload do not become Ready for a while."""
    _, found = event.workload(world)
    uid, until = found["metadata"]["uid"], world.engine.now + event.seconds("for", required=True)
    before = world.kubelets.start_seconds

    def seconds(pod: Json) -> float | None:
        if world.engine.now >= until or not _belongs(world, pod, uid):
            return before(pod)
        return until - world.engine.now

    world.kubelets.start_seconds = seconds
    return f"{event.entry['stuck']}: its new pods do not become Ready"


def _belongs(world: World, pod: Json, uid: str) -> bool:
    owner = controller_of(pod)
    if owner is None or owner["uid"] == uid:
        return owner is not None
    found = world.store.get(PLURALS.get(owner["kind"], ""), f"{pod['metadata']['namespace']}/{owner['name']}")
    above = None if found is None else controller_of(found)
    return above is not None and above["uid"] == uid


def _lose(event: Happening, world: World) -> str:
    """The cloud takes spot nodes: one by name, or those with given labels."""
    wanted = event.entry["lose"]
    names = []
    for node in world.store.all("nodes"):
        labels = node["metadata"].get("labels") or {}
        named = wanted == node["metadata"]["name"]
        labeled = isinstance(wanted, dict) and all(labels.get(key) == value for key, value in wanted.items())
        if world.is_spot(node) and (named or labeled):
            names.append(node["metadata"]["name"])
    if isinstance(wanted, int):
        names = sorted(node["metadata"]["name"] for node in world.store.all("nodes") if world.is_spot(node))[:wanted]
    with_notice = bool(event.entry.get("notice", True))
    for name in names:
        world.market.interrupt(name, with_notice=with_notice)
    return f"{count(len(names), 'spot node')} interrupted"


def _silent(event: Happening, world: World) -> str:
    """The kubelet of a node does not report for a while; its machine stays."""
    name = str(event.entry["silent"])
    world.kubelets.stop(name, delete=False)
    world.engine.after(event.seconds("for", required=True), partial(world.kubelets.revive, name))
    return f"node {name}: its kubelet does not report"


def _create(event: Happening, world: World) -> str:
    item = event.entry["create"]
    plural = PLURALS.get(item.get("kind", ""))
    if plural is None:
        return f"create: {item.get('kind')} is not a kind that is simulated"
    world.server.create(KINDS[plural], {**item, "metadata": {"namespace": "default", **item["metadata"]}})
    return f"{item['kind']} {item['metadata']['name']}: created"


def _delete(event: Happening, world: World) -> str:
    kind, _, key = str(event.entry["delete"]).partition(" ")
    plural = PLURALS.get(kind, "")
    item = world.store.get(plural, key)
    if item is None:
        return f"delete: there is no {kind} {key}"
    world.store.delete(plural, key)
    return f"{kind} {key}: deleted"


def _kill(_: Happening, world: World) -> str:
    for replica in world.daemons:
        replica.kill()
    return "the daemon is killed and started again"


_Act = Callable[[Happening, World], str]
VERBS: Final[dict[str, tuple[_Act, frozenset[str]]]] = {
    "scale": (_scale, frozenset({"replicas", "over"})),
    "roll-out": (_roll_out, frozenset()),
    "stuck": (_stuck, frozenset({"for"})),
    "lose": (_lose, frozenset({"notice"})),
    "silent": (_silent, frozenset({"for"})),
    "create": (_create, frozenset()),
    "delete": (_delete, frozenset()),
    "kill": (_kill, frozenset()),
}
