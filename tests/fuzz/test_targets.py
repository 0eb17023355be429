"""A few examples against each target; `make fuzz` runs many."""

from pathlib import Path

import pytest

from tests.fuzz.attack import AttackTally
from tests.fuzz.registry import TARGETS

#: Fewer examples where one may drain a node or wait for a cloud.
EXAMPLES = {
    "inputs": 15,
    "proxy": 6,
    "proxy-tls": 4,
    "provider-cherryservers": 8,
    "provider-cloudpool": 15,
}


#: The TLS server of the Liqo services is that of the proxy.
ONLY_IN_LONG_RUNS = ("liqo-discovery-tls", "liqo-node-manager-tls")


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in ONLY_IN_LONG_RUNS])
def test_no_input_causes_harm(name: str, tmp_path: Path) -> None:
    tally, examples = AttackTally(), EXAMPLES.get(name, 30)
    with TARGETS[name](tmp_path) as (process, attack):
        attack(tally, examples, 1)
        assert process.stop() == 0
    assert tally.examples >= examples
