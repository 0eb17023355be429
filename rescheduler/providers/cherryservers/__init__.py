"""The cloud provider for Cherry Servers. A server belongs to a pool by two tags: the cluster's and the pool's."""

import datetime as dt
import os
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from rescheduler import errors
from rescheduler.clock import Clock
from rescheduler.errors import AuthError, BackendUnavailable, ConfigError, DeadlineExceeded, RateLimited
from rescheduler.providers.base import (
    CloudProvider,
    GroupFlags,
    NodeGroup,
    NodeRef,
    NodeTemplate,
    NotInGroup,
    NotSupported,
    Refused,
    without_name,
)
from rescheduler.providers.cherryservers import config
from rescheduler.providers.cherryservers.client import (
    CLUSTER_TAG,
    POOL_TAG,
    SCHEME,
    CherryClient,
    CreateServer,
    Server,
    ServerPlan,
    machine,
    user_data,
)
from rescheduler.providers.cherryservers.config import (
    TOKEN,
    CherryPool,
    CherrySettings,
    Definition,
    node_groups,
    settings,
)
from rescheduler.providers.fleet import PollIntervals, SystemMachine, SystemView
from rescheduler.providers.fleet.provider import FleetProvider, hours

PACE = PollIntervals(refresh=10, poll=2, settle=120)
POOL_LABEL = "pool"  #: of templates, as set by the usual cloud-init
_PODS = "110"


def load(config: Path, clock: Clock, flags: GroupFlags = GroupFlags()) -> CloudProvider:  # noqa: B008 -- a value
    """Load the provider from the `--cloud-config` file, `--nodes` and the environment. Raises ConfigError."""
    return CherryProvider(settings(config, flags, os.environ), os.environ, clock)


def check_nodes(nodes: Sequence[str]) -> None:
    """Raise ConfigError if *nodes*, the values of `--nodes`, do not name at least one pool and its limits."""
    node_groups(nodes)


class CherrySystem:
    """Cherry Servers' API as a fleet."""

    name = "cherryservers"
    deletion_is_certain = True

    def __init__(self, config: CherrySettings, environ: Mapping[str, str], clock: Clock) -> None:
        self.config = config
        self._environ = environ
        self.pools = {pool.group.id: pool for pool in config.pools}
        self.client = CherryClient(config.endpoint, environ[TOKEN], clock, self._bootstrap_secret)
        self.plan_of: Mapping[str, str] = {}  #: the slug of a server's plan, as last listed

    def read(self, *, deadline: float) -> SystemView:
        projects = dict.fromkeys(pool.definition.project_id for pool in self.config.pools)
        listed = [
            (project, server) for project in projects for server in self.client.servers(project, deadline=deadline)
        ]
        self.plan_of = {str(server.id): server.plan.slug for _, server in listed if server.plan and server.plan.slug}
        machines = [machine(server, self._group_of(server, project)) for project, server in listed]
        return SystemView([pool.group for pool in self.config.pools], machines)

    def key_of(self, node: NodeRef) -> str | None:
        """Return the ID from either form of the cloud controller: ``cherryservers://<id>`` and the bare ID."""
        if not node.provider_id:
            return ""
        key = node.provider_id.removeprefix(SCHEME)
        return key if key.isascii() and key.isdigit() else None

    def is_control_plane(self, node: NodeRef) -> bool:
        return bool(self.config.control_label) and self.config.control_label in node.labels

    def contradiction(self, node: NodeRef, machine: SystemMachine) -> str:  # noqa: ARG002
        return ""

    def exists(self, key: str, *, deadline: float) -> bool | None:
        return self.client.server(key, deadline=deadline) is not None

    def deletion_refusal(self, machine: SystemMachine, *, deadline: float) -> Refused | None:  # noqa: ARG002
        return None

    def delete(self, machine: SystemMachine, *, deadline: float) -> None:
        self.client.delete(machine.key, deadline=deadline)

    def create(self, group: NodeGroup, count: int, created: Callable[[str], None], *, deadline: float) -> None:
        """Order servers one by one. After a failed order, continue with the next unless all would fail the same way."""
        pool = self.pools[group.id]
        _check_orderable(pool)
        failures: list[errors.ReschedulerError] = []
        ordered = 0
        for _ in range(count):
            try:
                server = self.client.create(self._order(pool), deadline=deadline)
            except errors.ReschedulerError as error:
                failures.append(error)
                if isinstance(error, AuthError | RateLimited | DeadlineExceeded):
                    break
            else:
                ordered += 1
                if server is not None:
                    created(str(server.id))
        if failures:
            raise _failed(group.id, count, count - ordered, failures)

    def close(self) -> None:
        self.client.close()

    def _group_of(self, server: Server, project: int) -> str:
        pool = self.pools.get(server.tag(POOL_TAG))
        if pool is None or pool.definition.project_id != project:
            return ""
        return pool.group.id if server.tag(CLUSTER_TAG) == pool.definition.cluster_name else ""

    def _bootstrap_secret(self) -> str:
        return self._environ.get("BOOTSTRAP_TOKEN_SECRET", "")

    def _order(self, pool: CherryPool) -> CreateServer:
        definition, name = pool.definition, pool.group.id
        values = {
            "BootstrapTokenID": self._environ.get("BOOTSTRAP_TOKEN_ID", ""),
            "BootstrapTokenSecret": self._bootstrap_secret(),
            "APIServerEndpoint": definition.api_server_endpoint,
            "NodeGroup": name,
        }
        hostname = {
            "ClusterName": definition.cluster_name,
            "NodeGroup": name,
            "RandString8": config.random_letters(),
        }
        return CreateServer(
            project_id=definition.project_id,
            plan=definition.plan,
            hostname=config.render(definition.hostname_pattern, hostname),
            image=definition.os,
            region=definition.region,
            tags={CLUSTER_TAG: definition.cluster_name, POOL_TAG: name},
            user_data=user_data(config.render(definition.cloudinit, values)),
            ssh_keys=list(definition.ssh_key_ids),
            os_partition_size=definition.os_partition_size,
            spot_market=definition.spot_market,
        )


class CherryProvider(FleetProvider):
    def __init__(self, config: CherrySettings, environ: Mapping[str, str], clock: Clock) -> None:
        self._cherry = CherrySystem(config, environ, clock)
        super().__init__(self._cherry, clock, PACE)

    def template(self, group: str, *, deadline: float) -> NodeTemplate:
        """Return the template from the plan, with the labels that the cloud controller and cloud-init set."""
        name = self.group(group, deadline=deadline).id
        definition = self._cherry.pools[name].definition
        plan = self._plan(definition.plan, deadline)
        if not plan.cores or not plan.memory:
            raise NotSupported(f"cherryservers: the plan {plan.slug} has no cores or no memory")
        labels = {
            POOL_LABEL: name,
            "node.kubernetes.io/instance-type": definition.plan,
            "beta.kubernetes.io/instance-type": definition.plan,
            "topology.kubernetes.io/region": definition.region,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
        }
        capacity = {"cpu": str(plan.cores), "memory": str(plan.memory), "pods": _PODS}
        return NodeTemplate({key: value for key, value in labels.items() if value}, (), capacity, capacity)

    def node_price(self, node: NodeRef, start: dt.datetime, end: dt.datetime, *, deadline: float) -> float:
        """Return the plan's hourly (spot) price times the hours. The node may be the template of a pool."""
        machine = self.machine(node, deadline=deadline)
        if machine is not None and machine.group:
            slug = self._cherry.plan_of.get(machine.key) or self._cherry.pools[machine.group].definition.plan
            return self._hourly(self._plan(slug, deadline), spot=bool(machine.spot)) * hours(start, end)
        planned = self._cherry.pools.get(node.labels.get(POOL_LABEL, "")) if node.template else None
        if planned is None:
            raise NotInGroup(f"cherryservers: node {node.name} does not belong to a pool")
        definition = planned.definition
        return self._hourly(self._plan(definition.plan, deadline), spot=definition.spot_market) * hours(start, end)

    def pod_price(
        self, requests: Mapping[str, Decimal], start: dt.datetime, end: dt.datetime, *, deadline: float
    ) -> float:
        """Return the price of the pod's share in the cheapest pool; cores and memory each make up half of the price."""
        prices = [self._share(pool.definition, requests, deadline) for pool in self._cherry.config.pools]
        known = [price for price in prices if price is not None]
        if not known:
            raise NotSupported("cherryservers: no pool's plan has an hourly price")
        return min(known) * hours(start, end)

    def gpu_label(self) -> str:
        return "cherryservers.com/gpu"

    def _share(self, definition: Definition, requests: Mapping[str, Decimal], deadline: float) -> float | None:
        plan = self._plan(definition.plan, deadline)
        price = plan.hourly(spot=definition.spot_market)
        if price is None or not plan.cores or not plan.memory:
            return None
        cores, memory = float(requests.get("cpu", 0)), float(requests.get("memory", 0))
        return price * (cores / plan.cores + memory / plan.memory) / 2

    def _hourly(self, plan: ServerPlan, *, spot: bool) -> float:
        price = plan.hourly(spot=spot)
        if price is None:
            raise NotSupported(f"cherryservers: the plan {plan.slug} has no hourly {'spot ' if spot else ''}price")
        return price

    def _plan(self, slug: str, deadline: float) -> ServerPlan:
        plans = self._cherry.client.plans(deadline=deadline)
        if slug not in plans:
            raise ConfigError(f"cherryservers: plan {slug!r}: Cherry Servers does not have this plan")
        return plans[slug]


def _failed(
    group: str, count: int, missing: int, failures: Sequence[errors.ReschedulerError]
) -> errors.ReschedulerError:
    """Combine the failed orders into one error, with the class of the last error if callers react to that class."""
    reasons = "; ".join(dict.fromkeys(without_name("cherryservers", error) for error in failures))
    line = f"cherryservers: group {group}: {missing} of {count} servers were not ordered: {reasons}"
    last = failures[-1]
    if isinstance(last, RateLimited | DeadlineExceeded):
        return type(last)(line, retry_after=last.retry_after)
    if isinstance(last, AuthError):
        return AuthError(line)
    if all(isinstance(error, errors.Permanent) for error in failures):
        return errors.Permanent(line)
    return BackendUnavailable(line)


def _check_orderable(pool: CherryPool) -> None:
    """Check that the keys required to order servers are set; machines can be deleted without them."""
    needed = {"region": pool.definition.region, "plan": pool.definition.plan, "os": pool.definition.os}
    if missing := [key for key, value in needed.items() if not value]:
        raise ConfigError(
            f"cherryservers: pool {pool.group.id}: expected {', '.join(missing)} in the cloud configuration"
        )
