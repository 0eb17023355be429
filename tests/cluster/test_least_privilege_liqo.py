"""Each right of the Liqo services is necessary: without it there is a clear error, and a full run uses it."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import httpx2
import pytest

from devcluster.audit import AuditLog
from devcluster.plane import ControlPlane
from tests.acceptance.program import LoggedProgram
from tests.cluster.rendering import kustomization
from tests.cluster.rights import Granted, Right, shipped
from tests.cluster.test_least_privilege import unused
from tests.cluster.test_liqo_discovery import arguments, secret
from tests.cluster.test_liqo_node_manager import GROUP, client
from tests.cluster.virtual import CONFIG, VirtualSite, site
from tests.providers import pki

PARTS: Final = "liqo-autoscaling"
MANAGER: Final = "node-manager"
DISCOVERY: Final = "discovery-server"
OF_THE_MANAGER: Final = shipped("liqo/node-manager/rbac.yaml")
OF_DISCOVERY: Final = shipped("liqo/discovery/rbac.yaml")
DELETE: Final = Right("delete", "authentication.liqo.io", "resourceslices")


@pytest.fixture
def granted(cluster: ControlPlane) -> Iterator[Granted]:
    """The rights of both services, in their namespaces."""
    objects = kustomization("liqo")
    cluster.apply([item for item in objects if item["kind"] == "Namespace"])
    with Granted(cluster, objects) as connection:
        yield connection


def of(account: str) -> str:
    return f"system:serviceaccount:{PARTS}:{account}"


def ask(here: VirtualSite, path: str, **query: str) -> str:
    """Return the response text of a route of the original node manager's API, or the error."""
    with client(here, "client") as connection:
        try:
            return connection.get(path, params=query).text
        except httpx2.TransportError as error:
            return str(error)


def scale_up(here: VirtualSite) -> str:
    return ask(here, "/nodegroup/scaleup", id=GROUP, count="1")


def scale_down(here: VirtualSite) -> str:
    return "".join(ask(here, "/nodegroup/scaledown", id=f"liqo://{name}", nodegroupid=GROUP) for name in here.nodes())


def named(here: VirtualSite, right: Right) -> bool:
    """Return whether the node manager reports *right* as missing, in a response or in its log."""
    response_text = scale_down(here) if right == DELETE else scale_up(here)
    lines = [line["message"] for line in here.manager.lines]
    assert not [line for line in lines if "Traceback" in line]
    return right.words in response_text.replace('\\"', '"') or any(right.words in line for line in lines)


def final_errors(folder: Path, part: str) -> list[str]:
    """Return the plain error lines of a program that could not start."""
    lines = [line for file in folder.glob(f"{part}*") for line in _text(file).splitlines()]
    return [line for line in lines if line.startswith("rescheduler")]


def _text(file: Path) -> str:
    return file.read_text() if file.suffix in {"", ".log"} else ""


class TestWithoutLiqoRights:
    @pytest.mark.parametrize("right", OF_THE_MANAGER, ids=str)
    def test_a_missing_right_is_named_by_the_node_manager(
        self, right: Right, cluster: ControlPlane, granted: Granted, tmp_path: Path
    ) -> None:
        own = cluster.service_account_kubeconfig(PARTS, MANAGER)
        if right != DELETE:
            granted.take(right)
        with site(cluster, tmp_path, {"rome": 2}, own=own, start=False) as here:
            if right.verb == "list":
                with pytest.raises(AssertionError):
                    here.start(CONFIG)
                assert [right.words in line for line in final_errors(tmp_path, MANAGER)] == [True]
                return
            here.start(CONFIG)
            if right == DELETE:
                here.eventually(lambda: scale_up(here) is not None and here.nodes(), "a virtual node")
                granted.take(right)
            here.eventually(partial(named, here, right), str(right))

    @pytest.mark.parametrize("right", OF_DISCOVERY, ids=str)
    def test_a_missing_right_is_named_by_discovery(
        self, right: Right, cluster: ControlPlane, granted: Granted, tmp_path: Path
    ) -> None:
        granted.take(right)
        with discovery(cluster, tmp_path) as program:
            if right.verb == "list":
                assert program.end() == 1
                assert [right.words in line for line in final_errors(tmp_path, "log")] == [True]
                return
            cluster.wait_for(lambda: program.logged(right.words), str(right), seconds=120)
            assert not program.logged("Traceback")


def discovery(cluster: ControlPlane, folder: Path) -> LoggedProgram:
    pki.make(folder)
    for file, key in {"server.crt": "tls.crt", "server.key": "tls.key", "ca.pem": "ca.crt"}.items():
        (folder / key).write_bytes((folder / file).read_bytes())
    own = cluster.service_account_kubeconfig(PARTS, DISCOVERY)
    return LoggedProgram(folder / "log", *arguments(folder, own))


class TestAllLiqoRightsAreUsed:
    """The audit log of full runs contains every granted right."""

    @pytest.mark.usefixtures("granted")
    def test_the_node_manager_uses_every_right(self, cluster: ControlPlane, tmp_path: Path) -> None:
        audit = AuditLog(cluster.layout.audit_log)
        own = cluster.service_account_kubeconfig(PARTS, MANAGER)
        with site(cluster, tmp_path, {"rome": 1}, own=own, start=False) as here:
            here.start(CONFIG)
            scale_up(here)
            here.eventually(
                lambda: [node for node in here.nodes().values() if node["spec"].get("providerID")], "a virtual node"
            )
            here.eventually(lambda: scale_down(here) == "" and not here.nodes(), "the deletion of the virtual node")
        roles = [item for item in kustomization("liqo") if item["metadata"]["name"] == MANAGER]
        assert unused(cluster, audit, of(MANAGER), roles) == set()

    @pytest.mark.usefixtures("granted")
    def test_discovery_uses_every_right(self, cluster: ControlPlane, tmp_path: Path) -> None:
        audit = AuditLog(cluster.layout.audit_log)
        with discovery(cluster, tmp_path) as program:
            cluster.wait_for(lambda: program.logged("serving the list of clusters on "), "discovery", seconds=120)
            cluster.apply([secret("rome", autoscaling="true")])
            program.terminate()
            assert program.end() == 0
        roles = [item for item in kustomization("liqo") if item["metadata"]["name"] == DISCOVERY]
        assert unused(cluster, audit, of(DISCOVERY), roles) == set()
