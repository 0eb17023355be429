"""One control plane for all cluster tests of a session, emptied between tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local import cleaning
from deploy.local.errors import LocalError
from deploy.local.plane import ControlPlane


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs a control plane, and says so with its mark."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A whole control plane without nodes. Tests use `cluster`, which cleans up after them."""
    plane = ControlPlane()
    try:
        plane.start()
    except LocalError as error:
        pytest.fail(f"no control plane: {error}", pytrace=False)
    yield plane
    plane.close()


@pytest.fixture
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The control plane, empty; what the test made in it is deleted afterwards."""
    yield control_plane
    control_plane.wait_for(lambda: cleaning.wipe(control_plane.api), "an empty cluster")
