"""The proxy of `tests.proxy.world`, in more of a hurry, and with its calls in view."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from deploy.local import kubeconfig
from deploy.local.api import Json
from deploy.local.plane import ControlPlane
from tests.acceptance import edge
from tests.acceptance.edge import Edge
from tests.proxy.world import World, world


@contextlib.contextmanager
def scene(
    plane: ControlPlane, folder: Path, machines: int, *, config: Mapping[str, Json] | None = None, **more: Any
) -> Iterator[World]:
    """A world whose proxy looks often at a pool that changes quickly; *more* as for `world`."""
    sections = dict(config or {})
    sections["backend"] = {"pollInterval": "300ms", **sections.get("backend", {})}
    with world(plane, folder, machines, config=sections, **more) as made:
        yield made


@contextlib.contextmanager
def watched(plane: ControlPlane, folder: Path, machines: int, **more: Any) -> Iterator[tuple[World, Edge]]:
    """A scene whose proxy speaks to the API server and the pool through an edge."""
    borders: list[Edge] = []
    with contextlib.ExitStack() as until:

        def stand_between(made: World) -> None:
            border = until.enter_context(edge.serving(plane, made.server.url))
            made.config = {**made.config, "backend": {**made.config["backend"], "url": border.url}}
            made.kubeconfig = kubeconfig.write(
                folder / "edge", server=border.url, ca=plane.ca, token=plane.token, user="edge"
            )
            borders.append(border)

        with scene(plane, folder, machines, before=stand_between, **more) as made:
            yield made, borders[0]
