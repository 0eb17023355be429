"""The server's configuration file, and the body of POST /config."""

from typing import Literal

import msgspec

from rescheduler.net.config_files import Duration, Section

CloudName = Literal[
    "AWS-EC2",
    "AWS-SPOT",
    "AWS-AUTO-SCALING-GROUP",
    "GCE",
    "Azure",
    "OpenStack",
    "CityCloud",
    "Kubernetes",  # its machines are pods, without Nodes
]
#: How kubelets format the provider IDs of their Nodes.
ProviderIds = Literal["usual", "lower-case", "with-region", "none"]


class PoolDocument(Section, frozen=True, kw_only=True):
    """The kind of machines that the pool creates, and their delays."""

    name: str
    cloud_provider: CloudName = "AWS-EC2"
    region: str = "eu-north-1a"
    machine_size: str = "m5.large"
    quota: int = 1000  #: maximum number of machines; further requests are rejected
    request_delay: Duration = Duration(0)  #: REQUESTED → PENDING
    launch_delay: Duration = Duration(0)  #: PENDING → RUNNING
    boot_delay: Duration = Duration(0)  #: RUNNING → its Node joins
    termination_delay: Duration = Duration(0)  #: TERMINATING → TERMINATED
    forget_delay: Duration = Duration(60)  #: TERMINATED or REJECTED → no longer listed
    #: How long the cloud's response to a launch blocks all other changes; the delays above do not block.
    start_blocks: Duration = Duration(0)
    end_blocks: Duration = Duration(0)  #: the same for a termination, which starts at the beginning
    victim_selection_policy: Literal["NEWEST", "OLDEST"] = (
        "NEWEST"  #: order in which a resize terminates machines, after requested ones
    )
    network: str = "10.77"  #: first two octets of the machines' private addresses
    labels: dict[str, str] = msgspec.field(default_factory=dict)  #: labels of the Nodes
    taints: list[dict[str, str]] = msgspec.field(default_factory=list)
    allocatable: dict[str, str] = msgspec.field(default_factory=dict)  #: overrides 4 CPUs, 16Gi, 110 pods
    provider_ids: ProviderIds = "usual"  #: format of the Nodes' provider IDs


class CloudpoolSettings(Section, frozen=True, kw_only=True):
    """The server's settings. `pool`, `desiredSize` and `started` are only used at the first start."""

    pool: PoolDocument | None = None
    desired_size: int | None = None
    started: bool = True
    api: Literal["v5", "multipool"] = "v5"
    multipool_name: str = "pool"  #: the instance's name below /cloudpools/
    database: str = ":memory:"
    #: Interval between listings for the cached view of GET /pool and the membership checks; 0: list for each call.
    refresh_interval: Duration = Duration(30)
    list_delay: Duration = Duration(0)  #: how long a listing takes; its timestamp is the time at its end
    reachability_timeout: Duration = Duration(300)  #: how long the cached view is served while the cloud is down
    pool_update: Duration = Duration(60)  #: time from the end of a background update to the next one
    #: The cloud's response when a terminating machine is terminated again: EC2 succeeds, others return an error.
    second_termination: Literal["error", "ok"] = "error"
    nodes_stay: bool = False  #: keep the Node of a terminated machine, as without a cloud controller manager
    username: str | None = None  #: HTTP Basic
    password_file: str | None = None
    token_file: str | None = None
    cert_file: str | None = None  #: HTTPS
    key_file: str | None = None
    client_ca_file: str | None = None  #: clients must present a certificate of this CA
    admin: bool = False  #: enable POST /-/faults and /-/cloud for fault injection


def encode(value: object) -> str:
    """Encode a duration as in configuration files; an `enc_hook` for msgspec."""
    if isinstance(value, Duration):
        return f"{value:f}s"
    raise NotImplementedError(f"cannot encode {type(value)}")
