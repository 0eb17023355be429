"""The optional ``--cloud-config`` file: the region and the Auto Scaling groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from rescheduler.errors import ConfigError
from rescheduler.net.config_files import Endpoint, Section, check_endpoint, private, read
from rescheduler.net.files import printable

#: The tags by which Cluster Autoscaler finds groups.
ENABLED: Final = "k8s.io/cluster-autoscaler/enabled"
_OF_CLUSTER: Final = "k8s.io/cluster-autoscaler/"

_MOST_GROUPS: Final = 500

#: Without a URL: AWS' own, which depends on the service and the region.
AWS_ENDPOINT: Final = Endpoint(url="")


class AwsFile(Section, frozen=True, kw_only=True):
    region: str = ""
    cluster_name: str = ""  #: groups must also have Cluster Autoscaler's tag of this cluster
    tags: dict[str, str] | None = None  #: instead of Cluster Autoscaler's; "" is any value
    groups: tuple[str, ...] = ()  #: names, instead of tags
    endpoint: Endpoint | None = None  #: of all AWS services that are used, for tests


@dataclass(frozen=True, slots=True)
class AwsSettings:
    """Where the groups are, and which: those with *names*, otherwise those with all *tags*."""

    region: str = ""  #: empty: AWS' environment or files say it, or the provider IDs of Nodes
    names: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=lambda: {ENABLED: ""})
    endpoint: Endpoint = AWS_ENDPOINT
    folder: Path = Path()  #: of the endpoint's files

    def __str__(self) -> str:
        tags = " and ".join(f"{key}={value}" if value else key for key, value in self.tags.items())
        return f"named {', '.join(self.names)}" if self.names else f"with the tags {tags}"

    def filters(self) -> Sequence[Mapping[str, object]]:
        """Return the filters of a request for groups; a group must match all of them."""
        return [
            {"Name": f"tag:{key}", "Values": [value]} if value else {"Name": "tag-key", "Values": [key]}
            for key, value in self.tags.items()
        ]


def settings(path: Path | None) -> AwsSettings:
    """Return the validated settings. Raises ConfigError that names the file and the key."""
    if path is None:
        return AwsSettings()
    file, where = read(path, AwsFile), f"cloud configuration {printable(path)}"
    chosen = {"groups": file.groups, "tags": file.tags, "clusterName": file.cluster_name}
    if len(given := [key for key, value in chosen.items() if value not in ((), None, "")]) > 1:
        raise ConfigError(f"{where}: {' and '.join(given)}: expected only one of them")
    if len(set(file.groups)) < len(file.groups) or "" in file.groups or len(file.groups) > _MOST_GROUPS:
        raise ConfigError(f"{where}: groups: expected at most {_MOST_GROUPS} different names")
    if file.tags is not None and (not file.tags or "" in file.tags):
        raise ConfigError(f"{where}: tags: expected at least one key")
    if file.region and not file.region.replace("-", "").isalnum():
        raise ConfigError(f"{where}: region: expected a region such as eu-west-1, got {file.region!r}")
    tags = {ENABLED: ""} if file.tags is None else dict(file.tags)
    if file.cluster_name:
        tags[_OF_CLUSTER + file.cluster_name] = ""
    return AwsSettings(file.region, file.groups, tags, _endpoint(file.endpoint, where), path.parent)


PLAIN: Final = "https, or http to a loopback address, without a path"


def plain(url: str) -> bool:
    """Return whether *url* is :data:`PLAIN`. The path of each request is that of AWS."""
    return private(url) and urlsplit(url).path in {"", "/"}


def _endpoint(endpoint: Endpoint | None, where: str) -> Endpoint:
    if endpoint is None:
        return AWS_ENDPOINT
    check_endpoint(endpoint, where, "endpoint")
    if not plain(endpoint.url):
        raise ConfigError(f"{where}: endpoint.url: expected {PLAIN}")
    if endpoint.username or endpoint.token_file:
        raise ConfigError(f"{where}: endpoint: expected no username and no tokenFile: AWS' credentials sign requests")
    return endpoint
