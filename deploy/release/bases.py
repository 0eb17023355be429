"""``python -m deploy.release.bases``: pin the images of a release by their digests, in ``bases.lock``.

These are the base images of the Dockerfile, and the images that build it: whoever can move a tag of one of them would
decide what our image contains. So a release is not built with an image that has no digest in the lock. With
``--print``, print the lock for the build, without any package.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from deploy.release.errors import ReleaseError

_ROOT: Final = Path(__file__).parents[2]
LOCK: Final = Path(__file__).with_name("bases.lock")
_ARGUMENT: Final = re.compile(r"^ARG (BASE|RUNTIME)=(\S+)$", re.MULTILINE)
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_HEAD: Final = (
    "# The images from which and with which a release is built, with their digests: `make bases` writes this file.\n"
)

#: What `docker buildx` runs: the builder, which gets the credentials of the registry, and the program that writes the
#: SBOM of the image.
BUILDERS: Final = {"BUILDER": "moby/buildkit:buildx-stable-1", "SCANNER": "docker/buildkit-syft-scanner:stable-1"}


def images(dockerfile: str) -> dict[str, str]:
    """Return the base images in *dockerfile*, by the name of their build argument, and the images that build it."""
    return dict(_ARGUMENT.findall(dockerfile)) | BUILDERS


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


def main(arguments: list[str], lock: Path = LOCK, dockerfile: Path = _ROOT / "Dockerfile") -> int:
    """Write the lock, or print the images. Return the exit code."""
    wanted = images(dockerfile.read_text())
    try:
        if arguments == ["--print"]:
            pinned = locked(lock.read_text(), wanted)
            print("\n".join(f"{name}={pinned[name]}" for name in wanted))
        else:
            from deploy.release import registry  # noqa: PLC0415 - --print runs before packages are installed

            digests = {name: registry.digest(image) for name, image in wanted.items()}
            lock.write_text(_HEAD + "".join(f"{name}={wanted[name]}@{digests[name]}\n" for name in wanted))
    except ReleaseError as error:
        print(f"bases: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
