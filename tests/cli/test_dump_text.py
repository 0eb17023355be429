"""Files that are not only the output of ``kubectl get``: warnings before it, errors of the API server, dumps."""

import json
from pathlib import Path

import pytest

from rescheduler.errors import InputError, UsageError
from rescheduler.snapshot_file import reader
from tests.planning.builders import ON_DEMAND, node, pod

OBJECTS = [node("od", ON_DEMAND), node("s-1"), pod("a-1", "od")]
LIST = json.dumps({"kind": "List", "apiVersion": "v1", "items": OBJECTS})
NODES = json.dumps({"kind": "NodeList", "apiVersion": "v1", "items": OBJECTS[:2]}, indent=4)
PODS = json.dumps({"kind": "PodList", "apiVersion": "v1", "items": OBJECTS[2:]}, indent=4)
WARNING = "Warning: v1 Endpoints is deprecated in v1.33+"
OF = "logs for container main of pod default/a-1 ====\n"
LOGS = f"==== START {OF}{{not JSON\n\n==== END {OF}"

TEXTS: dict[str, tuple[str, list[str]]] = {
    "a list": (LIST, []),
    "a warning first": (f"{WARNING}\n{LIST}", [f"line 1 is not JSON: {WARNING}"]),
    "two warnings first": (
        f"{WARNING}\n\n{WARNING}\n{LIST}",
        [f"line 1 is not JSON, nor are the lines 2 to 3: {WARNING}"],
    ),
    "a warning before YAML": (
        f"{WARNING}\napiVersion: v1\nkind: List\nitems: {json.dumps(OBJECTS)}\n",
        [f"line 1 is not JSON: {WARNING}"],
    ),
    "a dump": (f"{NODES}\n{PODS}\n{LOGS}{LOGS}", ["the logs of 2 containers"]),
    "logs between lists": (f"{NODES}\n{LOGS}{PODS}\n", ["the logs of 1 container"]),
    "long logs": (f"{NODES}\n{LOGS.replace('{not', '{not' * 50_000)}{PODS}\n", ["the logs of 1 container"]),
    "logs that end nowhere": (f"{NODES}\n{PODS}\n{LOGS.partition('==== END')[0]}", ["the logs of 1 container"]),
}


@pytest.mark.parametrize(("text", "told"), TEXTS.values(), ids=TEXTS)
def test_what_is_readable_is_read_and_the_rest_is_told(tmp_path: Path, text: str, told: list[str]) -> None:
    path, skipped = tmp_path / "dump.json", list[str]()
    path.write_text(text)
    snapshot = reader.read(str(path), skipped=skipped.append)
    assert (sorted(each.name for each in snapshot.nodes), list(snapshot.pods)) == (["od", "s-1"], ["default/a-1"])
    assert skipped == told


def test_the_folder_of_a_dump_is_read(tmp_path: Path) -> None:
    (tmp_path / "default" / "a-1").mkdir(parents=True)
    (tmp_path / "nodes.json").write_text(NODES)
    (tmp_path / "default" / "pods.json").write_text(PODS)
    (tmp_path / "default" / "a-1" / "logs.txt").write_text(LOGS)
    skipped = list[str]()
    snapshot = reader.read(str(tmp_path), skipped=skipped.append)
    assert (len(list(snapshot.nodes)), list(snapshot.pods)) == (2, ["default/a-1"])
    assert skipped == ["1 file without the extension .json"]


def test_a_folder_without_lists_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected JSON files in the folder"):
        reader.read(str(tmp_path))


@pytest.mark.parametrize("kind", ["Unauthorized", "forbidden: User cannot list nodes"])
def test_an_error_of_the_api_server_is_told(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "status.json"
    path.write_text(
        json.dumps({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": kind, "code": 401})
    )
    with pytest.raises(InputError, match=rf"an error of the API server instead of objects: {kind} \(code 401\)"):
        reader.read(str(path))
