"""Fixtures of several folders: certificates, Prometheus's tools, and a control plane that is emptied between tests."""

import functools
import logging
import os
import shutil
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeAlias
from unittest.mock import patch

import httpcore2
import pytest
from hypothesis import settings

from devcluster import build, cleaning
from devcluster.debian import Prometheus, prometheus_binaries
from devcluster.errors import LocalError, SetupError
from devcluster.plane import ControlPlane
from tests.providers import pki

Shown: TypeAlias = Callable[[], AbstractContextManager[None]]

# The time of an example depends on the machine, so there is no deadline.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


# Loading the public CAs takes up to 30 ms of CPU time for each TLS context. Servers of tests have their own CAs.
patch.object(ssl.SSLContext, "load_default_certs", lambda *_: None).start()
patch.object(httpcore2, "default_ssl_context", functools.cache(httpcore2.default_ssl_context)).start()

# The control planes of tests are small, so fewer garbage collections cost little memory.
os.environ.setdefault("GOGC", "400")
# The workers already use all processors. Threads of each Go program that look for work would only cost CPU time.
os.environ.setdefault("GOMAXPROCS", "1")

# Tests must not depend on the environment: it may contain options of the program or a kubeconfig. Its HTTP proxies are
# used for downloads and builds, but not for servers on this machine.
for name in [name for name in os.environ if name.startswith(("RESCHEDULER_", "KUBE"))]:
    del os.environ[name]
_direct = [os.environ.get("no_proxy") or os.environ.get("NO_PROXY", ""), "127.0.0.1", "localhost", "::1"]
os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(filter(None, _direct))


#: The files that take longest, in this order. A worker runs a whole file, so long ones must not come last.
_LONGEST = (
    *("test_trials", "test_least_privilege", "test_owed", "test_interrupted_proxy", "test_writes", "test_last_look"),
    *("test_surge_disturbed", "test_provider_room", "test_debts", "test_interrupted_daemon", "test_bad_days_memory"),
    *("test_interrupted_termination", "test_bad_days_machines", "test_room", "test_bad_days_changes"),
    *("test_victims_leave", "test_bad_days_replacements", "test_churn", "test_observed", "test_broken"),
    *("test_scale_down", "test_leadership", "test_least_privilege_liqo"),
    *("test_bad_days_autoscaler", "test_fencing", "test_demo", "test_sizes", "test_liqo_peerings", "test_pause"),
    *("test_targets", "test_landing", "test_externalgrpc_caller", "test_matching"),
    *("test_conformance", "test_damage", "test_node_manager", "test_bad_days_blocked"),
)


def _length(path: Path) -> int:
    return -_LONGEST.index(path.stem) if path.stem in _LONGEST else -len(_LONGEST)


#: Fixtures that run a control plane or a program that is built for tests: tests with one get the marker `cluster`.
_BUILT = frozenset({"control_plane", "oracle", "caller", "prometheus", "chromium"})


#: Files whose tests start many processes, wait for time-outs or try many examples: they get the marker `slow`.
_SLOW = frozenset(
    {
        *("test_completion", "test_endpoint", "test_held", "test_imports", "test_provider", "test_wrong_configuration"),
        *("test_guard", "test_reuse", "test_drain_order", "test_pace", "test_topology_index"),
        *("test_transitions", "test_volume_indexes", "test_rule_pairs"),
    }
)


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    if item.path.stem in _SLOW:
        item.add_marker(pytest.mark.slow)
    if not _BUILT.isdisjoint(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.cluster)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the files that wait for a cluster evenly among those that compute, so that no processor is idle."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    waiting = [path for path, tests in files.items() if any(test.get_closest_marker("cluster") for test in tests)]
    computing = [path for path in files if path not in set(waiting)]
    for paths in (waiting, computing):
        paths.sort(key=_length, reverse=True)
    places = {path: place / len(paths) for paths in (waiting, computing) for place, path in enumerate(paths)}
    items[:] = [test for path in sorted(files, key=places.__getitem__) for test in files[path]]


@pytest.fixture(autouse=True)
def _own_log() -> Iterator[None]:
    """Restore the logging configuration, which commands change for their process."""
    root, ours = logging.getLogger(), logging.getLogger("rescheduler")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    yield
    root.handlers = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the certificates of `pki.make`, for tests that do not change them."""
    folder = tmp_path_factory.mktemp("pki")
    pki.make(folder)
    return folder


@pytest.fixture
def pems(certificates: Path, tmp_path: Path) -> Path:
    """Return a copy of the certificates that a test may change."""
    return Path(shutil.copytree(certificates, tmp_path / "pki"))


@pytest.fixture(scope="session")
def shown(pytestconfig: pytest.Config) -> Shown:
    """Return a context manager during which output is shown: the progress of a build, which takes minutes."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    disabled: Shown = capture.global_and_fixture_disabled
    return disabled


@pytest.fixture(scope="session")
def prometheus(shown: Shown) -> Prometheus:
    try:
        with shown():
            return prometheus_binaries()
    except SetupError as error:
        pytest.skip(f"no Prometheus: {error}")


@pytest.fixture(scope="session")
def control_plane(shown: Shown) -> Iterator[ControlPlane]:
    """Run a control plane without nodes. Tests use `cluster`, which cleans up after them.

    The binaries are built when the first test needs them; all workers wait for the one that builds.
    """
    try:
        with shown():
            build.binaries()
        plane = ControlPlane()
        plane.start()
    except LocalError as error:
        pytest.fail(f"no control plane: {error}", pytrace=False)
    yield plane
    plane.close()


@pytest.fixture
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Return the empty control plane. Afterwards, delete the test's objects and restart stopped components."""
    yield control_plane
    control_plane.start_stopped()
    cleaning.empty(control_plane)
