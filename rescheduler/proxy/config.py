"""The proxy's configuration file: the JSON of kubeaware-cloudpool-proxy, and what it lacked.

Keys match in any case, as they always did; a key that nobody knows is an error. `null` and keys that are there more
than once are read as Go reads them. Durations are Go's; zero and
negative ones mean the default. Relative paths count from the working directory.
"""

import json
import logging
from pathlib import Path
from typing import Any, Literal
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

import msgspec

from rescheduler import files
from rescheduler.backends.base import ConfigError
from rescheduler.backends.cloudpool.config import PoolSection
from rescheduler.backends.config import INT32, Duration, Endpoint, Section, plain_http

log = logging.getLogger(__name__)


class GoDuration(float):
    """Seconds, with a sign."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: object) -> "GoDuration":
        if isinstance(text, str) and text[:1] in {"-", "+"}:
            return cls(Duration.parse(text[1:]) * (-1 if text[0] == "-" else 1))
        return cls(Duration.parse(text))


class ServerTls(Section, frozen=True, kw_only=True):
    cert_path: str
    key_path: str
    client_ca_path: str | None = None  #: clients must show a certificate of it


class Server(Section, frozen=True, kw_only=True):
    timeout: GoDuration = GoDuration(60)  #: for a client's request to arrive
    queue_timeout: GoDuration = GoDuration(300)  #: for an update to wait for those before it
    update_timeout: GoDuration = GoDuration(3600)  #: for an update itself
    tls: ServerTls | None = None
    bearer_token_path: str | None = None  #: clients must show this token


class ApiServerAuth(Section, frozen=True, kw_only=True):
    kube_config_path: str | None = None
    context: str | None = None  #: of the kubeconfig; none: the one of `url`, or the current one
    in_cluster: bool = False
    client_cert_path: str | None = None
    client_key_path: str | None = None
    ca_cert_path: str | None = None
    token_path: str | None = None


class ApiServer(Section, frozen=True, kw_only=True):
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


class Backend(Section, frozen=True, kw_only=True):
    url: str = ""
    cloud_pool_url: str = ""  #: the documented name of `url`
    timeout: GoDuration = GoDuration(300)
    auth: BackendAuth = BackendAuth()
    api: Literal["v5", "multipool"] = "v5"
    settle_time: GoDuration = GoDuration(300)  #: how long a termination without an answer may be at work
    poll_interval: GoDuration = GoDuration(2)  #: between two looks while a machine is ending


class Drain(Section, frozen=True, kw_only=True):
    eviction_timeout: GoDuration = GoDuration(120)  #: for evictions that are refused for now
    max_graceful_termination: GoDuration = GoDuration(600)  #: at most, of a pod's own grace period
    termination_headroom: GoDuration = GoDuration(30)  #: from a pod's last moment to its being seen gone
    #: For the replacement pods to become Ready, from the last eviction; 0: it is enough that they are bound.
    landing_timeout: GoDuration = GoDuration(0)


class ProxyFile(Section, frozen=True, kw_only=True):
    server: Server = Server()
    api_server: ApiServer = ApiServer()
    backend: Backend = Backend()
    drain: Drain = Drain()
    min_size: int = 0  #: machines that the pool keeps whatever is asked

    @property
    def backend_url(self) -> str:
        """Without user and password."""
        parts = _split(self._written_url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    @property
    def url_password(self) -> str | None:
        """The password in the backend's URL, `None` where that names no user."""
        return unquote(_split(self._written_url).password or "") if self.url_user else None

    @property
    def url_user(self) -> str:
        """The user in the backend's URL; "" where it has none."""
        return unquote(_split(self._written_url).username or "")

    @property
    def _written_url(self) -> str:
        return (self.backend.url or self.backend.cloud_pool_url).rstrip("/")

    def pool(self) -> PoolSection:
        """The backend as the cloudpool provider knows it."""
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
    """The parts of *url*; what is no URL is a path, which the checks of the file refuse."""
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", url, "", "")


def read(path: Path) -> ProxyFile:
    """The file, checked; ConfigError in one line, from the general to the key."""
    where = f"configuration {files.printable(path)}"
    try:
        document = json.loads(files.read_text(path), object_pairs_hook=_Pairs)
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: no JSON: {error}") from error
    try:
        file = msgspec.convert(_recased(document, ProxyFile, where), ProxyFile, dec_hook=_decode)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from error
    _check(file, where)
    found: ProxyFile = _with_defaults(file)
    return found


def _check(file: ProxyFile, where: str) -> None:
    """In the original's order; the first problem is the one that is told."""
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
        "backend.url: expected without user, beside backend.auth": bool(file.url_user)
        and bool(backend.auth.username or backend.auth.token_path),
        "backend.url: expected a user name without a colon": ":" in file.url_user,
        "backend.auth.passwordPath: expected with username": bool(backend.auth.username)
        != bool(backend.auth.password_path),
        "backend.auth.tokenPath: expected without username": bool(backend.auth.username and backend.auth.token_path),
        f"minSize: expected 0 to {INT32}": not 0 <= file.min_size <= INT32,
    }
    for complaint, holds in complaints.items():
        if holds:
            raise ConfigError(f"{where}: {complaint}")


def check_files(file: ProxyFile, path: Path) -> None:
    """Every file that *file*, read from *path*, names and needs can be read. ConfigError names the key.

    Whether it holds what it should is found by whoever uses it.
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
    """Durations that are not positive become the default."""
    changes = {}
    for field in msgspec.structs.fields(section):
        value = getattr(section, field.name)
        if isinstance(value, msgspec.Struct):
            changes[field.name] = _with_defaults(value)
        elif isinstance(value, GoDuration) and value <= 0:
            changes[field.name] = field.default
    return msgspec.structs.replace(section, **changes)


class _Pairs(list[tuple[str, Any]]):
    """A JSON object, with keys that are there twice."""


def _recased(document: Any, shape: Any, where: str) -> Any:
    """*document* with the keys of the struct *shape* as they are spelled there; unknown ones stay.

    As in Go, the last of several keys counts, objects are merged, and `null` leaves a field as it is. A duration
    must not be null.
    """
    if not isinstance(document, _Pairs):
        return document
    fields = {field.encode_name.lower(): field for field in msgspec.structs.fields(shape)} if shape else {}
    found: dict[str, Any] = {}
    for key, value in document:
        field = fields.get(key.lower())
        if field is None:
            found[key] = _recased(value, None, where)
            continue
        name = field.encode_name
        if value is None and field.type is not GoDuration:
            continue
        if name in found:
            log.warning("%s: the key %r is there more than once; the last value counts", where, name)
        read = _recased(value, _struct_of(field.type), where)
        before = found.get(name)
        found[name] = {**before, **read} if isinstance(before, dict) and isinstance(read, dict) else read
    return found


def _struct_of(annotation: Any) -> Any:
    options = [one for one in getattr(annotation, "__args__", (annotation,)) if _is_struct(one)]
    return options[0] if options else None


def _is_struct(shape: Any) -> bool:
    return isinstance(shape, type) and issubclass(shape, msgspec.Struct)


def _decode(shape: type, value: object) -> object:
    if shape is GoDuration:
        return GoDuration.parse(value)
    raise NotImplementedError(f"no reading rule for {shape}")
