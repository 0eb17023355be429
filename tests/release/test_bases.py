"""The images of a release are pinned by the digests that their registries have, and a release uses no other."""

import ssl
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from deploy.release import bases, registry
from deploy.release.errors import ReleaseError
from tests.release.registry import DOCKER, OCI, Registry, Reply, digest, index, serving

ROOT = Path(__file__).parents[2]
IMAGES = bases.images((ROOT / "Dockerfile").read_text())
BOTH = index("linux/amd64", "linux/arm64/v8", "unknown/unknown")
NAME = "library/python:3.11-slim"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Registry, Path]]:
    folder = tmp_path_factory.mktemp("registry")
    with serving(folder) as started:
        yield started, folder / "ca.pem"


@pytest.fixture
def images(served: tuple[Registry, Path], monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry that has nothing yet, and whose certificate is trusted."""
    started, authority = served
    started.replies, started.token, started.realm, started.asked = {}, None, None, []
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    # Other tests load no public CAs (conftest.py).
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda context, *_: context.set_default_verify_paths())
    return started


PARTS = {
    "python:3.11-slim": "https://registry-1.docker.io/v2/library/python/manifests/3.11-slim",
    "docker.io/library/python:3": "https://registry-1.docker.io/v2/library/python/manifests/3",
    "moby/buildkit:buildx-stable-1": "https://registry-1.docker.io/v2/moby/buildkit/manifests/buildx-stable-1",
    "gcr.io/distroless/python3-debian12:nonroot": "https://gcr.io/v2/distroless/python3-debian12/manifests/nonroot",
    "localhost/a:1": "https://localhost/v2/a/manifests/1",
    "127.0.0.1:5000/a/b/c:1": "https://127.0.0.1:5000/v2/a/b/c/manifests/1",
}


@pytest.mark.parametrize("name", PARTS)
def test_names_are_read_as_docker_reads_them(name: str) -> None:
    assert registry.parsed(name).url == PARTS[name]


@pytest.mark.parametrize("name", ["python", "127.0.0.1:5000/python", f"python:3@sha256:{'0' * 64}", ":3"])
def test_names_without_a_tag_are_refused(name: str) -> None:
    with pytest.raises(ReleaseError, match="expected an image with a tag"):
        registry.parsed(name)


@pytest.mark.parametrize("kind", [OCI, DOCKER])
def test_the_digest_is_that_of_the_index(kind: str, images: Registry) -> None:
    reply = index("linux/amd64", "linux/arm64", "linux/arm/v7", kind=kind)
    images.replies[NAME] = [reply]
    assert registry.digest(f"{images.host}/{NAME}") == digest(reply.body)
    assert images.asked == [f"/v2/{NAME}".replace(":", "/manifests/"), "/token", *images.asked[:1]]


def test_a_registry_that_is_busy_is_asked_again(images: Registry) -> None:
    busy = [Reply(429, headers={"Retry-After": "0"}), Reply(503), Reply(429, headers={"Retry-After": "soon"})]
    images.replies[NAME] = [*busy, BOTH]
    assert registry.digest(f"{images.host}/{NAME}", wait_seconds=0) == digest(BOTH.body)


BODY = BOTH.body
FAILURES: dict[str, tuple[Reply, str]] = {
    "no such tag": (Reply(404), "404 Not Found"),
    "a registry that stays busy": (Reply(429), "429 Too Many Requests"),
    "an error of the registry": (Reply(500), "500 Internal Server Error"),
    "no access": (Reply(403), "403 Forbidden"),
    "another digest than that of the index": (
        Reply(body=BODY, headers={"Content-Type": OCI, "Docker-Content-Digest": digest(b"another")}),
        f"states the digest {digest(b'another')}, and sends an index with {digest(BODY)}",
    ),
    "an index that was changed": (Reply(body=BODY + b" ", headers=BOTH.headers), "states the digest"),
    "an image for one platform": (
        Reply(body=b"{}", headers={"Content-Type": "application/vnd.oci.image.manifest.v1+json"}),
        "expected an image for linux/amd64 and linux/arm64, got application/vnd.oci.image.manifest.v1+json",
    ),
    "an index of one platform": (index("linux/amd64", "windows/arm64"), "the image does not exist for linux/arm64"),
    "an index of nothing": (index(manifests=None), "the image does not exist for linux/amd64 and linux/arm64"),
    "manifests without a digest": (index(manifests=[{"platform": {"os": "linux"}}, 1, None]), "does not exist for"),
    "a page": (Reply(body=b"<html>", headers={"Content-Type": "text/html"}), "got text/html"),
    "no JSON": (Reply(body=b"<html>", headers={"Content-Type": OCI}), "expected a JSON object from the registry"),
    "a long response": (Reply(body=b" " * (5 << 20), headers={"Content-Type": OCI}), "is larger than 4 MiB"),
    "a redirection that never ends": (Reply(302, headers={"Location": "/v2/library/python/manifests/3.11-slim"}), ""),
    "a redirection to nowhere": (Reply(302, headers={"Location": "https://[/"}), ""),
}


@pytest.mark.parametrize("name", FAILURES)
def test_what_is_no_digest_of_an_image_is_an_error(name: str, images: Registry) -> None:
    reply, why = FAILURES[name]
    images.replies[NAME] = [reply]
    with pytest.raises(ReleaseError) as error:
        registry.digest(f"{images.host}/{NAME}", wait_seconds=0)
    assert str(error.value).startswith(f"{images.host}/{NAME}: ")
    assert why in str(error.value)


def test_tokens_are_only_taken_over_tls(images: Registry) -> None:
    images.replies[NAME] = [BOTH]
    images.realm = f"http://{images.host}/token"
    with pytest.raises(ReleaseError, match="expected an https address"):
        registry.digest(f"{images.host}/{NAME}")
    images.realm = None
    for token in (Reply(403), Reply(body=b"[]"), Reply(body=b'{"token": 1}')):
        images.token = token
        with pytest.raises(ReleaseError, match="expected a"):
            registry.digest(f"{images.host}/{NAME}")
    images.token = Reply(body=b'{"token": "another"}')
    with pytest.raises(ReleaseError, match="401 Unauthorized"):
        registry.digest(f"{images.host}/{NAME}")


def test_a_registry_with_another_certificate_is_not_asked(images: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    images.replies[NAME] = [BOTH]
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(ReleaseError, match=r"certificate verify failed"):
        registry.digest(f"{images.host}/{NAME}", wait_seconds=0)
    assert images.asked == []


@pytest.fixture
def dockerfile(images: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a Dockerfile with bases of our registry, which also has the images that build it."""
    monkeypatch.setattr(bases, "BUILDERS", {name: f"{images.host}/{image}" for name, image in bases.BUILDERS.items()})
    names = {name: f"{images.host}/ours/{name.lower()}:1" for name in ("BASE", "RUNTIME")}
    file = tmp_path / "Dockerfile"
    file.write_text("".join(f"ARG {name}={image}\n" for name, image in names.items()))
    for name, image in bases.images(file.read_text()).items():
        images.replies[image.partition("/")[2]] = [index("linux/amd64", "linux/arm64", annotations={"name": name})]
    return file


def test_images_are_pinned_and_then_no_longer_resolved(
    dockerfile: Path, images: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "bases.lock"
    assert bases.main([], lock, dockerfile) == 0
    names = bases.images(dockerfile.read_text())
    sent = {name: images.replies[image.partition("/")[2]][0].body for name, image in names.items()}
    images.replies = {}
    images.asked = []
    assert bases.main(["--print"], lock, dockerfile) == 0
    lines = [f"{name}={image}@{digest(sent[name])}\n" for name, image in names.items()]
    assert capsys.readouterr() == ("".join(lines), "")
    assert list(names) == ["BASE", "RUNTIME", "BUILDER", "SCANNER"]
    assert images.asked == []


def test_an_image_that_cannot_be_resolved_leaves_the_lock_as_it_is(
    dockerfile: Path, images: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "bases.lock"
    lock.write_text("# before\n")
    images.replies["ours/runtime:1"] = [Reply(404)]
    assert bases.main([], lock, dockerfile) == 1
    assert lock.read_text() == "# before\n"
    assert capsys.readouterr().err.startswith(f"bases: {images.host}/ours/runtime:1: ")


def test_a_registry_that_cannot_be_reached_is_one_line() -> None:
    with pytest.raises(ReleaseError, match=r"^127\.0\.0\.1:1/a:1: https://127\.0\.0\.1:1/v2/a/manifests/1: [^\n]+$"):
        registry.digest("127.0.0.1:1/a:1", wait_seconds=0)


def pinned(image: str) -> str:
    return f"{image}@{digest(image.encode())}"


@pytest.mark.parametrize("left_out", IMAGES)
def test_a_release_is_not_built_with_an_image_without_a_digest(
    left_out: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "bases.lock"
    lock.write_text("# text\n" + "".join(f"{key}={pinned(IMAGES[key])}\n" for key in IMAGES if key != left_out))
    assert bases.main(["--print"], lock) == 1
    assert capsys.readouterr() == (
        "",
        f"bases: bases.lock: {left_out}={IMAGES[left_out]} has no digest; run make bases\n",
    )


@pytest.mark.parametrize(
    "line",
    [
        f"BASE=python:3.10-slim@sha256:{'0' * 64}",
        "BASE=python:3.11-slim",
        "BASE=python:3.11-slim@sha256:0",
        f"OTHER=python:3.11-slim@sha256:{'0' * 64}",
    ],
)
def test_a_lock_of_other_images_is_refused(line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = tmp_path / "bases.lock"
    lock.write_text(f"{line}\n")
    assert bases.main(["--print"], lock) == 1
    assert capsys.readouterr().err.endswith(f"{line}; run make bases\n")


def test_the_lock_is_empty_or_of_the_images_of_a_release() -> None:
    pins = [line for line in bases.LOCK.read_text().splitlines() if line and not line.startswith("#")]
    assert not pins or list(bases.locked(bases.LOCK.read_text(), IMAGES)) == list(IMAGES)


def test_the_lock_is_printed_without_any_package(tmp_path: Path) -> None:
    """As the workflow does before it installs one."""
    lock = tmp_path / "bases.lock"
    lock.write_text("".join(f"{name}={pinned(image)}\n" for name, image in IMAGES.items()))
    script = f"import pathlib; from deploy.release import bases; bases.main(['--print'], pathlib.Path({str(lock)!r}))"
    run = partial(subprocess.run, cwd=ROOT, capture_output=True, text=True, check=True)
    done = run([sys.executable, "-S", "-c", script])
    assert done.stdout == lock.read_text()
