"""Liqo's command-line tool, for the one task that custom resources cannot do: the first peering with a cluster."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from predicates.texts import one_line
from rescheduler.durations import LONGEST_WAIT
from rescheduler.errors import Retryable, UsageError
from rescheduler.liqo.discovery import messages
from rescheduler.liqo.node_manager.catalog import RemoteCluster

_FOLDER: Final = "kubeconfigs"
_SECONDS_TO_END: Final = 10.0  #: seconds between SIGTERM and SIGKILL
_SPARE_SECONDS: Final = 30.0  #: additional seconds for liqoctl to report its own timeout
_COLORS: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
#: Matches tokens, keys and certificates in any form, in case liqoctl quotes its input.
_SECRETS: Final = re.compile(r"[A-Za-z0-9+/=_-]{40,}(\.[A-Za-z0-9+/=_-]+)*")


#: Flags that only one of the two commands accepts (``cmd/liqoctl/cmd``, v1.0 to v1.2).
_OWN_FLAGS: Final = {
    "peer": frozenset(
        {
            "cpu",
            "create-resource-slice",
            "create-virtual-node",
            "gw-client-address",
            "gw-client-port",
            "gw-server-service-loadbalancerip",
            "gw-server-service-location",
            "gw-server-service-nodeport",
            "gw-server-service-port",
            "gw-server-service-type",
            "in-band",
            "memory",
            "mtu",
            "networking-disabled",
            "pods",
            "proxy-url",
            "resource",
            "resource-slice-class",
            "skip-validation",
        }
    ),
    "unpeer": frozenset({"delete-namespaces", "wait"}),
}


class PeeringFailed(Retryable):
    """A liqoctl command failed."""


@dataclass(frozen=True, slots=True)
class Tool:
    """Settings for calling liqoctl. *state* is a private folder; files left in it by a killed process are deleted."""

    program: str
    state: Path
    timeout: float = 600.0  #: seconds
    kubeconfig: str | None = None  #: kubeconfig of the local cluster; default: the default of liqoctl
    context: str | None = None
    namespace: str = "liqo"
    arguments: tuple[str, ...] = ()  #: additional arguments, each for the commands that accept it


class Liqoctl:
    """Runs liqoctl, one command at a time. Kubeconfigs are only on disk while a command runs."""

    def __init__(self, tool: Tool) -> None:
        """Check the settings. Raises UsageError if the program does not exist or the folder is not writable."""
        if shutil.which(tool.program) is None:
            raise UsageError(f"--liqoctl {tool.program}: expected a program that can be run")
        self._tool = tool
        self._folder = tool.state / _FOLDER
        try:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(mode=0o700, parents=True)
        except OSError as error:
            raise UsageError(f"--database: {tool.state}: expected a folder to write to: {error.strerror}") from error
        self._running: subprocess.Popen[str] | None = None
        self._closed = False

    def peer(self, cluster: RemoteCluster) -> None:
        """Establish a peering without a slice, or accept an existing one. Raises PeeringFailed."""
        nat = ("--gw-server-service-location", "Consumer") if cluster.has_nat else ()
        own = ("--create-resource-slice=false", f"--timeout={self._tool.timeout:.0f}s")
        self._run("peer", cluster, (*own, *nat, *accepted_arguments("peer", self._tool.arguments)))

    def unpeer(self, cluster: RemoteCluster) -> None:
        """End the peering. Raises PeeringFailed."""
        own = f"--timeout={self._tool.timeout:.0f}s"
        self._run("unpeer", cluster, (own, *accepted_arguments("unpeer", self._tool.arguments)))

    def close(self) -> None:
        """Stop the running command, and reject further ones."""
        self._closed = True
        if (process := self._running) is not None:
            _terminate(process)

    def _run(self, verb: str, cluster: RemoteCluster, arguments: Sequence[str]) -> None:
        try:
            messages.kubeconfig(cluster.kubeconfig)
        except UsageError as error:
            raise PeeringFailed(f"cluster {cluster.name}: {error}") from error
        with self._file(cluster) as remote:
            local = {"--kubeconfig": self._tool.kubeconfig, "--context": self._tool.context}
            command = [
                self._tool.program,
                verb,
                f"--remote-kubeconfig={remote}",
                f"--namespace={self._tool.namespace}",
                "--skip-confirm",
                *(f"{name}={text}" for name, text in local.items() if text),
                *arguments,
            ]
            status, output = self._wait(command)
        if status != 0:
            how = "timed out" if status is None else f"exited with {status}"
            line = _last_line(output, _secrets(cluster.kubeconfig))
            raise PeeringFailed(f"liqoctl {verb} for cluster {cluster.name} {how}{': ' if line else ''}{line}")

    def _wait(self, command: list[str]) -> tuple[int | None, str]:
        """Run a command; return its exit status, `None` if it timed out, and its output."""
        if self._closed:
            raise PeeringFailed("the node manager is stopping")
        try:
            process = subprocess.Popen(  # noqa: S603 - a list, and no shell
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env=_environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise PeeringFailed(f"liqoctl cannot be run: {error.strerror}") from error
        self._running = process
        if self._closed:  # close() may have been called before the process was stored
            _terminate(process)
        try:
            output, _ = process.communicate(timeout=min(self._tool.timeout + _SPARE_SECONDS, LONGEST_WAIT))
        except subprocess.TimeoutExpired:
            _terminate(process)
            output, _ = process.communicate()
            return None, output
        finally:
            self._running = None
            _terminate(process)
        return process.returncode, output

    @contextlib.contextmanager
    def _file(self, cluster: RemoteCluster) -> Iterator[Path]:
        """Provide the cluster's kubeconfig in a private file while the block runs."""
        handle, name = tempfile.mkstemp(dir=self._folder, suffix=".yaml")  # mode 0600
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(cluster.kubeconfig)
            yield Path(name)
        finally:
            Path(name).unlink(missing_ok=True)


def accepted_arguments(verb: str, arguments: Sequence[str]) -> list[str]:
    """Return the *arguments* that ``liqoctl VERB`` accepts; a flag keeps its separate value."""
    foreign = frozenset[str]().union(*(flags for other, flags in _OWN_FLAGS.items() if other != verb))
    accepted, known = [], True
    for argument in arguments:
        if argument.startswith("-"):
            known = argument.lstrip("-").partition("=")[0] not in foreign
        if known:
            accepted.append(argument)
    return accepted


def _terminate(process: subprocess.Popen[str]) -> None:
    """Terminate the process and its children, if they are still running."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _environment() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if not name.startswith("RESCHEDULER_")}


def _secrets(kubeconfig: str) -> Collection[str]:
    """Return the secrets in a kubeconfig: all values of its users, and proxy URLs, which may contain a password."""
    document: Any = messages.parse(kubeconfig)
    proxies = [cluster["cluster"].get("proxy-url", "") for cluster in document["clusters"]]
    return {*_strings_in([user["user"] for user in document["users"]]), *_strings_in(proxies)}


def _strings_in(part: object) -> Iterator[str]:
    if isinstance(part, dict | list):
        for value in part.values() if isinstance(part, dict) else part:
            yield from _strings_in(value)
    elif isinstance(part, str) and part:
        yield part


def _last_line(output: str, secrets: Collection[str]) -> str:
    """Return the last non-empty line without colors, *secrets*, and anything that may be a secret."""
    lines = [line.strip() for line in _COLORS.sub("", output).splitlines() if line.strip()]
    line = lines[-1] if lines else ""
    for secret in sorted(secrets, key=len, reverse=True):
        line = line.replace(secret, "***")
    return one_line(_SECRETS.sub("***", line))
