"""The four requests to AWS. botocore finds the credentials, signs and parses; our own client sends, within the deadline
of each call. Separate from the provider, because it knows only the API.

The credentials are those of AWS' chain: IRSA, EKS pod identity, environment, files, the role of the instance. botocore
itself reads them, within :data:`_CREDENTIALS` where it asks AWS' token service.
"""

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from rescheduler import errors
from rescheduler.clock import Clock
from rescheduler.errors import AuthError, ConfigError, RateLimited
from rescheduler.net.http import JsonClient
from rescheduler.net.http_errors import InvalidResponse, Missing, NoResponse, RequestRejected, Unsent
from rescheduler.providers.aws.config import PLAIN, AwsSettings, plain
from rescheduler.providers.aws.groups import AutoScalingGroup, AwsShape

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Limits of botocore's own requests for credentials.
_CREDENTIALS: Final = {
    "connect_timeout": 5,
    "read_timeout": 10,
    "retries": {"total_max_attempts": 2, "mode": "legacy"},  # AWS_RETRY_MODE could add pauses
}
#: Seconds after which a change is not sent any more, because what it is based on was read before. Finding credentials
#: can take as long.
_LATEST: Final = 8.0

_NAMES: Final = 50  #: in one request
_PAGE: Final = 100
_MOST_PAGES: Final = 200
_MOST_TEXT: Final = 500

_THROTTLED: Final = frozenset(
    {"Throttling", "ThrottlingException", "RequestThrottled", "RequestLimitExceeded", "TooManyRequestsException"}
)
#: Nothing was done, because another change of the group is in progress.
_BUSY: Final = frozenset({"ScalingActivityInProgress", "ResourceContention"})
#: Their messages name the permission that is missing, or why the token of IRSA is refused.
_FORBIDDEN: Final = frozenset(
    {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "InvalidIdentityToken", "IDPRejectedClaim"}
)
#: Their messages are left out, like those with the status 401 or 403: they may contain the signed request with a token.
_WITHOUT_TEXT: Final = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "IncompleteSignature", "RequestExpired", "UnrecognizedClientException"}
)


class Described(AwsShape, frozen=True, kw_only=True):
    auto_scaling_groups: tuple[AutoScalingGroup, ...] = ()
    next_token: str = ""


class InstanceStatus(AwsShape, frozen=True, kw_only=True):
    name: str = ""


class DescribedInstance(AwsShape, frozen=True, kw_only=True):
    instance_id: str = ""
    state: InstanceStatus = InstanceStatus()


class Reservation(AwsShape, frozen=True, kw_only=True):
    instances: tuple[DescribedInstance, ...] = ()


class Reservations(AwsShape, frozen=True, kw_only=True):
    reservations: tuple[Reservation, ...] = ()


class AwsClient:
    """EC2 Auto Scaling and EC2 in one region. Thread-safe."""

    def __init__(self, settings: AwsSettings, clock: Clock) -> None:
        """Raises ConfigError without botocore, and if AWS' configuration is invalid."""
        try:
            from botocore import exceptions, xform_name  # noqa: PLC0415 - an extra
            from botocore.config import Config  # noqa: PLC0415
            from botocore.parsers import ResponseParserError  # noqa: PLC0415
            from botocore.session import Session  # noqa: PLC0415
        except ImportError:
            raise ConfigError(
                "--cloud-provider aws: boto3 is not installed: in a checkout, pip install '.[aws]'"
            ) from None
        self._settings, self._clock = settings, clock
        logging.getLogger("botocore").setLevel(logging.CRITICAL)  # its messages may contain secrets
        self._failed, self._rejected, self._method = exceptions.BotoCoreError, exceptions.ClientError, xform_name
        #: The services that have the credentials, such as the token service, do not respond.
        self._unreachable = (
            exceptions.HTTPClientError,
            exceptions.ConnectionError,
            exceptions.CredentialRetrievalError,
            exceptions.MetadataRetrievalError,
        )
        self._unreadable = (ResponseParserError, LookupError, ValueError, TypeError, AttributeError)
        self._config = Config(**_CREDENTIALS | {"retries": {"total_max_attempts": 1, "mode": "legacy"}})
        self._new_session, self._limits = Session, Config(**_CREDENTIALS)
        self._session = self._opened()
        self._connections: dict[str, tuple[Any, JsonClient]] = {}
        self._lock = threading.Lock()
        self._call = threading.local()  #: deadline and name of the call of each thread
        try:
            found = self._session.get_config_variable("region")
            self._ca: str | None = self._session.get_config_variable("ca_bundle")
        except exceptions.BotoCoreError as error:
            raise ConfigError(f"aws: {_line(error)}") from error
        self.absent = ""  #: the named groups that the last list lacked
        #: Set later, by the provider ID of a Node, if the configuration has none.
        self.region: str = settings.region or os.environ.get("AWS_REGION", "") or found or ""

    def close(self) -> None:
        with self._lock:
            for _, sender in self._connections.values():
                sender.close()

    def groups(self, *, deadline: float) -> list[AutoScalingGroup]:
        """Return the chosen groups, in AWS' order, and note in :attr:`absent` which named ones do not exist."""
        names = self._settings.names
        filters: dict[str, Any] = {} if names else {"Filters": self._settings.filters()}
        selections: list[dict[str, Any]] = [
            {"AutoScalingGroupNames": list(names[first : first + _NAMES])} for first in range(0, len(names), _NAMES)
        ] or [filters]
        found = [group for selection in selections for group in self._pages(selection, deadline)]
        absent = ", ".join(sorted(set(names) - {group.auto_scaling_group_name for group in found}))
        if absent and absent != self.absent:
            log.warning("aws: groups: region %s has no Auto Scaling group %s", self.region, absent)
        self.absent = absent
        return found

    def terminate(self, instance: str, *, deadline: float) -> None:
        """End an instance and lower the desired capacity of its group by 1. Raises Missing if no group has it.

        A second request may lower the capacity again, so it is sent once.
        """
        self._ask(
            "autoscaling",
            "TerminateInstanceInAutoScalingGroup",
            deadline,
            InstanceId=instance,
            ShouldDecrementDesiredCapacity=True,
        )

    def set_desired(self, group: str, size: int, *, deadline: float) -> None:
        self._ask(
            "autoscaling", "SetDesiredCapacity", deadline,
            AutoScalingGroupName=group, DesiredCapacity=size, HonorCooldown=False,
        )  # fmt: skip

    def instance_state(self, instance: str, *, deadline: float) -> str:
        """Return the state of an instance in EC2; "" if EC2 says that it no longer knows it."""
        try:
            found = self._read("ec2", "DescribeInstances", Reservations, deadline, InstanceIds=[instance])
        except Missing:
            return ""
        for some in found.reservations:
            for each in some.instances:
                if each.instance_id == instance and each.state.name:
                    return each.state.name
        raise InvalidResponse(f"aws: DescribeInstances: the response does not have instance {instance}")

    def _pages(self, selection: dict[str, Any], deadline: float) -> Iterator[AutoScalingGroup]:
        token: dict[str, str] = {}
        for _ in range(_MOST_PAGES):
            page = self._read(
                "autoscaling", "DescribeAutoScalingGroups", Described, deadline,
                MaxRecords=_PAGE, **selection, **token,
            )  # fmt: skip
            yield from page.auto_scaling_groups
            if not page.next_token:
                return
            token = {"NextToken": page.next_token}
        raise InvalidResponse(f"aws: DescribeAutoScalingGroups: more than {_MOST_PAGES} pages")

    def _read(self, service: str, operation: str, shape: type[T], deadline: float, **values: Any) -> T:
        """Send a request that changes nothing, and repeat it if that may help."""
        _, sender = self._connection(service)
        attempts = sender.retrying(lambda error: isinstance(error, errors.Retryable), deadline)
        answer = attempts(self._ask, service, operation, deadline, **values)
        try:
            return msgspec.convert(answer, shape)
        except msgspec.ValidationError as error:
            raise InvalidResponse(f"aws: {operation}: the response does not match the API: {error}") from error

    def _ask(self, service: str, operation: str, deadline: float, **values: Any) -> Any:
        self._call.deadline, self._call.name, self._call.began = deadline, operation, self._clock.monotonic()
        client, _ = self._connection(service)
        try:
            return getattr(client, self._method(operation))(**values)
        except self._rejected as error:
            raise _rejection(operation, error) from None
        except self._unreachable as error:  # our own client raises other errors
            raise Unsent(f"aws: {operation}: the credentials: {_line(error)}") from None
        except self._failed as error:
            raise AuthError(f"aws: {operation}: {_line(error)}") from None
        except (OSError, RuntimeError) as error:  # such as a missing token file, or credentials that stay expired
            raise AuthError(f"aws: {operation}: the credentials: {_line(error)}") from None
        except self._unreadable as error:
            text = f"{type(error).__name__}: {_line(error)}"
            raise InvalidResponse(f"aws: {operation}: the response does not match the API: {text}") from None

    def _connection(self, service: str) -> tuple[Any, JsonClient]:
        if not self.region:
            expected = "aws: region: expected it in --cloud-config, in AWS_REGION, or in the provider IDs of Nodes"
            raise ConfigError(f"{expected}, such as aws:///eu-west-1a/i-0123456789abcdef0")
        with self._lock:
            if service not in self._connections:
                try:
                    self._connections[service] = self._connect(service)
                except self._unreachable as error:
                    raise Unsent(f"aws: the credentials: {_line(error)}") from None
                except (OSError, RuntimeError, LookupError) as error:
                    raise AuthError(f"aws: the credentials: {_line(error)}") from None
                except (self._failed, ValueError) as error:
                    raise ConfigError(f"aws: {_line(error)}") from error
            return self._connections[service]

    def _connect(self, service: str) -> tuple[Any, JsonClient]:
        endpoint = self._settings.endpoint
        if self._session.get_credentials() is None:
            self._session = self._opened()  # it has read AWS' files, which may have credentials later
            raise AuthError(
                "aws: the credentials: none found by EKS Pod Identity, IRSA, environment, files or instance"
            )
        client = self._session.create_client(
            service, self.region, endpoint_url=endpoint.url or None, config=self._config
        )
        if not plain(client.meta.endpoint_url):
            raise ConfigError(f"aws: the endpoint of {service}, such as AWS_ENDPOINT_URL: expected {PLAIN}")
        endpoint = msgspec.structs.replace(
            endpoint, url=client.meta.endpoint_url, ca_file=endpoint.ca_file or self._ca or None
        )
        sender = JsonClient("aws", endpoint, self._settings.folder, self._clock)
        client.meta.events.register("before-send", partial(self._send, sender))
        return client, sender

    def _opened(self) -> Any:
        session = self._new_session()
        session.set_default_client_config(self._limits)
        return session

    def _send(self, sender: JsonClient, request: Any, **_: Any) -> Any:
        """Send a signed *request* in place of botocore. Errors pass through botocore as they are."""
        from botocore.awsrequest import AWSResponse  # noqa: PLC0415 - an extra

        if (late := self._clock.monotonic() - self._call.began) > _LATEST and not self._call.name.startswith(
            "Describe"
        ):
            raise Unsent(f"aws: {self._call.name}: finding the credentials took {late:.0f} s: not sent")
        headers = {name: _text(value) for name, value in request.headers.items()} | {"accept": "*/*"}
        body, path = request.body or b"", urlsplit(request.url).path
        response = sender.exchange(
            request.method,
            path,
            body if isinstance(body, bytes) else body.encode(),
            headers,
            deadline=self._call.deadline,
            what=self._call.name,
        )
        return AWSResponse(request.url, response.status, dict(response.headers), _Body(response.body))


class _Body:
    """A body in the form that botocore reads."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self) -> Sequence[bytes]:
        return [self._content]


def _rejection(operation: str, error: Any) -> errors.ReschedulerError:
    """Return the error for an error response of AWS, which names its code, and its message if that has no secret."""
    code, status = error.response["Error"].get("Code", ""), error.response["ResponseMetadata"]["HTTPStatusCode"]
    message = " ".join(error.response["Error"].get("Message", "").split())[:_MOST_TEXT]
    without_text = f"aws: {error.operation_name}: {status} {code}"
    line = f"{without_text}: {message}"
    if code in _THROTTLED | _BUSY:
        return RateLimited(line)
    if code in _FORBIDDEN:
        return AuthError(line)
    if code in _WITHOUT_TEXT or status in {401, 403} or error.operation_name != operation:
        return AuthError(without_text)  # also a request of botocore for credentials, with a token
    terminates = operation == "TerminateInstanceInAutoScalingGroup"
    if code == "InvalidInstanceID.NotFound" or (
        terminates and code == "ValidationError" and "not found" in message.lower()
    ):
        return Missing(line)
    if status >= 500:  # noqa: PLR2004 - it may have been carried out
        return NoResponse(line)
    return RequestRejected(line)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:_MOST_TEXT]


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
