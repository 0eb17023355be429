"""The server's configuration file, and the document that POST /config takes."""

from typing import Literal

import msgspec

from rescheduler.backends.config import Duration, Section

CloudName = Literal[
    "AWS-EC2",
    "AWS-SPOT",
    "AWS-AUTO-SCALING-GROUP",
    "GCE",
    "Azure",
    "OpenStack",
    "CityCloud",
    "Kubernetes",  # its machines are pods, and never become Nodes
]
#: How kubelets write the provider IDs of their Nodes.
ProviderIds = Literal["usual", "lower-case", "with-region", "none"]


class PoolDocument(Section, frozen=True, kw_only=True):
    """What kind of machines the pool makes, and how slowly."""

    name: str
    cloud_provider: CloudName = "AWS-EC2"
    region: str = "eu-north-1a"
    machine_size: str = "m5.large"
    quota: int = 1000  #: requests beyond so many machines are rejected
    request_delay: Duration = Duration(0)  #: REQUESTED → PENDING
    launch_delay: Duration = Duration(0)  #: PENDING → RUNNING
    boot_delay: Duration = Duration(0)  #: RUNNING → its Node joins
    termination_delay: Duration = Duration(0)  #: TERMINATING → TERMINATED
    forget_delay: Duration = Duration(60)  #: TERMINATED or REJECTED → no longer listed
    #: For so long the cloud's answer to a launch keeps the pool from all other changes; the delays above do not.
    start_blocks: Duration = Duration(0)
    end_blocks: Duration = Duration(0)  #: the same for a termination; the machine ends at the beginning
    victim_selection_policy: Literal["NEWEST", "OLDEST"] = "NEWEST"  #: whom a resize terminates after requests
    network: str = "10.77"  #: the first two numbers of the machines' private addresses
    labels: dict[str, str] = msgspec.field(default_factory=dict)  #: of the Nodes
    taints: list[dict[str, str]] = msgspec.field(default_factory=list)
    allocatable: dict[str, str] = msgspec.field(default_factory=dict)  #: of the Nodes, over 4 CPUs, 16Gi, 110 pods
    provider_ids: ProviderIds = "usual"  #: of the Nodes


class Settings(Section, frozen=True, kw_only=True):
    """The server. `pool`, `desiredSize` and `started` are for its first start; later they are ignored."""

    pool: PoolDocument | None = None
    desired_size: int | None = None
    started: bool = True
    api: Literal["v5", "multipool"] = "v5"
    multipool_name: str = "pool"  #: the instance's name below /cloudpools/
    database: str = ":memory:"
    #: Between two listings for the view that GET /pool and the membership checks use; 0: each call lists.
    refresh_interval: Duration = Duration(30)
    list_delay: Duration = Duration(0)  #: how long a listing takes; its timestamp is taken at its end
    reachability_timeout: Duration = Duration(300)  #: for how long a cloud that is down is covered up
    pool_update: Duration = Duration(60)  #: from the end of an update in the background to the next one
    #: What the cloud says when a machine that ends already is terminated: EC2 says yes, others do not know it.
    second_termination: Literal["error", "ok"] = "error"
    nodes_stay: bool = False  #: the Node outlives its machine, as without a cloud controller
    username: str | None = None  #: HTTP Basic
    password_file: str | None = None
    token_file: str | None = None
    cert_file: str | None = None  #: HTTPS
    key_file: str | None = None
    client_ca_file: str | None = None  #: clients must have a certificate of it
    admin: bool = False  #: POST /-/faults and /-/cloud, to break it


def encode(value: object) -> str:
    """The `enc_hook` of msgspec: a duration as it is written in files."""
    if isinstance(value, Duration):
        return f"{value:f}s"
    raise NotImplementedError(f"no writing rule for {type(value)}")
