"""What the scenes share."""

from collections.abc import Iterator

import pytest

from deploy.local import cleaning
from deploy.local.plane import ControlPlane
from tests.acceptance.scenes import scene
from tests.proxy.world import World


@pytest.fixture(scope="module")
def guarded(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A pool of two machines, of which nothing that is asked of the proxy takes one: their Nodes are protected.

    So any number of requests can be tried on it, and a removal that slips through is seen.
    """

    def protect(made: World) -> None:
        for name in made.nodes():
            annotation = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
            control_plane.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"annotations": annotation}})

    config = {"server": {"timeout": "10s", "updateTimeout": "15s"}, "backend": {"timeout": "5s"}}
    folder = tmp_path_factory.mktemp("guarded")
    with scene(control_plane, folder, 2, before=protect, config=config) as made:
        made.post("/pool/size", {"desiredSize": 1})
        yield made
    control_plane.wait_for(lambda: cleaning.wipe(control_plane.api), "an empty cluster")
