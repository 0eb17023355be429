"""A client of container registries (OCI distribution specification) that resolves tags to digests, and nothing else."""

import hashlib
import re
import ssl
from dataclasses import dataclass
from typing import Any, Final

import httpx2
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from deploy.release.errors import ReleaseError

#: An image for several platforms, in the format of OCI and in the older one of Docker.
_INDEXES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
#: The platforms of a release.
PLATFORMS: Final = ("linux/amd64", "linux/arm64")

#: What a name without a host means (https://docs.docker.com/reference/cli/docker/image/tag/).
_DEFAULT_HOST, _DEFAULT_FOLDER = "docker.io", "library"
_ADDRESSES: Final = {_DEFAULT_HOST: "registry-1.docker.io"}

_CHALLENGE: Final = re.compile(r'(realm|service|scope)="([^"]*)"')
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_MOST: Final = 4 << 20  #: bytes of a manifest, the limit of the specification
_SECONDS: Final = 30.0
_ATTEMPTS: Final = 4
_LONGEST_WAIT: Final = 60.0


class _TryAgainError(Exception):
    """The registry is busy, or cannot be reached. *seconds* is how long it asks to wait."""

    def __init__(self, message: str, seconds: float = 0.0) -> None:
        super().__init__(message)
        self.seconds = seconds


@dataclass(frozen=True)
class Image:
    """The parts of a name such as ``python:3.11-slim`` or ``gcr.io/distroless/python3-debian12:nonroot``."""

    host: str
    repository: str
    tag: str

    @property
    def url(self) -> str:
        return f"https://{_ADDRESSES.get(self.host, self.host)}/v2/{self.repository}/manifests/{self.tag}"


def parsed(name: str) -> Image:
    """Return the parts of *name*. Raises ReleaseError if it has no tag."""
    path, _, tag = name.rpartition(":")
    if not path or "/" in tag or "@" in name:
        raise ReleaseError(f"{name}: expected an image with a tag")
    host, _, repository = path.partition("/")
    if not (repository and re.search(r"[.:]|^localhost$", host)):
        host, repository = _DEFAULT_HOST, path if repository else f"{_DEFAULT_FOLDER}/{path}"
    return Image(host, repository, tag)


def digest(name: str, wait_seconds: float = 1.0) -> str:
    """Return the digest that the registry of the image *name* has now for its tag.

    It is computed from the index that the registry sends. Attempts are at least *wait_seconds* apart, doubling.
    Raises ReleaseError.
    """
    image = parsed(name)
    retrying = Retrying(
        retry=retry_if_exception_type(_TryAgainError),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=lambda state: max(_asked(state), wait_exponential(wait_seconds)(state)),
        reraise=True,
    )
    try:
        with httpx2.Client(verify=ssl.create_default_context(), timeout=_SECONDS, follow_redirects=True) as client:
            return _checked(retrying(_index, client, image))
    except (_TryAgainError, ReleaseError) as error:
        raise ReleaseError(f"{name}: {error}") from error


def _asked(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    return min(error.seconds, _LONGEST_WAIT) if isinstance(error, _TryAgainError) else 0.0


def _index(client: httpx2.Client, image: Image) -> httpx2.Response:
    """Return the index of *image*. The registry may first ask for a token, which anybody gets."""
    headers = {"Accept": ", ".join(_INDEXES)}
    response = _got(client, image.url, headers)
    if response.status_code == httpx2.codes.UNAUTHORIZED:
        challenge = dict(_CHALLENGE.findall(response.headers.get("WWW-Authenticate", "")))
        headers["Authorization"] = f"Bearer {_token(client, challenge)}"
        response = _got(client, image.url, headers)
    if response.status_code != httpx2.codes.OK:
        raise ReleaseError(f"{image.url}: {response.status_code} {response.reason_phrase}")
    return response


def _token(client: httpx2.Client, challenge: dict[str, str]) -> str:
    realm = challenge.pop("realm", "")
    if not realm.startswith("https://"):
        raise ReleaseError(f"the registry wants credentials from {realm or 'nowhere'}, expected an https address")
    response = _got(client, realm, {}, challenge)
    given = _object(response) if response.status_code == httpx2.codes.OK else {}
    token = given.get("token") or given.get("access_token")
    if not isinstance(token, str):
        raise ReleaseError(f"{realm}: {response.status_code}: expected a token")
    return token


def _got(
    client: httpx2.Client, url: str, headers: dict[str, str], query: dict[str, str] | None = None
) -> httpx2.Response:
    """Return the whole response. Raises _TryAgainError if a later attempt may succeed, and ReleaseError."""
    try:
        with client.stream("GET", url, headers=headers, params=query) as response:
            if response.status_code == httpx2.codes.TOO_MANY_REQUESTS or response.is_server_error:
                asked = response.headers.get("Retry-After", "")
                seconds = float(asked) if asked.isascii() and asked.isdigit() else 0.0
                raise _TryAgainError(f"{url}: {response.status_code} {response.reason_phrase}", seconds)
            body = b""
            for part in response.iter_bytes():
                body += part
                if len(body) > _MOST:
                    raise ReleaseError(f"{url}: the response is larger than {_MOST >> 20} MiB")
            return httpx2.Response(response.status_code, headers=_kept(response), content=body)
    except httpx2.TransportError as error:
        raise _TryAgainError(f"{url}: {error or type(error).__name__}") from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise ReleaseError(f"{url}: {error}") from error


def _kept(response: httpx2.Response) -> dict[str, str]:
    names = ("Content-Type", "WWW-Authenticate", "Docker-Content-Digest")
    return {name: response.headers[name] for name in names if name in response.headers}


def _checked(response: httpx2.Response) -> str:
    """Return the digest of an index. Raises ReleaseError if the registry says another one, or a platform is missing."""
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip()
    if kind not in _INDEXES:
        raise ReleaseError(f"expected an image for {' and '.join(PLATFORMS)}, got {kind or 'no type'}")
    actual = f"sha256:{hashlib.sha256(response.content).hexdigest()}"
    stated = response.headers.get("Docker-Content-Digest", actual)
    if stated != actual:
        raise ReleaseError(f"the registry states the digest {stated[:80]}, and sends an index with {actual}")
    found = set()
    for each in _object(response).get("manifests") or ():
        platform = each.get("platform") if isinstance(each, dict) else None
        if isinstance(platform, dict) and _DIGEST.fullmatch(str(each.get("digest"))):
            found.add(f"{platform.get('os')}/{platform.get('architecture')}")
    if missing := [each for each in PLATFORMS if each not in found]:
        raise ReleaseError(f"the image does not exist for {' and '.join(missing)}")
    return actual


def _object(response: httpx2.Response) -> dict[str, Any]:
    try:
        document = response.json()
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise ReleaseError("expected a JSON object from the registry")
    return document
