"""kubeconfig files, written as JSON, which is valid YAML."""

import base64
import json
from pathlib import Path


def write(path: Path, *, server: str, ca: Path, token: str, user: str) -> Path:
    """Write a kubeconfig with one context and an embedded CA, readable only by the owner."""
    certificate = base64.b64encode(ca.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "local", "cluster": {"server": server, "certificate-authority-data": certificate}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": user}}],
        "current-context": "local",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(config, indent=2) + "\n")
    return path
