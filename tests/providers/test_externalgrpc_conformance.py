"""The table of `conformance` over external gRPC with the other backends."""

import pytest

from tests.providers.cherry import cherry_world
from tests.providers.cloudpools import cloudpool_world
from tests.providers.conformance import CHECKS
from tests.providers.externalgrpcs import through
from tests.providers.groupless import GROUPLESS
from tests.providers.liqos import liqo_world
from tests.providers.nothing import no_world
from tests.providers.stackpoints import first_generation, second_generation
from tests.providers.worlds import MakeWorld

BEHIND: dict[str, MakeWorld] = {
    "cloudpool": through(cloudpool_world),
    "cherryservers": through(cherry_world),
    "stackpoint, first generation": through(first_generation),
    "stackpoint, second generation": through(second_generation),
    "liqo": through(liqo_world),
}


@pytest.mark.parametrize("fact", sorted(CHECKS))
@pytest.mark.parametrize("backend", BEHIND)
def test_a_provider_behind_the_service_follows_the_rules(backend: str, fact: str) -> None:
    CHECKS[fact](BEHIND[backend])


@pytest.mark.parametrize("fact", GROUPLESS)
def test_no_provider_behind_the_service_follows_the_rules(fact: str) -> None:
    GROUPLESS[fact](through(no_world))
