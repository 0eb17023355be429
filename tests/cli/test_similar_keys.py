"""An unknown key of a configuration file is answered with the similar one that exists."""

import json
from pathlib import Path

import pytest

from rescheduler.cloudpool.proxy import config as proxy
from rescheduler.errors import ConfigError
from rescheduler.net.config_files import Endpoint, shaped


@pytest.mark.parametrize(
    ("document", "near"),
    [
        ({"drain": {"evictonTimeout": "2m"}}, "; did you mean evictionTimeout?"),
        ({"apiServr": {}}, "; did you mean apiServer?"),
        ({"zzz": {}}, ""),
    ],
)
def test_keys_of_the_proxy(tmp_path: Path, document: object, near: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(document))
    with pytest.raises(ConfigError) as raised:
        proxy.read(file)
    assert str(raised.value).endswith(near or "`zzz`")


def test_keys_of_other_configurations() -> None:
    with pytest.raises(ConfigError, match=r"; did you mean tokenFile\?$"):
        shaped({"url": "http://a", "tokenFil": "x"}, Endpoint, "cloud configuration a.yaml")
