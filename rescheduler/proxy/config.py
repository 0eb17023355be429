"""The proxy's configuration file: the JSON format of kubeaware-cloudpool-proxy, with additional keys.

Durations have Go's format; zero and negative ones mean the default. :mod:`rescheduler.proxy.config_file` reads it.
"""

from typing import Literal
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from rescheduler.net.config_files import INT32, Duration, Endpoint, Section
from rescheduler.providers.cloudpool.config import PoolSection


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
