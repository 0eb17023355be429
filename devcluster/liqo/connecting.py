"""Connections to the API server of a kubeconfig."""

import base64
import json
import tempfile
from pathlib import Path

from devcluster.api import Api


def connected(kubeconfig: Path) -> Api:
    """Return a connection with the token of a *kubeconfig* that `devcluster` wrote."""
    config = json.loads(kubeconfig.read_text(encoding="utf-8"))
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
        return Api(cluster["server"], ca=Path(file.name), token=user["token"])
