"""``python -m deploy.release.bases``: pin the base images of the Dockerfile by their digests, in ``bases.lock``.

With ``--print``, print them for the build instead. A release is not built on an image without a digest in the lock:
whoever can move a tag would decide what the image contains.
"""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from deploy.release.errors import ReleaseError

_ROOT: Final = Path(__file__).parents[2]
LOCK: Final = Path(__file__).with_name("bases.lock")
_INSPECT: Final = ("docker", "buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}")
_ARGUMENT: Final = re.compile(r"^ARG (BASE|RUNTIME)=(\S+)$", re.MULTILINE)
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_HEAD: Final = "# The base images of the Dockerfile, with their digests: `make bases` writes this file.\n"


def images(dockerfile: str) -> dict[str, str]:
    """Return the base images in *dockerfile*, by the name of their build argument."""
    return dict(_ARGUMENT.findall(dockerfile))


def locked(lock: str, wanted: Mapping[str, str]) -> dict[str, str]:
    """Return the *wanted* images with their digests in *lock*.

    Raises ReleaseError if a line is invalid, old or missing.
    """
    found = {}
    for line in lock.splitlines():
        if line.startswith("#") or not line:
            continue
        name, _, pinned = line.partition("=")
        image, _, digest = pinned.partition("@")
        if wanted.get(name) != image or not _DIGEST.fullmatch(digest):
            raise ReleaseError(
                f"bases.lock: expected {name}={wanted.get(name, 'IMAGE')}@sha256:…: {line}; run make bases"
            )
        found[name] = pinned
    for name, image in wanted.items():
        if name not in found:
            raise ReleaseError(f"bases.lock: {name}={image} has no digest; run make bases")
    return found


def resolved(image: str) -> str:
    """Return *image* with the digest that its registry has now for its tag. Raises ReleaseError."""
    try:
        done = subprocess.run([*_INSPECT, image], capture_output=True, text=True, check=False, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ReleaseError(f"{image}: docker buildx: {error}") from error
    digest = done.stdout.strip()
    if done.returncode or not _DIGEST.fullmatch(digest):
        why = " ".join((done.stderr or digest).split())
        raise ReleaseError(f"{image}: docker buildx imagetools found no digest: {why}")
    return f"{image}@{digest}"


def main(arguments: list[str], lock: Path = LOCK) -> int:
    """Write the lock, or print the images. Return the exit code."""
    wanted = images((_ROOT / "Dockerfile").read_text())
    try:
        if arguments == ["--print"]:
            pinned = locked(lock.read_text(), wanted)
            print("\n".join(f"{name}={pinned[name]}" for name in wanted))
        else:
            lock.write_text(_HEAD + "".join(f"{name}={resolved(image)}\n" for name, image in wanted.items()))
    except ReleaseError as error:
        print(f"bases: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
