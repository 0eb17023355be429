"""The table of `conformance` for every backend."""

import pytest

from tests.providers.cherry import cherry_world
from tests.providers.cloudpools import cloudpool_world
from tests.providers.conformance import CHECKS
from tests.providers.first_node_managers import first_node_manager_world
from tests.providers.groupless import GROUPLESS
from tests.providers.karpenters import karpenter_world
from tests.providers.liqos import liqo_world
from tests.providers.nothing import no_world
from tests.providers.stackpoints import first_generation, second_generation
from tests.providers.worlds import MakeWorld

BACKENDS: dict[str, MakeWorld] = {
    "cloudpool": cloudpool_world,
    "cherryservers": cherry_world,
    "stackpoint, first generation": first_generation,
    "stackpoint, second generation": second_generation,
    "liqo, the first node manager": first_node_manager_world,
    "liqo": liqo_world,
    "karpenter": karpenter_world,
}


@pytest.mark.parametrize("fact", CHECKS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_each_backend_passes_each_check(backend: str, fact: str) -> None:
    CHECKS[fact](BACKENDS[backend])


@pytest.mark.parametrize("fact", GROUPLESS)
def test_the_backend_none_passes_each_check(fact: str) -> None:
    GROUPLESS[fact](no_world)
