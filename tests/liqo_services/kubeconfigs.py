"""Kubeconfigs of clusters that share their resources."""

from collections.abc import Mapping
from typing import Any

import yaml


def kubeconfig(user: Mapping[str, Any] | None = None, cluster: Mapping[str, Any] | None = None) -> str:
    """Return a kubeconfig with a token; *user* replaces the user entry, *cluster* adds fields."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": "https://remote.example:6443", **(cluster or {})}}],
            "users": [{"name": "u", "user": dict(user or {"token": "sesame"})}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
    )
