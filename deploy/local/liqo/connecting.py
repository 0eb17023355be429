"""The API server of a control plane by its kubeconfig."""

import base64
import json
import tempfile
from pathlib import Path

from deploy.local.api import Api


def connected(kubeconfig: Path) -> Api:
    """With the token of a kubeconfig that `deploy.local` wrote."""
    config = json.loads(kubeconfig.read_text(encoding="utf-8"))
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
        return Api(cluster["server"], ca=Path(file.name), token=user["token"])
