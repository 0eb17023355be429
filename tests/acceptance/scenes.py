"""The environment of `tests.proxy.world` with shorter intervals, and optionally with an edge."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from devcluster.api import Json
from devcluster.plane import ControlPlane
from tests.acceptance import edge
from tests.acceptance.edge import Edge
from tests.proxy.world import ProxyWorld, world


@contextlib.contextmanager
def scene(
    plane: ControlPlane, folder: Path, machines: int, *, config: Mapping[str, Json] | None = None, **fields: Any
) -> Iterator[ProxyWorld]:
    """Run a `world` whose proxy polls the pool frequently. *fields* are arguments of `world`."""
    sections = dict(config or {})
    sections["backend"] = {"pollInterval": "300ms", **sections.get("backend", {})}
    with world(plane, folder, machines, config=sections, **fields) as env:
        yield env


@contextlib.contextmanager
def watched(plane: ControlPlane, folder: Path, machines: int, **fields: Any) -> Iterator[tuple[ProxyWorld, Edge]]:
    """Run a scene whose proxy uses an edge for the API server and the pool."""
    borders: list[Edge] = []
    with contextlib.ExitStack() as until:

        def stand_between(env: ProxyWorld) -> None:
            border = until.enter_context(edge.serving(plane, env.server.url))
            env.config = {**env.config, "backend": {**env.config["backend"], "url": border.pool.url}}
            env.kubeconfig = border.kubeconfig(folder / "edge")
            borders.append(border)

        with scene(plane, folder, machines, before=stand_between, **fields) as env:
            yield env, borders[0]
