"""The shared fixture of the acceptance tests."""

from collections.abc import Iterator

import pytest

from devcluster import cleaning
from devcluster.plane import ControlPlane
from tests.acceptance.scenes import scene
from tests.proxy.world import ProxyWorld


@pytest.fixture(scope="module")
def guarded(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyWorld]:
    """A pool of two machines that no request to the proxy can remove, because their Nodes are protected.

    Tests can send any number of requests to it, and a removal that bypasses the proxy's checks is detected.
    """

    def protect(env: ProxyWorld) -> None:
        for name in env.nodes():
            annotation = {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
            control_plane.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"annotations": annotation}})

    config = {"server": {"timeout": "10s", "updateTimeout": "15s"}, "backend": {"timeout": "5s"}}
    folder = tmp_path_factory.mktemp("guarded")
    with scene(control_plane, folder, 2, before=protect, config=config) as env:
        env.post("/pool/size", {"desiredSize": 1})
        yield env
    cleaning.empty(control_plane)
