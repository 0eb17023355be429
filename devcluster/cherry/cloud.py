"""The servers of all projects, and their actual state."""

import datetime as dt
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from devcluster.standin.table import Table
from rescheduler.clock import Clock

FIRST_ID = 400001
#: slug: (cores, memory in GB, hourly price, spot hourly price)
PLANS = {
    "e5_1620v4": (4, 32, 0.209, 0.084),
    "e3_1240v3": (4, 16, 0.15, 0.06),
    "cloud_vps_2": (2, 4, 0.027, None),
}
REGIONS = ("eu_nord_1", "us_chicago_1")


class CherryCloudSettings(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Token, database, delays in seconds, and capacity."""

    token: str = "token"  # noqa: S105 -- of the stand-in
    database: str = ":memory:"
    provisioning: float = 0.0  #: duration of each of the states pending and provisioning
    deploying: float = 0.0  #: duration of state active with status deploying
    terminating: float = 0.0
    stock: int = 1000  #: maximum number of servers of a project


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """The points in time from which a server's state is derived; `None` means not scheduled."""

    id: int
    project: int
    hostname: str
    plan: str
    region: str
    image: str
    tags: dict[str, str]
    spot: bool
    user_data: str
    created_at: dt.datetime
    provisioning: float = 0.0
    deploying: float = 0.0
    terminating: float = 0.0
    fails: bool = False  #: the deployment never completes
    ending_at: dt.datetime | None = None
    notice: dt.datetime | None = None  #: announced termination of a spot server

    def state(self, now: dt.datetime) -> str:
        """Return the state at *now*; `gone` for a server that the API no longer returns."""
        end = min((moment for moment in (self.ending_at, self.notice) if moment), default=None)
        if end is not None and now >= end:
            return "gone" if now >= end + dt.timedelta(seconds=self.terminating) else "terminating"
        age = (now - self.created_at).total_seconds()
        if age < self.provisioning:
            return "pending"
        return "provisioning" if age < 2 * self.provisioning else "active"

    def status(self, now: dt.datetime) -> str:
        if self.fails:
            return "failed deployment"
        done = self.created_at + dt.timedelta(seconds=2 * self.provisioning + self.deploying)
        return "deployed" if now >= done else "deploying"

    @property
    def private_ip(self) -> str:
        number = self.id - FIRST_ID
        return f"10.168.{number // 250 % 250}.{number % 250 + 1}"

    def runs(self, now: dt.datetime) -> bool:
        return self.state(now) == "active" and self.status(now) == "deployed"

    def document(self, now: dt.datetime) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": "E5-1620v4",
            "href": f"/servers/{self.id}",
            "hostname": self.hostname,
            "image": self.image,
            "spot_instance": self.spot,
            "project": {"id": self.project, "href": f"/projects/{self.project}"},
            "region": {"slug": self.region},
            "state": self.state(now),
            "status": self.status(now),
            "plan": {"slug": self.plan, "name": self.plan.upper()},
            "ip_addresses": [
                {"id": f"ip-{self.id}", "address": self.private_ip, "address_family": 4, "type": "private-ip"}
            ],
            "ssh_keys": None,
            "tags": self.tags or [],
            "created_at": self.created_at.isoformat(timespec="seconds"),
            "termination_date": self.notice.isoformat(timespec="seconds") if self.notice else "None",
        }


class CherryCloud:
    """The servers of all projects; thread-safe."""

    def __init__(self, settings: CherryCloudSettings, clock: Clock) -> None:
        self.settings, self._clock = settings, clock
        self._servers = Table(settings.database, ServerState)
        self._lock = threading.RLock()

    def close(self) -> None:
        self._servers.close()

    def now(self) -> dt.datetime:
        return self._clock.now()

    def servers(self, project: int | None = None) -> Sequence[ServerState]:
        """Return the servers that the API returns."""
        with self._lock:
            now = self.now()
            return [
                server
                for server in self._servers.all()
                if server.state(now) != "gone" and project in {None, server.project}
            ]

    def server(self, number: int) -> ServerState | None:
        with self._lock:
            server = self._servers.get(number)
            return None if server is None or server.state(self.now()) == "gone" else server

    def create(self, project: int, order: Mapping[str, Any], **fields: Any) -> ServerState:
        """Create a server from the fields of *order*. Raises ValueError if the order is invalid or out of stock."""
        with self._lock:
            if order.get("plan") not in PLANS or order.get("region") not in REGIONS or not order.get("image"):
                raise ValueError("plan, region or image is not valid")
            if len(self.servers(project)) >= self.settings.stock:
                raise ValueError("plan is out of stock in this region")
            values: dict[str, Any] = {
                "hostname": order.get("hostname") or "unnamed",
                "tags": dict(order.get("tags") or {}),
                "spot": bool(order.get("spot_market")),
                "user_data": order.get("user_data") or "",
                "provisioning": self.settings.provisioning,
                "deploying": self.settings.deploying,
                "terminating": self.settings.terminating,
            } | fields
            server = ServerState(
                id=self._servers.next_number(FIRST_ID),
                project=project,
                plan=order["plan"],
                region=order["region"],
                image=order["image"],
                created_at=self.now(),
                **values,
            )
            self._servers.save(server.id, server)
            return server

    def end(self, number: int) -> bool:
        """Terminate a server and return whether it exists; do nothing if it is already terminating."""
        with self._lock:
            server = self.server(number)
            if server is not None and server.state(self.now()) != "terminating":
                self.change(number, ending_at=self.now())
            return server is not None

    def change(self, number: int, **fields: Any) -> None:
        with self._lock:
            server = self._servers.get(number)
            assert server is not None
            self._servers.save(number, msgspec.structs.replace(server, **fields))


def plan_documents() -> Sequence[dict[str, Any]]:
    return [
        {
            "id": 100 + index,
            "slug": slug,
            "name": slug.upper(),
            "type": "baremetal",
            "specs": {
                "cpus": {"count": 1, "name": "Xeon", "cores": cores, "frequency": 3.5, "unit": "GHz"},
                "memory": {"count": 1, "total": memory, "unit": "GB", "name": f"{memory}GB"},
            },
            "pricing": [
                {"id": identifier, "unit": unit, "price": price, "currency": "EUR", "taxed": False}
                for identifier, unit, price in ((37, "Hourly", hourly), (38, "Spot hourly", spot))
                if price is not None
            ],
            "available_regions": [{"slug": region, "stock_qty": 10, "spot_qty": 3} for region in REGIONS],
        }
        for index, (slug, (cores, memory, hourly, spot)) in enumerate(PLANS.items())
    ]
