"""The proxy's configuration file: the JSON format of kubeaware-cloudpool-proxy, with additional keys.

Durations have Go's format; zero and negative ones mean the default. :mod:`rescheduler.cloudpool.proxy.config` reads
it.
"""

import json
import logging
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

import msgspec

from rescheduler.cloudpool.client import PoolSection
from rescheduler.draining.state import Limits
from rescheduler.errors import ConfigError
from rescheduler.net import files
from rescheduler.net.config_files import INT32, Duration, Endpoint, Section, plain_http, with_similar_key

#: The maximum wait for the confirmation of a termination, while clients wait for the result, in seconds.
_REMOVAL_SECONDS: Final = 600.0


class GoDuration(float):
    """A duration in seconds, which may be negative."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> "GoDuration":
        if isinstance(text, str) and text[:1] in {"-", "+"}:
            return cls(Duration.parse(text[1:]) * (-1 if text[0] == "-" else 1))
        return cls(Duration.parse(text))


class ServerTls(Section, frozen=True, kw_only=True):
    cert_path: str
    key_path: str
    client_ca_path: str | None = None  #: clients must present a certificate signed by it


class ServerSection(Section, frozen=True, kw_only=True):
    timeout: GoDuration = GoDuration(60)  #: maximum time to receive a request
    queue_timeout: GoDuration = GoDuration(300)  #: maximum time of an update in the queue
    update_timeout: GoDuration = GoDuration(3600)  #: maximum time of an update after the queue
    tls: ServerTls | None = None
    bearer_token_path: str | None = None  #: clients must send this token
    host_names: tuple[str, ...] = ()  #: the names of the proxy; requests with another name in Host are refused


class ApiServerAuth(Section, frozen=True, kw_only=True):
    kube_config_path: str | None = None
    context: str | None = None  #: a context of the kubeconfig; default: the one for `url`, or the current one
    in_cluster: bool = False
    client_cert_path: str | None = None
    client_key_path: str | None = None
    ca_cert_path: str | None = None
    token_path: str | None = None


class ApiServerSection(Section, frozen=True, kw_only=True):
    url: str = ""
    auth: ApiServerAuth = ApiServerAuth()
    timeout: GoDuration = GoDuration(60)


class BackendAuth(Section, frozen=True, kw_only=True):
    ca_cert_path: str | None = None
    client_cert_path: str | None = None
    client_key_path: str | None = None
    username: str | None = None
    password_path: str | None = None
    token_path: str | None = None


class BackendSection(Section, frozen=True, kw_only=True):
    url: str = ""
    cloud_pool_url: str = ""  #: the documented name of `url`
    timeout: GoDuration = GoDuration(300)
    auth: BackendAuth = BackendAuth()
    api: Literal["v5", "multipool"] = "v5"
    settle_time: GoDuration = GoDuration(300)  #: how long a termination without a response may take effect
    poll_interval: GoDuration = GoDuration(2)  #: between two polls while a machine is being terminated


class DrainSection(Section, frozen=True, kw_only=True):
    eviction_timeout: GoDuration = GoDuration(120)  #: for evictions that are rejected with 429
    max_graceful_termination: GoDuration = GoDuration(600)  #: the maximum of a pod's grace period
    termination_headroom: GoDuration = GoDuration(30)  #: from the end of the grace period until the pod must be gone
    #: for the replacement pods to become Ready, from the last eviction; 0: they only need to be bound
    landing_timeout: GoDuration = GoDuration(0)

    def limits(self) -> Limits:
        """Return the time limits of drains."""
        return Limits(
            eviction=float(self.eviction_timeout),
            grace=float(self.max_graceful_termination),
            headroom=float(self.termination_headroom),
            landing=float(self.landing_timeout),
            removal=_REMOVAL_SECONDS,
        )


class ProxyFile(Section, frozen=True, kw_only=True):
    server: ServerSection = ServerSection()
    api_server: ApiServerSection = ApiServerSection()
    backend: BackendSection = BackendSection()
    drain: DrainSection = DrainSection()
    min_size: int = 0  #: machines that the pool keeps, regardless of the requests of clients

    @property
    def backend_url(self) -> str:
        """The URL of the backend without user and password."""
        parts = _split(self._written_url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    @property
    def url_password(self) -> str | None:
        """The password in the backend's URL; `None` if the URL has no user."""
        return unquote(_split(self._written_url).password or "") if self.url_user else None

    @property
    def url_user(self) -> str:
        """The user in the backend's URL; "" if there is none."""
        return unquote(_split(self._written_url).username or "")

    @property
    def _written_url(self) -> str:
        return (self.backend.url or self.backend.cloud_pool_url).rstrip("/")

    def pool(self) -> PoolSection:
        """Return the backend as a pool of the cloudpool provider."""
        auth = self.backend.auth
        endpoint = Endpoint(
            url=self.backend_url,
            timeout=Duration(self.backend.timeout),
            ca_file=auth.ca_cert_path,
            client_cert_file=auth.client_cert_path,
            client_key_file=auth.client_key_path,
            username=auth.username or self.url_user or None,
            password_file=auth.password_path,
            token_file=auth.token_path,
        )
        return PoolSection(
            id="pool",
            backend=endpoint,
            api=self.backend.api,
            min_size=self.min_size,
            max_size=INT32,
            order_timeout=Duration(self.backend.timeout),
            settle_time=Duration(self.backend.settle_time),
            poll_interval=Duration(self.backend.poll_interval),
        )


def _split(url: str) -> SplitResult:
    """Split *url*. An invalid URL becomes a path, which the validation of the file rejects."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", url, "", "")


# Read and check the proxy's configuration file.
#
# Keys are case-insensitive, as in kubeaware-cloudpool-proxy; unknown keys are errors. `null` and duplicate keys have
# Go's semantics. Relative paths are resolved against the working directory.

log = logging.getLogger(__name__)


def read(path: Path) -> ProxyFile:
    """Read and validate the file. Raises ConfigError, one line that names the file and the key."""
    where = f"configuration {files.printable(path)}"
    try:
        document = json.loads(files.read_text(path), object_pairs_hook=_Pairs)
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: not JSON: {error}") from error
    try:
        file = msgspec.convert(_recased(document, ProxyFile, where), ProxyFile, dec_hook=_decode)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {with_similar_key(error, ProxyFile)}") from error
    _check(file, where)
    completed: ProxyFile = _with_defaults(file)
    return completed


def _check(file: ProxyFile, where: str) -> None:
    """Check the file in the order of the original. Raises ConfigError for the first problem."""
    api, auth, backend = file.api_server, file.api_server.auth, file.backend
    certificates = not (auth.kube_config_path or auth.in_cluster or auth.token_path)
    complaints = {
        "apiServer.url: missing": not (api.url or auth.in_cluster or auth.kube_config_path),
        "apiServer.url: expected http(s)://host[:port]": bool(api.url) and not plain_http(api.url),
        "apiServer.auth.clientCertPath: missing": certificates and not auth.client_cert_path,
        "apiServer.auth.clientKeyPath: missing": certificates and not auth.client_key_path,
        "apiServer.auth.caCertPath: missing": certificates and not auth.ca_cert_path,
        "backend.url: missing": not file.backend_url,
        "backend.url and backend.cloudPoolUrl: expected one of them": bool(backend.url and backend.cloud_pool_url),
        "backend.url: expected http(s)://host[:port][/path]": not plain_http(file.backend_url),
        "backend.url: expected a URL without a user, because backend.auth is set": bool(file.url_user)
        and bool(backend.auth.username or backend.auth.token_path),
        "backend.url: expected a user name without a colon": ":" in file.url_user,
        "backend.auth.passwordPath: expected together with username": bool(backend.auth.username)
        != bool(backend.auth.password_path),
        "backend.auth.tokenPath: not allowed with username": bool(backend.auth.username and backend.auth.token_path),
        f"minSize: expected 0 to {INT32}": not 0 <= file.min_size <= INT32,
    }
    for complaint, holds in complaints.items():
        if holds:
            raise ConfigError(f"{where}: {complaint}")


def check_files(file: ProxyFile, path: Path) -> None:
    """Check that all required files that *file* (read from *path*) names are readable. Raises ConfigError with the key.

    The contents are checked later, when they are used.
    """
    tls, api, backend = file.server.tls, file.api_server.auth, file.backend.auth
    unused = bool(api.kube_config_path or api.in_cluster)
    named: dict[str, str | None] = {
        "server.tls.certPath": tls.cert_path if tls else None,
        "server.tls.keyPath": tls.key_path if tls else None,
        "server.tls.clientCaPath": tls.client_ca_path if tls else None,
        "server.bearerTokenPath": file.server.bearer_token_path,
        "apiServer.auth.clientCertPath": None if unused else api.client_cert_path,
        "apiServer.auth.clientKeyPath": None if unused else api.client_key_path,
        "apiServer.auth.caCertPath": None if unused else api.ca_cert_path,
        "apiServer.auth.tokenPath": None if unused else api.token_path,
        "backend.auth.caCertPath": backend.ca_cert_path,
        "backend.auth.clientCertPath": backend.client_cert_path,
        "backend.auth.clientKeyPath": backend.client_key_path,
        "backend.auth.passwordPath": backend.password_path,
        "backend.auth.tokenPath": backend.token_path,
    }
    for key, name in named.items():
        if not name:
            continue
        try:
            files.check(name)
        except OSError as error:
            raise ConfigError(f"configuration {path}: {key}: {files.printable(name)}: {error.strerror}") from error


def _with_defaults(section: Any) -> Any:
    """Replace durations that are not positive with their defaults."""
    changes = {}
    for field in msgspec.structs.fields(section):
        value = getattr(section, field.name)
        if isinstance(value, msgspec.Struct):
            changes[field.name] = _with_defaults(value)
        elif isinstance(value, GoDuration) and value <= 0:
            changes[field.name] = field.default
    return msgspec.structs.replace(section, **changes)


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with its duplicate keys."""


def _recased(document: Any, shape: Any, where: str) -> Any:
    """Return *document* with keys spelled as in the struct *shape*; unknown keys are kept.

    As in Go, the last of duplicate keys counts, objects are merged, and `null` leaves a field unchanged. A duration
    must not be null.
    """
    if not isinstance(document, _Pairs):
        return document
    fields = {field.encode_name.lower(): field for field in msgspec.structs.fields(shape)} if shape else {}
    merged: dict[str, Any] = {}
    for key, value in document:
        field = fields.get(key.lower())
        if field is None:
            merged[key] = _recased(value, None, where)
            continue
        name = field.encode_name
        if value is None and field.type is not GoDuration:
            continue
        if name in merged:
            log.warning("%s: the key %r occurs more than once; the last value counts", where, name)
        read = _recased(value, _struct_of(field.type), where)
        before = merged.get(name)
        merged[name] = {**before, **read} if isinstance(before, dict) and isinstance(read, dict) else read
    return merged


def _struct_of(annotation: Any) -> Any:
    structs = [option for option in getattr(annotation, "__args__", (annotation,)) if _is_struct(option)]
    return structs[0] if structs else None


def _is_struct(shape: Any) -> bool:
    return isinstance(shape, type) and issubclass(shape, msgspec.Struct)


def _decode(shape: type, value: object) -> object:
    if shape is GoDuration:
        return GoDuration.parse(value)
    raise NotImplementedError(f"no decoder for {shape}")
