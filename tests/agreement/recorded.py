"""What the real control plane did in each scene, as files: the objects at the start, and the audit log."""

import gzip
from pathlib import Path
from typing import Final

import msgspec

from devcluster.audit import AuditEvent
from devcluster.manifests import Json
from tests.agreement.judging import Agreement, course_of
from tests.agreement.scenes import SCENES, AgreementScene
from tests.agreement.simulated import simulated

FOLDER: Final = Path(__file__).parent / "recorded"


class RecordedScene(msgspec.Struct, frozen=True):
    items: list[Json]
    events: list[AuditEvent]


def file_of(scene: AgreementScene) -> Path:
    return FOLDER / f"{scene.name.replace(' ', '-')}.json.gz"


def save(scene: AgreementScene, recorded: RecordedScene) -> None:
    FOLDER.mkdir(exist_ok=True)
    file_of(scene).write_bytes(gzip.compress(msgspec.json.encode(recorded), mtime=0))


def load(scene: AgreementScene) -> RecordedScene:
    return msgspec.json.decode(gzip.decompress(file_of(scene).read_bytes()), type=RecordedScene)


def agreements() -> list[Agreement]:
    """Return how the simulated cluster agrees with the recordings of all scenes."""
    return [agreement(scene, load(scene)) for scene in SCENES]


def agreement(scene: AgreementScene, recorded: RecordedScene) -> Agreement:
    return Agreement(scene.name, course_of(recorded.events), course_of(simulated(scene, recorded.items)))
