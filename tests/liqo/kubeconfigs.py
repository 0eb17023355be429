"""Kubeconfigs of clusters that share their resources."""

from collections.abc import Mapping
from typing import Any

import yaml


def kubeconfig(user: Mapping[str, Any] | None = None, cluster: Mapping[str, Any] | None = None) -> str:
    """One with a token in it; *user* stands in its place, *cluster* is added."""
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
