"""The table of `conformance` for every backend, and that nothing of a backend was forgotten."""

import re
from pathlib import Path

import pytest

from rescheduler import providers
from tests.providers.awses import aws_world
from tests.providers.cherry import cherry_world
from tests.providers.cloudpools import cloudpool_world
from tests.providers.clusterapis import cluster_api_world, openshift_world
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
    "aws": aws_world,
    "clusterapi": cluster_api_world,
    "clusterapi, OpenShift": openshift_world,
}


@pytest.mark.parametrize("fact", CHECKS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_each_backend_passes_each_check(backend: str, fact: str) -> None:
    CHECKS[fact](BACKENDS[backend])


@pytest.mark.parametrize("fact", GROUPLESS)
def test_the_backend_none_passes_each_check(fact: str) -> None:
    GROUPLESS[fact](no_world)


ROOT = Path(__file__).parents[2]
#: Backends whose tables are in files of their own: one without machines, and one that tests start as a process.
APART = {"none", "externalgrpc"}


def test_every_backend_is_in_a_table() -> None:
    tested = {providers.BACKENDS[name.partition(",")[0]] for name in (*BACKENDS, *APART)}
    assert set(providers.BACKENDS.values()) - tested == set(), "add a world of it to BACKENDS in this file"


def test_every_module_that_loads_a_provider_is_a_backend() -> None:
    folder = ROOT / "rescheduler" / "providers"
    modules = {*folder.glob("*.py"), *folder.glob("*/__init__.py")} - {folder / "__init__.py"}
    loading = (path for path in modules if re.search(r"^def load\(", path.read_text(encoding="utf-8"), re.MULTILINE))
    names = {
        str(path.relative_to(ROOT).with_suffix("")).removesuffix("/__init__").replace("/", ".") for path in loading
    }
    assert len(names) >= 4
    assert names - set(providers.BACKENDS.values()) == set(), "add it to BACKENDS in rescheduler/providers/__init__.py"


def test_every_backend_has_a_page() -> None:
    named = {module: name for name, module in reversed(providers.BACKENDS.items())}
    lacking = {name for name in named.values() if not (ROOT / "docs" / f"{name}.md").is_file()}
    assert lacking == set(), "add docs/NAME.md, and list it in mkdocs.yml"
