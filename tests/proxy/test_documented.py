"""The proxy's configuration and its `docker run` in docs/cloudpool.md."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from rescheduler.cli.proxy import command
from rescheduler.cloudpool.proxy import config
from rescheduler.errors import ConfigError

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cloudpool.md").read_text(encoding="utf-8").partition("## The proxy")[2]


def documented() -> Any:
    return json.loads(re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)[0])


def docker_run() -> tuple[dict[str, str], str, list[str]]:
    """Return the flags with values, the image, and the arguments of the program."""
    [text] = re.findall(r"```bash\n(docker run .*?)```", PAGE, re.DOTALL)
    arguments = [word for word in shlex.split(text.replace("\\\n", " "))[2:] if word != "--rm"]
    at = next(number for number in range(0, len(arguments), 2) if not arguments[number].startswith("-"))
    return dict(zip(arguments[0:at:2], arguments[1:at:2], strict=True)), arguments[at], arguments[at + 1 :]


def test_the_documented_docker_run_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The container's working directory contains the configuration and all files that it names."""
    flags, image, arguments = docker_run()
    source, mounted, _ = flags["-v"].split(":")
    assert (source, flags["-w"], flags["--user"]) == ("$PWD", mounted, "$(id -u):$(id -g)")
    assert image.endswith("/spot-rescheduler")
    assert 'ENTRYPOINT ["rescheduler"]' in (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert arguments[0] == command.name
    parsed = command.make_context("proxy", arguments[1:]).params
    assert flags["-p"].rpartition(":")[2] == str(parsed["port"])
    monkeypatch.chdir(tmp_path)
    file = tmp_path / parsed["config_file"]
    file.write_text(json.dumps(documented()))
    read = config.read(file)
    with pytest.raises(ConfigError, match=re.escape("client.pem: No such file")):
        config.check_files(read, file)
    for name in ("client.pem", "client-key.pem", "ca.pem", "password"):
        Path(name).touch()
    config.check_files(read, file)
